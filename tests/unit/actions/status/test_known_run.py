"""An end that is known yields to a newer attempt: Slurm lists the job again, or its script ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.clean_runs import CleanChoice, CleanPlan, plan_clean, still_going
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import SchedulerError
from hpcrun.job.job_states import JobInfo
from hpcrun.runs.elements import load_statuses, save_statuses
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from tests.unit.builders import ports, run, write

RUN_ID = "20260102-030405-train-0a1b"
SWEEP: dict[str, Any] = {
    "plan": {"sweep": {"indices": "0-1", "first": 0}},
    "request": {"sweep": [[["x", "1"]], [["x", "2"]]]},
}
ENDED_S = 110.0


@dataclass
class Queue:
    """Slurm's queue, and one run that it knows."""

    store: RunStore
    jobs: dict[str, JobInfo] = field(default_factory=dict)
    is_away: bool = False
    queries: list[list[str | None]] = field(default_factory=list)

    def cluster(self) -> str:
        return "alpha"

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        if jobs:
            self.queries.append([job.job_id for job in jobs])
        if jobs and self.is_away:
            raise SchedulerError("away")
        return {job.folder: self.jobs[job.job_id] for job in jobs if job.job_id in self.jobs}

    def lists(self, state: str, asked_s: float, elapsed_s: int = 1, job_id: str = "4711") -> None:
        self.jobs[job_id] = JobInfo(job_id, state, asked_s=asked_s, elapsed_s=elapsed_s)

    def attempt(self, number: int, started_s: float, status: int | None = None) -> None:
        folder = self.store.folder(RUN_ID) / f"elements/0/attempts/{number}"
        start = {"job_id": "4711", "host": "n", "started": started_s}
        write(folder / "start", json.dumps(start))
        if status is not None:
            end = {"status": status, "signal": "", "ended": started_s + 1}
            write(folder / "exit", json.dumps(end))

    def status(self, now_s: float) -> RunStatus:
        ports_ = ports(self.store, self, now_s)
        (item,) = get_status([RUN_ID], ports_).runs
        return item

    def state(self, now_s: float) -> str:
        return self.status(now_s).status.state

    def clean(self, now_s: float) -> CleanPlan:
        choice = CleanChoice(named=True)
        return plan_clean([self.status(now_s)], choice, store=self.store, now_s=now_s)


def queue_of(folder: Path, **record: Any) -> Queue:
    store = RunStore(folder)
    store.create(run(RUN_ID, **record), "")
    return Queue(store)


@pytest.fixture
def ended(tmp_path: Path) -> Queue:
    """A run whose first attempt has failed, and that Slurm still lists."""
    queue = queue_of(tmp_path)
    queue.attempt(0, 100.0, 3)
    queue.lists("FAILED", ENDED_S)
    assert queue.state(ENDED_S) == "FAILED"
    assert queue.store.active_ids() == []
    return queue


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "CONFIGURING"])
def test_a_run_that_slurm_has_requeued_after_its_end_is_not_over(ended: Queue, state: str) -> None:
    ended.lists(state, 120.0, 0)
    status = ended.status(120.0).status
    assert (status.state, status.final) == (state, False)
    assert (status.attempt, status.before) == (1, "exit status 3")
    assert ended.store.active_ids() == [RUN_ID]


@pytest.mark.parametrize(
    ("state", "elapsed_s", "shown"),
    [
        pytest.param("RUNNING", 60, "FAILED", id="Slurm has not noticed the end"),
        pytest.param("COMPLETING", 60, "FAILED", id="its processes end"),
        pytest.param("RUNNING", 5, "RUNNING", id="its allocation is newer"),
    ],
)
def test_a_run_that_slurm_lists_as_running_is_over_if_its_allocation_is_older_than_the_end(
    ended: Queue, state: str, elapsed_s: int, shown: str
) -> None:
    ended.lists(state, 130.0, elapsed_s)
    assert ended.state(130.0) == shown


def test_an_answer_from_before_the_end_voids_nothing(ended: Queue) -> None:
    ended.lists("PENDING", ENDED_S - 1, 0)
    assert ended.state(115.0) == "FAILED"


def test_a_second_attempt_that_has_ended_as_well_decides(ended: Queue) -> None:
    ended.attempt(1, 120.0, 0)
    ended.lists("COMPLETED", 130.0)
    assert ended.state(130.0) == "COMPLETED"


def test_a_second_attempt_that_ended_before_slurm_forgot_the_job_decides(ended: Queue) -> None:
    ended.attempt(1, 120.0, 0)
    ended.jobs.clear()
    assert ended.state(900.0) == "COMPLETED"


