"""--after: the runs that a new one waits for."""

from __future__ import annotations

from collections.abc import Sequence

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.find import find_run
from hpcrun.actions.status.status import RunStatus, get_status
from hpcrun.errors import PlanError
from hpcrun.job import state
from hpcrun.job.after import After, Dependency, fulfils


def resolve_after(asked: Sequence[After], ports: Ports) -> tuple[tuple[Dependency, ...], list[str]]:
    """Find the runs to wait for.

    Slurm forgets a job soon after its end: whether a run that is over is what was waited for, its own record says.

    Returns:
        the runs, and notes where a word could have meant another.

    Raises:
        NotFoundError, UsageError: no such run, or several.
        PlanError: it cannot be waited for, or has ended otherwise.
        SchedulerError: the scheduler is away.
    """
    if not asked:
        return (), []
    found = [find_run(item.word, ports.store) for item in asked]
    cluster = ports.schedulers("slurm").cluster()
    for item in found:
        run = item.run
        if run.scheduler != "slurm":
            raise PlanError(f"--after {run.run_id}: it is a local run of host {run.host}, which Slurm cannot wait for")
        if cluster is not None and run.cluster not in (None, cluster):
            raise PlanError(f"--after {run.run_id}: it is on cluster {run.cluster}, and this is {cluster}")
    ids = list(dict.fromkeys(item.run.run_id for item in found))
    result = get_status(ids, ports)
    if result.away:
        raise result.away
    known = {item.run.run_id: item for item in result.runs}
    after = tuple(_dependency(known[item.run.run_id], asked) for item, asked in zip(found, asked, strict=True))
    return after, [item.note for item in found if item.note]


def _dependency(item: RunStatus, asked: After) -> Dependency:
    run, status = item.run, item.status
    dependency = Dependency(run.run_id, run.job_id, asked.condition, over=status.final)
    if status.final and not fulfils(status.state, asked.condition):
        raise PlanError(
            f"--after {asked.word}:{asked.condition}: the job would never start, since {run.run_id} has ended: "
            f"{status.state}",
            hint=f"--after {asked.word}:any starts it after any end",
        )
    if not status.final and status.state == state.UNKNOWN:
        raise PlanError(f"--after {asked.word}: the state of {run.run_id} is unknown: {status.reason}",
                        hint="hpcrun status polls again; without --after the job does not wait")  # fmt: skip
    if not status.final and run.job_id is None:
        raise PlanError(f"--after {asked.word}: {run.run_id} has no job id yet: sbatch has not answered",
                        hint="run hpcrun status until it has a job id")  # fmt: skip
    return dependency
