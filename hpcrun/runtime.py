"""``import hpcrun_runtime`` outside of jobs, for a script that also runs by hand.

The wheel carries this file as ``hpcrun_runtime``. In a job, ``hpcrun_runtime`` is the file in the
run's folder. ``hpcrun.runtime`` is the same under another name.
"""

from hpcrun.in_job.hpcrun_runtime import (
    attempt,
    checkpoint_dir,
    log_metrics,
    on_stop,
    register_stacks,
    should_stop,
)

__all__ = ["attempt", "checkpoint_dir", "log_metrics", "on_stop", "register_stacks", "should_stop"]
