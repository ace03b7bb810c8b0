"""What a person may not expect of a plan, in one line each. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcrun.job.plan import Plan
from hpcrun.job.profile import Profile

_THREADS = "OMP_NUM_THREADS"


def threads_of(plan: Plan) -> str:
    """Return OMP_NUM_THREADS as a rank finds it: the profile's or --env's, else its share of the CPUs."""
    return dict(plan.env).get(_THREADS) or str(plan.cpus_per_rank)


def plan_notes(plan: Plan, profile: Profile, env: Mapping[str, str]) -> Iterator[str]:
    """Return notes on a plan.

    Args:
        profile: the profile as it stands for the job's type of GPU.
        env: the environment that hpcrun was called in.
    """
    if plan.preflight == "only":
        return
    partition = plan.directive("partition")
    if profile.gpu.per_node and plan.scheduler == "slurm" and not plan.shape.gpus and partition == profile.partition:
        where = f"partition {partition}" if partition else "the default partition"
        yield f"a job without GPUs on {where}, whose nodes have {profile.gpu.per_node}; -p PARTITION names another"
    given = dict(plan.env).get(_THREADS)
    if given and given != str(plan.cpus_per_rank):
        yield f"{_THREADS}={given} is set by --env or the profile; a rank has {plan.cpus_per_rank} CPUs"
    own = env.get(_THREADS)
    if own and "SLURM_JOB_ID" not in env and own != threads_of(plan):
        yield f"{_THREADS}={own} of your shell does not count: the job sets {threads_of(plan)}; --env {_THREADS}={own}"
