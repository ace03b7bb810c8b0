"""Notes on properties of a plan that a user may not expect, in one line each. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcrun.job.plan import Plan
from hpcrun.job.profile import Profile

_THREADS = "OMP_NUM_THREADS"
_MEETING = {"MASTER_ADDR": "the first node", "MASTER_PORT": "a free port, another one for each job"}
"""What every launcher sets, whatever the job's environment says (launch/node.py, launch/rank.py, torchrun)."""


def threads_of(plan: Plan) -> str | None:
    """Return a rank's OMP_NUM_THREADS: the profile's or --env's, else its share of the CPUs; None if unset."""
    share = plan.cpus_per_rank
    return dict(plan.env).get(_THREADS) or (None if share is None else str(share))


def plan_notes(plan: Plan, profile: Profile, env: Mapping[str, str]) -> Iterator[str]:
    """Return notes on a plan.

    Args:
        profile: the profile for the job's GPU type.
        env: the environment of hpcrun's caller.
    """
    if plan.preflight == "only":
        return
    partition = plan.directive("partition")
    if profile.gpu.per_node and plan.scheduler == "slurm" and not plan.shape.gpus and partition == profile.partition:
        where = f"partition {partition}" if partition else "the default partition"
        yield (
            f"a job without GPUs on {where}, whose nodes have {profile.gpu.per_node} GPUs; choose another with -p "
            "PARTITION"
        )
    given, share, threads = dict(plan.env).get(_THREADS), plan.cpus_per_rank, threads_of(plan)
    if given and share is not None and given != str(share):
        yield f"{_THREADS}={given} is set by --env or the profile, but a rank has {share} CPUs"
    own = env.get(_THREADS)
    if own and threads and "SLURM_JOB_ID" not in env and own != threads:
        yield (
            f"{_THREADS}={own} of your shell is ignored: the job sets {threads}; to keep yours: --env {_THREADS}={own}"
        )
    for name, value in plan.env:
        if name in _MEETING:
            yield (
                f"{name}{'' if value is None else f'={value}'} of --env or the profile has no effect: hpcrun sets it "
                f"to {_MEETING[name]}"
            )
