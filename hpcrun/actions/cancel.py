"""cancel: end runs, each with the scheduler it lives in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from hpcrun.actions.status import CANCELLED_MARK, RunStatus, Schedulers
from hpcrun.errors import SchedulerError
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
        for item in mine:
            with suppress(OSError):  # a note for later, when the scheduler has forgotten why the job ended
                (store.folder(item.run.run_id) / CANCELLED_MARK).touch()
        schedulers(name).cancel([JobRef(item.folder, item.run.job_id) for item in mine])
    return live, over
