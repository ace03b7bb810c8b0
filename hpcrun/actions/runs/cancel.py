"""cancel: end runs, each with the scheduler it lives in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from hpcrun.actions.ports import Ports, Schedulers
from hpcrun.actions.runs.allocation import unlisted_words
from hpcrun.actions.runs.find import FoundElement
from hpcrun.actions.status.run_status import RunStatus, element_of, element_row
from hpcrun.actions.status.status import get_status
from hpcrun.errors import NotFoundError, SchedulerError
from hpcrun.job import state
from hpcrun.job.layout import JobFolder, RunFolder
from hpcrun.journal import kept_in
from hpcrun.schedulers.protocol import JobRef, Scheduler


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of the runs that were to be cancelled."""

    cancelled: tuple[RunStatus, ...] = ()  # the scheduler was asked to cancel their jobs
    over: tuple[RunStatus, ...] = ()  # over already
    # nothing was done, since the scheduler does not list their jobs, or cannot be asked from here
    unlisted: tuple[RunStatus, ...] = ()


def cancel_runs(runs: Sequence[RunStatus], ports: Ports) -> Cancelled:
    """Cancel runs that are not over.

    Only jobs that the scheduler has just listed as those of these runs: another job may have the id by now.
    """
    over = tuple(item for item in runs if item.status.final)
    unlisted = tuple(item for item in runs if not item.status.final and not item.live)
    cancelled = tuple(item for item in runs if not item.status.final and item.live)
    for item in unlisted:
        if item.run.job_id is None:
            raise _no_job_id(item)
    for name in sorted({item.run.scheduler for item in cancelled}):
        mine = [item for item in cancelled if item.run.scheduler == name]
        cancel_jobs(ports.schedulers(name), [JobRef(item.folder, item.run.job_id) for item in mine])
    return Cancelled(cancelled, over, unlisted)


def check_listed(unlisted: Sequence[RunStatus]) -> None:
    """Refuse runs of which nothing was cancelled."""
    if unlisted:
        lines = [f"{unlisted_words(item)}: nothing was cancelled (run {item.run.run_id})" for item in unlisted]
        raise NotFoundError("\n".join(lines), hint=f"hpcrun status {unlisted[0].run.run_id}")


def cancel_elements(item: RunStatus, indices: Sequence[int], *, schedulers: Schedulers) -> tuple[list[int], list[int]]:
    """Cancel elements of a sweep that are not over.

    Returns:
        those that were cancelled, and those that were over already.
    """
    known = {element.index: element for element in item.elements}
    going = [index for index in indices if not known[index].status.final]
    if going and item.run.job_id is None:
        raise _no_job_id(item)
    live = [index for index in going if known[index].live]
    if live:
        refs = [JobRef(RunFolder(item.folder).element(index).path, known[index].job_id) for index in live]
        cancel_jobs(schedulers(item.run.scheduler), refs)
    check_listed([element_row(item, known[index]) for index in going if index not in live])
    return live, [index for index in indices if index not in going]


def _no_job_id(item: RunStatus) -> SchedulerError:
    return SchedulerError(
        f"{item.run.run_id} has no job id yet: sbatch has not answered", hint="run hpcrun status until it has a job id"
    )


def cancel_jobs(scheduler: Scheduler, refs: Sequence[JobRef]) -> None:
    """Cancel jobs that the scheduler lists, and note it in the folders of their runs."""
    folders = [JobFolder(ref.folder) for ref in refs]
    # for later, when the scheduler has forgotten why the job ended
    marks = [folder.cancelled for folder in folders if not folder.cancelled.exists()]
    for mark in marks:
        with suppress(OSError):
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch(0o600)
    try:
        with ExitStack() as stack:
            for run_folder in {folder.run for folder in folders}:
                stack.enter_context(kept_in(RunFolder(run_folder).journal, "cancel"))
            scheduler.cancel(refs)
    except SchedulerError:
        for mark in marks:
            with suppress(OSError):
                mark.unlink()
        raise


@dataclass(frozen=True, slots=True)
class HoldResult:
    """What became of the runs that were to be held or released."""

    changed: tuple[RunStatus, ...] = ()  # the scheduler has held or released their jobs
    others: tuple[RunStatus, ...] = ()  # they are not pending: nothing was done


def hold_runs(found: Sequence[FoundElement], ports: Ports, *, release: bool) -> HoldResult:
    """Hold or release the pending jobs of runs, or of elements of sweeps.

    Only jobs that the scheduler has just listed as those of these runs: another job may have the id by now.
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
