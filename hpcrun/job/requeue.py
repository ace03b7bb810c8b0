"""Requeue and restart: how often, after which events, and how long before the time limit a job is warned."""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.errors import UsageError
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.job.units import format_time

EARLY_S = 60
"""Slurm may send the warning up to a minute early (sbatch(1), --signal)."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """How a job continues after an interruption.

    Attributes:
        times: how often it may be requeued; 0 if it is only warned.
        warn_s: seconds between the warning and the time limit.
        grace_s: seconds that the ranks have for a checkpoint after the warning; the rest is for the requeue.
        on_failure: a failure of the program itself is also a reason.
        exclude_bad_nodes: the failed node is not used again.
        expedite: after a node failure Slurm requeues it before all other jobs.
        restarts: how often it may be restarted in its allocation, without the queue.
        spares: additional nodes that replace failed nodes.
    """

    times: int
    warn_s: int
    on_failure: bool = False
    exclude_bad_nodes: bool = False
    expedite: bool = False
    restarts: int = 0
    spares: int = 0

    @property
    def grace_s(self) -> int:
        """Seconds between the warning and the moment when ranks that continue are killed."""
        return self.warn_s - min(20, self.warn_s // 3)


def decide_requeue(request: JobRequest, profile: Profile) -> Requeue | None:
    """Return how an interrupted job continues; None if neither the request nor the profile sets this.

    Raises:
        UsageError: an option needs --requeue.
    """
    times = profile.requeue.times if request.requeue is None else request.requeue
    restarts = profile.requeue.restarts if request.restarts is None else request.restarts
    spares = _spares(request, profile, restarts)
    if times == 0 and restarts == 0:
        for option, given in (
            ("--retry-on-failure", request.retry_on_failure),
            ("--exclude-bad-nodes", request.exclude_bad_nodes),
        ):
            if given:
                raise UsageError(
                    f"{option} has no effect without --requeue or --restarts",
                    hint="add --requeue N: N further attempts",
                )
        if request.warn_s is None:
            return None
    warn_s = request.warn_s or profile.requeue.warn
    expedite = times > 0 and profile.requeue.expedite
    return Requeue(times, warn_s, request.retry_on_failure, request.exclude_bad_nodes, expedite, restarts, spares)


def _spares(request: JobRequest, profile: Profile, restarts: int) -> int:
    spares = request.spares
    if spares is None:
        return profile.requeue.spares if restarts and profile.scheduler == "slurm" else 0
    if spares and profile.scheduler != "slurm":
        raise UsageError("--spares needs Slurm: this machine has no other nodes", hint="leave it out")
    if spares and not restarts:
        raise UsageError(
            "--spares has no effect without --restarts", hint="add --restarts N: N restarts in the same allocation"
        )
    return spares


def check_warning(requeue: Requeue | None, walltime_s: int | None) -> None:
    """Refuse a warning that could come before the ranks listen.

    Raises:
        UsageError: it does not fit into the time limit.
    """
    if requeue is None or walltime_s is None or requeue.warn_s + EARLY_S < walltime_s:
        return
    raise UsageError(
        f"a signal {requeue.warn_s} s before the end (--warn) does not fit into a time limit of "
        f"{format_time(walltime_s)}: "
        f"Slurm may send it {EARLY_S} s early",
        hint=f"ask for --time {format_time(-(-(requeue.warn_s + EARLY_S + 1) // 60) * 60)} or more, "
        "or for a later warning with --warn",
    )
