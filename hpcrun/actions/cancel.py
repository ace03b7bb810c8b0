"""cancel: end runs, each with the scheduler it lives in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hpcrun.actions.status import RunStatus, Schedulers
from hpcrun.errors import SchedulerError
from hpcrun.runs.elements import CANCELLED_MARK, element_folder
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef


def cancel_runs(
    runs: Sequence[RunStatus], *, store: RunStore, schedulers: Schedulers
) -> tuple[list[RunStatus], list[RunStatus]]:
    """Cancel runs that are not over.

    Returns:
        those that were told to end, and those that were over already.

    Raises:
        SchedulerError: a scheduler refused or is away, or a run cannot be reached from here.
    """
    over = [item for item in runs if item.status.final]
    live = [item for item in runs if not item.status.final]
    for item in live:
        if item.run.job_id is None:
            raise SchedulerError(
                f"{item.run.run_id} has no job id yet: sbatch has not answered",
                hint="hpcrun status shows when it has one",
            )
    for name in sorted({item.run.scheduler for item in live}):
        mine = [item for item in live if item.run.scheduler == name]
        # a note for later, when the scheduler has forgotten why the job ended
        with _marked([store.folder(item.run.run_id) / CANCELLED_MARK for item in mine]):
            schedulers(name).cancel([JobRef(item.folder, item.run.job_id) for item in mine])
    return live, over


def cancel_elements(item: RunStatus, indices: Sequence[int], *, schedulers: Schedulers) -> tuple[list[int], list[int]]:
    """Cancel elements of a sweep that are not over.

    Returns:
        those that were told to end, and those that were over already.

    Raises:
        SchedulerError: the scheduler refused or is away, or the sweep has no job id yet.
    """
    known = {element.index: element for element in item.elements}
    live = [index for index in indices if not known[index].status.final]
    if live and item.run.job_id is None:
        raise SchedulerError(
            f"{item.run.run_id} has no job id yet: sbatch has not answered", hint="hpcrun status shows when it has one"
        )
    if live:
        refs = [JobRef(element_folder(item.folder, index), known[index].job_id) for index in live]
        with _marked([ref.folder / CANCELLED_MARK for ref in refs]):
            schedulers(item.run.scheduler).cancel(refs)
    return live, [index for index in indices if index not in live]


@contextmanager
def _marked(marks: Sequence[Path]) -> Iterator[None]:
    """Note that jobs are cancelled before they are, and take it back where the scheduler did not do it."""
    made = [mark for mark in marks if not mark.exists()]
    for mark in made:
        with suppress(OSError):
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch()
    try:
        yield
    except SchedulerError:
        for mark in made:
            with suppress(OSError):
                mark.unlink()
        raise
