"""How a job continues after an interruption: requeues, restarts, spare nodes, and the warning."""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.errors import UsageError
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest, option_of
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import format_time

EARLY_S = 60  # Slurm may send the warning up to a minute early (sbatch(1), --signal)


@dataclass(frozen=True, slots=True)
class Requeue:
    """How a job continues after an interruption."""

    times: int  # how often it may be requeued; 0 if it is only warned
    warn_s: int  # seconds between the warning and the time limit
    on_failure: bool = False  # a failure of the program itself is also a reason
    exclude_bad_nodes: bool = False  # the failed node is not used again
    expedite: bool = False  # after a node failure Slurm requeues it before all other jobs
    restarts: int = 0  # how often it may be restarted in its allocation, without the queue
    spares: int = 0  # additional nodes that replace failed nodes

    @property
    def grace_s(self) -> int:
        """Seconds between the warning and the moment when ranks that continue are killed."""
        return self.warn_s - min(20, self.warn_s // 3)


def decide_requeue(request: JobRequest, profile: Profile) -> Requeue | None:
    """Return how an interrupted job continues.

    The result is None if neither the request nor the profile sets this.

    Raises:
        UsageError: an option has no effect on this machine, or without ``--requeue`` or
            ``--restarts``.
    """
    times = request.requeue
    if times is None:
        times = profile.requeue.times
    restarts = request.restarts
    if restarts is None:
        restarts = profile.requeue.restarts
    spares = _decide_spares(request, profile, restarts)
    if times == 0 and restarts == 0:
        for field in ("retry_on_failure", "exclude_bad_nodes"):
            if getattr(request, field):
                raise UsageError(
                    f"{option_of(field)} has no effect without {spell('requeue')} or "
                    f"{spell('restarts')}",
                    hint=f"add {spell('requeue', 'N')}: N further attempts",
                )
        if request.warn_s is None:
            return None
    warn_s = request.warn_s or profile.requeue.warn
    expedite = times > 0 and profile.requeue.expedite
    return Requeue(
        times,
        warn_s,
        request.retry_on_failure,
        request.exclude_bad_nodes,
        expedite,
        restarts,
        spares,
    )


def _decide_spares(request: JobRequest, profile: Profile, restarts: int) -> int:
    """Return the number of additional nodes that replace failed nodes.

    Raises:
        UsageError: spare nodes have no effect.
    """
    spares = request.spares
    if spares is None:
        can_use_spares = restarts > 0 and profile.scheduler == "slurm"
        return profile.requeue.spares if can_use_spares else 0
    if spares and profile.scheduler != "slurm":
        raise UsageError(
            f"{spell('spares')} needs Slurm: this machine has no other nodes", hint="leave it out"
        )
    if spares and not restarts:
        raise UsageError(
            f"{spell('spares')} has no effect without {spell('restarts')}",
            hint=f"add {spell('restarts', 'N')}: N restarts in the same allocation",
        )
    return spares


def check_warning(requeue: Requeue | None, walltime_s: int | None) -> None:
    """Check that a warning cannot come before the ranks listen.

    Raises:
        UsageError: the time limit is too short for the warning.
    """
    if requeue is None or walltime_s is None or requeue.warn_s + EARLY_S < walltime_s:
        return
    minutes = -(-(requeue.warn_s + EARLY_S + 1) // 60)
    hint = f"ask for {spell('time', format_time(minutes * 60))} or more"
    later_s = (walltime_s - EARLY_S) // 2
    if later_s > 0:
        hint += f", or for a later warning: {spell('warn', f'{later_s}s')}"
    raise UsageError(
        f"a signal {requeue.warn_s} s before the end ({spell('warn')}) does not fit into a time "
        f"limit of {format_time(walltime_s)}: Slurm may send it {EARLY_S} s early",
        hint=hint,
    )
