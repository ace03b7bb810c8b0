"""What a new run has to do with earlier ones: which it waits for, continues, or repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import PlanError, UsageError
from hpcrun.job import state
from hpcrun.job.after import After, Dependency, fulfils
from hpcrun.job.plan import Plan
from hpcrun.runs.lineage import share_checkpoints, share_code
from hpcrun.runs.store import RunStore

if TYPE_CHECKING:
    from hpcrun.actions.status.status import RunStatus, Schedulers


@dataclass(frozen=True, slots=True)
class Earlier:
    """A run from which another has something."""

    run_id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class ChainLink:
    """The place of a run in a chain.

    Attributes:
        number: 1 for the first.
        first: run id of the first; None in the first itself.
    """

    number: int
    links: int
    first: str | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a new run has to do with earlier ones; nothing, unless it says otherwise.

    Attributes:
        after: the runs it waits for.
        checkpoints: the run in whose folder of checkpoints it goes on.
        code: the run whose snapshot of the code it uses.
        resubmitted_from: the run whose request it repeats.
    """

    after: tuple[Dependency, ...] = ()
    link: ChainLink | None = None
    checkpoints: Earlier | None = None
    code: Earlier | None = None
    resubmitted_from: str | None = None

    def record(self, run_id: str) -> dict[str, Any]:
        """Return the fields of the run's record that say so."""
        link = self.link
        return {
            "after": [asdict(item) for item in self.after],
            "chain": link and {"link": link.number, "links": link.links, "first": link.first or run_id},
            "resubmitted_from": self.resubmitted_from,
            "checkpoints_of": self.checkpoints.run_id if self.checkpoints else None,
            "code_of": self.code.run_id if self.code else None,
        }

    def fill(self, folder: Path, elements: Sequence[int] = (0,)) -> None:
        """Link the new run's folder to what it has from earlier ones.

        Args:
            elements: those of the run; each goes on from the checkpoints of its own.

        Raises:
            OSError: it could not be done.
        """
        if self.checkpoints:
            for element in elements:
                share_checkpoints(folder, self.checkpoints.folder, element)
        if self.code:
            share_code(folder, self.code.folder)


def check_can_wait(plan: Plan, option: str) -> None:
    """Refuse to let a job wait that cannot.

    Raises:
        PlanError: this machine starts jobs at once.
        UsageError: --sbatch sets a dependency of its own, which would be overridden.
    """
    if plan.scheduler != "slurm":
        raise PlanError(
            f"{option} needs Slurm: a job of profile {plan.profile!r} starts at once",
            hint="--follow or --wait waits until a job ends; --requeue N requeues it",
        )
    if plan.directive("dependency"):
        raise UsageError(f"{option} and the directive 'dependency' cannot be combined", hint="use --after alone")


def resolve_after(
    asked: Sequence[After], *, store: RunStore, schedulers: Schedulers, host: str, now_s: float
) -> tuple[tuple[Dependency, ...], list[str]]:
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
    from hpcrun.actions.runs.find import find_run
    from hpcrun.actions.status.status import get_status  # few jobs wait for another

    found = [find_run(item.word, store) for item in asked]
    cluster = schedulers("slurm").cluster()
    for item in found:
        run = item.run
        if run.scheduler != "slurm":
            raise PlanError(f"--after {run.run_id}: it is a local run of host {run.host}, which Slurm cannot wait for")
        if cluster is not None and run.cluster not in (None, cluster):
            raise PlanError(f"--after {run.run_id}: it is on cluster {run.cluster}, and this is {cluster}")
    ids = list(dict.fromkeys(item.run.run_id for item in found))
    result = get_status(ids, store=store, schedulers=schedulers, host=host, now_s=now_s)
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
