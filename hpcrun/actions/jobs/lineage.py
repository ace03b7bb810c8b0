"""What a new run has to do with earlier ones: which it waits for, continues, or repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.after import Dependency
from hpcrun.job.plan import Plan
from hpcrun.runs.snapshot import share_checkpoints, share_code


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
