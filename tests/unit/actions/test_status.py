"""Statuses from run folders, with this machine as the scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.actions.patience import ask_patiently
from hpcrun.actions.status import RunStatus, get_status, last_known
from hpcrun.errors import SchedulerError
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.local import LocalScheduler
from tests.unit.given import run, write

RUN_ID = "20260102-030405-train-0a1b"


def a_run(folder: Path, job_id: str | None = None) -> RunStore:
    store = RunStore(folder)
    store.create(run(RUN_ID, scheduler="local", host="here", cluster=None, job_id=job_id), "")
    return store


def status(store: RunStore, now_s: float) -> RunStatus:
    (only,) = get_status([RUN_ID], store=store, schedulers=lambda _: LocalScheduler(), host="here", now_s=now_s).runs
    return only


def test_a_run_of_which_no_job_came_says_what_sbatch_said(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    write(store.folder(RUN_ID) / "sbatch.err", "sbatch: error: first\nsbatch: error: Invalid qos\n")
    found = status(store, 5000.0).status
    assert (found.state, found.final) == ("NOT_SUBMITTED", True)
    assert "sbatch said: sbatch: error: Invalid qos" in (found.reason or "")
    assert store.active_ids() == []


def test_a_run_without_a_job_that_starts_after_all_is_known_again(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    assert status(store, 5000.0).status.state == "NOT_SUBMITTED"
    record = json.dumps({"job_id": "4711", "host": "node1", "started": 6000.0})
    write(store.folder(RUN_ID) / "elements/0/attempts/0/start", record)
    found = status(store, 6001.0)
    assert (found.status.state, found.run.job_id) == ("RUNNING", "4711")
    assert store.load(RUN_ID).job_id == "4711"
    assert store.active_ids() == [RUN_ID]


def test_a_marker_of_a_run_that_is_over_goes(tmp_path: Path) -> None:
    store = a_run(tmp_path, "L1")
    store.save_status(RUN_ID, LastStatus("COMPLETED", 1.0, final=True))
    (tmp_path / "active" / RUN_ID).touch()
    assert status(store, 2.0).status.state == "COMPLETED"
    assert store.active_ids() == []


def test_what_was_last_known_is_said_without_asking(tmp_path: Path) -> None:
    store = a_run(tmp_path, "4711")
    (only,) = last_known([RUN_ID, "nosuch"], store=store, now_s=2000.0).runs
    assert (only.status.state, only.stale) == ("PENDING", True)
    store.save_status(RUN_ID, LastStatus("RUNNING", 1500.0))
    (only,) = last_known([RUN_ID], store=store, now_s=2000.0).runs
    assert (only.status.state, only.status.asked_s, only.stale) == ("RUNNING", 1500.0, True)


def failing() -> int:
    raise SchedulerError("away")


@pytest.mark.parametrize(("ask", "raises"), [(lambda: 7, False), (failing, True)])
def test_a_quick_answer_is_just_the_answer(ask: Callable[[], int], raises: bool) -> None:
    said: list[str] = []
    if raises:
        with pytest.raises(SchedulerError, match="away"):
            ask_patiently(ask, 20, lambda: said.append("late"))
    else:
        assert ask_patiently(ask, 20, lambda: said.append("late")) == (7, False)
    assert said == []
