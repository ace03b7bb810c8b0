"""``hpcrun.runtime``: the same as the file ``hpcrun_runtime`` that every run's folder carries."""

from hpcrun.hpcrun_runtime import attempt, checkpoint_dir, log_metrics, on_stop, register_stacks, should_stop

__all__ = ["attempt", "checkpoint_dir", "log_metrics", "on_stop", "register_stacks", "should_stop"]
