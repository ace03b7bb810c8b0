"""cancel: only jobs that the scheduler lists, each with a mark in its folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.runs.cancel import change_runs, check_listed
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import NotFoundError, SchedulerError
from hpcrun.job.run_paths import JobFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Verb
from tests.unit.builders import ports, run

RUNNING = LastStatus("RUNNING", 500.0)
DONE = LastStatus("COMPLETED", 500.0, final=True)


class Queue:
    """A scheduler that writes down which jobs it cancels, or refuses."""

    def __init__(self, refusal: str = "") -> None:
        self.cancelled: list[str | None] = []
        self.refusal = refusal

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        assert verb == "cancel"
        if self.refusal:
            raise SchedulerError(self.refusal)
        self.cancelled += [job.job_id for job in jobs]


def item(
    folder: Path, job_id: str | None, status: LastStatus = RUNNING, *, live: bool = True
) -> RunStatus:
    """A run whose folder exists, and whether the scheduler lists its job."""
    place = folder / f"20260102-030405-train-{job_id}"
    place.mkdir()
    return RunStatus(run(place.name, job_id=job_id), place, status, live=live)


def cancel(
    folder: Path, queue: Queue, *items: RunStatus
) -> tuple[list[RunStatus], list[RunStatus]]:
    """The runs that were cancelled, and the others."""
    return change_runs("cancel", items, ports(RunStore(folder), queue, 2000.0))


def is_marked(item: RunStatus) -> bool:
    return JobFolder(item.folder).cancelled.exists()


def test_nothing_is_cancelled_while_an_ended_run_may_have_been_requeued(tmp_path: Path) -> None:
    queue = Queue()
    listed = item(tmp_path, "70")
    ended = replace(item(tmp_path, "71", DONE, live=False), unconfirmed=True)
    with pytest.raises(SchedulerError, match="COMPLETED, but may have been requeued"):
        cancel(tmp_path, queue, listed, ended)
    assert queue.cancelled == []


def test_the_mark_of_an_earlier_cancel_is_renewed(tmp_path: Path) -> None:
    listed = item(tmp_path, "70")
    mark = JobFolder(listed.folder).cancelled
    mark.touch()
    os.utime(mark, (500.0, 500.0))
    cancel(tmp_path, Queue(), listed)
    assert mark.stat().st_mtime > 500.0


def test_a_listed_job_is_cancelled_and_marked(tmp_path: Path) -> None:
    queue = Queue()
    listed = item(tmp_path, "70")
    assert cancel(tmp_path, queue, listed) == ([listed], [])
    assert queue.cancelled == ["70"]
    assert is_marked(listed)


def test_a_job_that_no_list_shows_is_left_alone(tmp_path: Path) -> None:
    """Its id may be that of another job by now."""
    queue = Queue()
    unlisted = item(tmp_path, "70", live=False)
    assert cancel(tmp_path, queue, unlisted) == ([], [unlisted])
    assert queue.cancelled == []
    assert not is_marked(unlisted)


def test_of_several_runs_the_listed_ones_are_cancelled(tmp_path: Path) -> None:
    queue = Queue()
    unlisted = item(tmp_path, "70", live=False)
    listed = item(tmp_path, "71")
    over = item(tmp_path, "72", DONE, live=False)
    assert cancel(tmp_path, queue, unlisted, listed, over) == ([listed], [unlisted, over])
    assert queue.cancelled == ["71"]


def test_a_run_that_has_ended_is_over_although_it_is_listed(tmp_path: Path) -> None:
    queue = Queue()
    over = item(tmp_path, "70", DONE)
    assert cancel(tmp_path, queue, over) == ([], [over])
    assert queue.cancelled == []


def test_nothing_is_cancelled_while_a_run_has_no_job_id(tmp_path: Path) -> None:
    queue = Queue()
    with pytest.raises(SchedulerError, match="train-None has no job id yet"):
        cancel(tmp_path, queue, item(tmp_path, "70"), item(tmp_path, None, live=False))
    assert queue.cancelled == []


def test_a_job_that_slurm_does_not_cancel_has_no_mark(tmp_path: Path) -> None:
    listed = item(tmp_path, "70")
    with pytest.raises(SchedulerError, match="Access denied"):
        cancel(tmp_path, Queue("Access denied"), listed)
    assert not is_marked(listed)


def test_the_mark_of_an_earlier_cancellation_stays(tmp_path: Path) -> None:
    listed = item(tmp_path, "70")
    JobFolder(listed.folder).cancelled.touch()
    with pytest.raises(SchedulerError):
        cancel(tmp_path, Queue("Access denied"), listed)
    assert is_marked(listed)


def test_where_all_runs_are_listed_there_is_no_error() -> None:
    check_listed([])


@pytest.mark.parametrize("job_ids", [("70",), ("70", "71")])
def test_each_run_that_no_list_shows_is_named(tmp_path: Path, job_ids: Sequence[str]) -> None:
    unlisted = [item(tmp_path, job_id, live=False) for job_id in job_ids]
    with pytest.raises(NotFoundError) as refused:
        check_listed(unlisted)
    assert refused.value.message.splitlines() == [
        f"Slurm does not know job {each.run.job_id}: nothing was cancelled (run {each.run.run_id})"
        for each in unlisted
    ]
    assert refused.value.hint == f"hpcrun status {unlisted[0].run.run_id}"
