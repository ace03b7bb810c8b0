"""hold, release: keep pending runs from starting, and let them start again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.find import FoundElement
from hpcrun.actions.status.run_status import RunStatus, element_of
from hpcrun.actions.status.status import get_status
from hpcrun.job import state
from hpcrun.schedulers.protocol import JobRef


@dataclass(frozen=True, slots=True)
class HoldResult:
    """What became of the runs that were to be held or released.

    Attributes:
        changed: the scheduler has held or released their jobs.
        others: they are not pending: nothing was done.
    """

    changed: tuple[RunStatus, ...] = ()
    others: tuple[RunStatus, ...] = ()


def hold_runs(found: Sequence[FoundElement], ports: Ports, *, release: bool) -> HoldResult:
    """Hold or release the pending jobs of runs, or of elements of sweeps.

    Only jobs that the scheduler has just listed as those of these runs: another job may have the id by now.

    Raises:
        SchedulerError: a scheduler refused or is away.
    """
    result = get_status(list(dict.fromkeys(item.run.run_id for item in found)), ports)
    if result.away:
        raise result.away
    by_id = {item.run.run_id: item for item in result.runs}
    named = dict.fromkeys((each.run.run_id, each.element) for each in found)
    wanted = [row for run_id, index in named if (row := _row(by_id.get(run_id), index))]
    changed = tuple(item for item in wanted if _has_pending(item))
    for name in sorted({item.run.scheduler for item in changed}):
        mine = [JobRef(item.folder, item.run.job_id) for item in changed if item.run.scheduler == name]
        ports.schedulers(name).hold(mine, release=release)
    return HoldResult(changed, tuple(item for item in wanted if item not in changed))


def _row(item: RunStatus | None, index: int | None) -> RunStatus | None:
    return item if item is None or index is None else element_of(item, index)


def _has_pending(item: RunStatus) -> bool:
    """Whether the scheduler lists a job of a run, or of one of its elements, as pending."""
    statuses = [each.status for each in item.elements if each.live] if item.elements else [item.status]
    return item.live and item.run.job_id is not None and any(status.state == state.PENDING for status in statuses)