def test_a_run_that_slurm_has_forgotten_is_never_asked_about_again(ended: Queue) -> None:
    for now_s in (120.0, 130.0):
        ended.status(now_s)
    assert len(ended.queries) == 3
    ended.jobs.clear()
    assert ended.status(400.0).status.forgotten
    assert len(ended.queries) == 4
    for now_s in (410.0, 500.0):
        assert ended.state(now_s) == "FAILED"
    assert len(ended.queries) == 4


def test_the_end_of_a_run_is_shown_without_an_error_while_slurm_is_away(ended: Queue) -> None:
    ended.is_away = True
    result = get_status([RUN_ID], ports(ended.store, ended, 120.0))
    assert result.away is None
    assert result.runs[0].status.state == "FAILED"
    assert result.runs[0].unconfirmed
    ended.is_away = False
    assert not ended.status(130.0).unconfirmed


def test_an_element_of_a_sweep_that_is_requeued_opens_the_sweep_again(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, **SWEEP)
    folder = queue.store.folder(RUN_ID)
    end = LastStatus("FAILED", ENDED_S, final=True)
    save_statuses(folder, {0: end, 1: end})
    queue.store.save_status(RUN_ID, end)
    queue.lists("FAILED", 120.0, job_id="4711_0")
    queue.lists("PENDING", 120.0, 0, job_id="4711_1")
    item = queue.status(120.0)
    assert [each.status.state for each in item.elements] == ["FAILED", "PENDING"]
    assert item.status.final is False
    assert queue.store.active_ids() == [RUN_ID]
    assert queue.queries == [["4711_0", "4711_1"]]
    assert not load_statuses(folder)[1].final


def test_a_sweep_is_forgotten_with_its_last_element(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, **SWEEP)
    end = LastStatus("COMPLETED", ENDED_S, final=True)
    save_statuses(queue.store.folder(RUN_ID), {0: end, 1: end})
    queue.store.save_status(RUN_ID, end)
    queue.lists("COMPLETED", 120.0, job_id="4711_1")
    assert not queue.status(120.0).status.forgotten
    queue.jobs.clear()
    assert queue.status(130.0).status.forgotten
    queue.status(140.0)
    assert queue.queries == [["4711_0", "4711_1"], ["4711_1"]]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"scheduler": "local", "host": "here"}, id="of this machine"),
        pytest.param(
            {**SWEEP, "plan": {"sweep": {"indices": "0-1", "first": 0, "pack": 2}}}, id="a pack"
        ),
    ],
)
def test_a_run_that_nothing_can_requeue_is_not_asked_about_again(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    queue = queue_of(tmp_path, **record)
    queue.store.save_status(RUN_ID, LastStatus("FAILED", ENDED_S, final=True))
    assert queue.state(120.0) == "FAILED"
    assert queue.queries == []


def test_clean_keeps_a_run_that_could_have_been_requeued_while_slurm_is_away(
    ended: Queue,
) -> None:
    ended.is_away = True
    (kept,) = ended.clean(200.0).staying
    assert "may have been requeued" in (kept.kept or "")
    ended.is_away = False
    assert len(ended.clean(200.0).going) == 1
    ended.jobs.clear()
    ended.status(300.0)
    ended.is_away = True
    assert len(ended.clean(400.0).going) == 1


def test_clean_keeps_a_run_that_is_requeued_while_the_user_is_asked(ended: Queue) -> None:
    plan = ended.clean(200.0)
    assert len(plan.going) == 1
    ended.lists("PENDING", 250.0, 0)
    plan = still_going(plan, CleanChoice(), ports(ended.store, ended, 260.0))
    assert [candidate.kept for candidate in plan.staying] == ["it is PENDING"]
    assert plan.going == ()


def test_a_sibling_job_that_is_revoked_is_judged_by_the_records_of_the_run(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    queue.lists("REVOKED", 90.0, 0)
    assert not queue.status(90.0).status.final
    queue.attempt(0, 100.0)
    status = queue.status(105.0).status
    assert (status.state, status.reason) == ("RUNNING", "on another cluster of the federation")
    queue.attempt(0, 100.0, 0)
    assert queue.state(115.0) == "COMPLETED"
    assert not queue.store.active_ids()


def test_a_revoked_end_that_an_older_hpcrun_has_saved_is_none(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    queue.store.save_status(RUN_ID, LastStatus("REVOKED", 90.0, final=True))
    queue.attempt(0, 100.0)
    queue.lists("REVOKED", 105.0, 0)
    assert queue.state(105.0) == "RUNNING"
