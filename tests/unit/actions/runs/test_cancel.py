"""cancel: only jobs that the scheduler lists, each with a mark in its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.runs.cancel import Cancellation, Seen, cancel_runs, check_listed
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import NotFoundError, SchedulerError
from hpcrun.job.job_states import JobInfo
from hpcrun.job.run_paths import JobFolder, RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Verb
from tests.unit.builders import ports, run, write

RUNNING = LastStatus("RUNNING", 500.0)
DONE = LastStatus("COMPLETED", 500.0, final=True)


class Queue:
    """A scheduler that writes down which jobs it cancels, or refuses.

    Afterwards it lists jobs in these states, one for each look; the empty string is a job that is
    gone, "away" no answer.
    """

    name = "slurm"

    def __init__(self, refusal: str = "", after: Sequence[str] = ("",)) -> None:
        self.cancelled: list[str | None] = []
        self.refusal = refusal
        self.after = list(after)

    def cluster(self) -> str:
        return "alpha"

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        assert verb == "cancel"
        if self.refusal:
            raise SchedulerError(self.refusal)
        self.cancelled += [job.job_id for job in jobs]

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        state = self.after.pop(0) if len(self.after) > 1 else self.after[0]
        if state == "away":
            raise SchedulerError("Slurm does not respond")
        if not state:
            return {}
        return {job.folder: JobInfo(str(job.job_id), state, asked_s=2000.0) for job in jobs}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between the looks at what was cancelled, which take no time here."""
    pauses: list[float] = []
    monkeypatch.setattr("hpcrun.actions.runs.cancel.time.sleep", pauses.append)
    return pauses


def item(
    folder: Path, job_id: str | None, status: LastStatus = RUNNING, *, live: bool = True
) -> RunStatus:
    """A run in the store, and whether the scheduler lists its job."""
    store = RunStore(folder)
    record = run(f"20260102-030405-train-{job_id}", job_id=job_id)
    store.create(record, "")
    return RunStatus(record, store.folder(record.run_id), status, live=live)


def cancellation(folder: Path, queue: Queue, *items: RunStatus) -> Cancellation:
    """What became of these runs."""
    return cancel_runs(items, ports(RunStore(folder), queue, 2000.0))


def cancel(folder: Path, queue: Queue, *items: RunStatus) -> tuple[list[str], list[RunStatus]]:
    """The ids of the runs that were cancelled, and the other runs."""
    result = cancellation(folder, queue, *items)
    return [each.item.run.run_id for each in result.runs], result.others


def seen(folder: Path, *after: str) -> Seen:
    """What is seen of a cancelled job that the scheduler lists in these states afterwards."""
    [cancelled] = cancellation(folder, Queue(after=after), item(folder, "70")).runs
    return cancelled.seen


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
    assert cancel(tmp_path, queue, listed) == ([listed.run.run_id], [])
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
    assert cancel(tmp_path, queue, unlisted, listed, over) == (
        [listed.run.run_id],
        [unlisted, over],
    )
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


@pytest.mark.parametrize("state", ["COMPLETING", "STAGE_OUT"])
def test_a_job_whose_processes_are_still_being_terminated_is_being_cancelled(
    tmp_path: Path, state: str
) -> None:
    assert seen(tmp_path, state) == "ending"


@pytest.mark.parametrize("state", ["", "CANCELLED"])
def test_a_job_that_is_gone_or_ended_is_cancelled(tmp_path: Path, state: str) -> None:
    assert seen(tmp_path, state) == "gone"


def test_slurm_is_asked_again_while_a_job_goes_on_or_no_answer_comes(
    tmp_path: Path, pauses: list[float]
) -> None:
    assert seen(tmp_path, "RUNNING", "away", "CANCELLED") == "gone"
    assert pauses == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_that_is_listed_as_before_was_not_cancelled_and_has_no_mark(
    tmp_path: Path, state: str
) -> None:
    listed = item(tmp_path, "70")
    result = cancellation(tmp_path, Queue(after=[state]), listed)
    with pytest.raises(SchedulerError) as refused:
        result.check()
    assert refused.value.message == (f"job 70 was not cancelled: Slurm still lists it as {state}")
    assert not is_marked(listed)


@pytest.mark.parametrize(
    "queue", [Queue("Access denied"), Queue(after=["RUNNING"])], ids=["refused", "goes on"]
)
def test_an_older_mark_has_its_time_again_if_the_job_is_not_cancelled(
    tmp_path: Path, queue: Queue
) -> None:
    listed = item(tmp_path, "70")
    mark = JobFolder(listed.folder).cancelled
    mark.touch()
    os.utime(mark, (500.0, 500.0))
    with pytest.raises(SchedulerError):
        cancellation(tmp_path, queue, listed).check()
    assert mark.stat().st_mtime == 500.0


def test_what_became_of_a_job_is_unknown_while_slurm_does_not_respond(tmp_path: Path) -> None:
    listed = item(tmp_path, "70")
    result = cancellation(tmp_path, Queue(after=["away"]), listed)
    with pytest.raises(SchedulerError, match="job 70: scancel was accepted, but Slurm has not"):
        result.check()
    assert is_marked(listed)


def test_an_end_in_the_record_of_a_listed_job_is_no_end_of_its_processes(tmp_path: Path) -> None:
    listed = item(tmp_path, "70")
    attempt = RunFolder(listed.folder).element(0).attempt(0)
    write(attempt.start, json.dumps({"job_id": "70", "host": "n1", "started": 1500.0}))
    end = {"status": 143, "signal": "TERM", "ended": 2001.0, "how": ""}
    write(attempt.exit, json.dumps(end))
    [cancelled] = cancellation(tmp_path, Queue(after=["RUNNING"]), listed).runs
    assert (cancelled.seen, cancelled.item.status.state) == ("ending", "CANCELLED")


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
