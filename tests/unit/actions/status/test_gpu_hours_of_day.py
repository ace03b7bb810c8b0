"""The GPU-hours of a day, and the lock for their limit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.ports import Ports
from hpcrun.actions.status import gpu_hours_of_day
from hpcrun.actions.status.gpu_hours_of_day import UnknownUseError, alone_in_day, hours_of_day
from hpcrun.actions.status.past_jobs import JobTime, PastJob, job_record
from hpcrun.errors import PlanError
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.local import LocalScheduler
from tests.unit import builders

NOW_S = 1_800_000_000.0
HOUR_S = 3600.0
RUN_ID = "20270115-000000-train-0a1b"


def ports(folder: Path, *lists: Path) -> Ports:
    """A process with a runs folder, and the lists of runs folders that it knows."""
    whole = builders.ports(RunStore(folder), builders.Takes(), 1000.0)
    return replace(whole, run_lists=lambda _: lists)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_hours_of_day, "_LOCK_WAIT_S", 0.0)


def test_one_process_at_a_time_whatever_its_variables_say(tmp_path: Path) -> None:
    first = ports(tmp_path / "a", tmp_path / "moved/list", tmp_path / "home/list")
    second = ports(tmp_path / "b", tmp_path / "home/list")
    refusal = pytest.raises(PlanError, match=f"it holds {tmp_path}/home/list.lock")
    with alone_in_day(first, tmp_path), refusal, alone_in_day(second, tmp_path):
        pass
    with alone_in_day(second, tmp_path):
        pass


def test_the_runs_folder_has_the_lock_where_a_home_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    here = ports(tmp_path / "runs", tmp_path / "home/list")
    refusal = pytest.raises(PlanError, match=f"it holds {tmp_path}/runs/")
    with alone_in_day(here, tmp_path), refusal, alone_in_day(here, tmp_path):
        pass


def hours(folder: Path) -> float:
    """The GPU-hours of the last day, with this runs folder alone."""
    ports = builders.ports(RunStore(folder), LocalScheduler(), NOW_S)
    return hours_of_day(replace(ports, run_lists=lambda _: []), folder)


def ran(folder: Path, *, from_h: float, to_h: float, final: bool = True, **said: Any) -> None:
    """A run of two GPUs that ran between these hours before now."""
    store = RunStore(folder)
    values = {"scheduler": "local", "cluster": None, "host": "here", "nodes": 1, **said}
    place = store.create(builders.run(RUN_ID, **values), "")
    start_s = NOW_S - from_h * HOUR_S
    end_s = NOW_S - to_h * HOUR_S
    attempt = place / "elements/0/attempts/0"
    started = {"job_id": "4711", "host": "n1", "started": start_s}
    builders.write(attempt / "start", json.dumps(started))
    if final:
        ended = {"status": 0, "signal": "", "ended": end_s}
        builders.write(attempt / "exit", json.dumps(ended))
        store.save_status(RUN_ID, LastStatus("COMPLETED", end_s, final=True))


def noted(folder: Path, hours: object = 8.0, *, ago_h: float = 1.0, action: str = "submit") -> None:
    """A line about a submission."""
    time_s = NOW_S - ago_h * HOUR_S
    line = {"action": action, "time_s": time_s, "run_ids": [RUN_ID]}
    builders.write(
        folder / "actions.jsonl", json.dumps({**line, "gpu_hours_with_requeues": hours}) + "\n"
    )


def test_a_folder_without_runs_has_used_nothing(tmp_path: Path) -> None:
    assert hours(tmp_path) == 0


@pytest.mark.parametrize(
    ("from_h", "to_h", "used"), [(3, 1, 4.0), (26, 1, 46.0), (30, 24, 0.0)], ids=str
)
def test_what_an_ended_run_used_in_the_last_day_counts(
    tmp_path: Path, from_h: float, to_h: float, used: float
) -> None:
    ran(tmp_path, from_h=from_h, to_h=to_h)
    assert hours(tmp_path) == pytest.approx(used)


def test_an_ended_run_that_was_noted_counts_once(tmp_path: Path) -> None:
    ran(tmp_path, from_h=3, to_h=1)
    noted(tmp_path)
    assert hours(tmp_path) == pytest.approx(4.0)


def test_the_hours_of_a_submission_without_a_run_count_for_a_day(tmp_path: Path) -> None:
    noted(tmp_path, 8.0, ago_h=24.0)
    assert hours(tmp_path) == 8.0
    noted(tmp_path, 8.0, ago_h=24.1)
    assert hours(tmp_path) == 0
    noted(tmp_path, 8.0, action="cancel")
    assert hours(tmp_path) == 0


@pytest.mark.parametrize("unknown", [None, -1, "8"])
def test_a_submission_of_unknown_hours_is_refused(tmp_path: Path, unknown: object) -> None:
    noted(tmp_path, unknown)
    with pytest.raises(UnknownUseError, match=RUN_ID) as refused:
        hours(tmp_path)
    assert refused.value.hint == "it cannot be read, and counts for 24 hours"


def test_a_removed_run_counts_by_the_line_of_its_removal(tmp_path: Path) -> None:
    times = (JobTime(NOW_S - 3 * HOUR_S, NOW_S - HOUR_S),)
    job = PastJob("train", "/p", "lab", "h100", "alpha", 8, 64, times, "completed", NOW_S - HOUR_S)
    removal = {"action": "clean", "time_s": NOW_S, "scheduler": "local", "text": "train"}
    removal |= {"run_ids": [RUN_ID], "jobs": [job_record(replace(job, run_id=RUN_ID))]}
    noted(tmp_path, 100.0)
    with (tmp_path / "actions.jsonl").open("a") as file:
        file.write(json.dumps(removal) + "\n")
    assert hours(tmp_path) == pytest.approx(16.0)


def test_a_run_whose_record_is_damaged_is_refused(tmp_path: Path) -> None:
    ran(tmp_path, from_h=3, to_h=1)
    builders.write(tmp_path / RUN_ID / "run.json", "{")
    with pytest.raises(UnknownUseError, match=RUN_ID) as refused:
        hours(tmp_path)
    assert refused.value.hint == (f"its record cannot be read; mend or remove {tmp_path / RUN_ID}")
    noted(tmp_path, 8.0)
    assert hours(tmp_path) == 8.0


@pytest.mark.parametrize(("at_most", "times", "used"), [(10.0, 0, 10.0), (10.0, 1, 20.0)])
def test_a_run_that_has_not_ended_reserves_what_it_may_use(
    tmp_path: Path, at_most: float, times: int, used: float
) -> None:
    plan = {"requeue": {"times": times}}
    ran(tmp_path, from_h=3, to_h=0, final=False, gpu_hours_at_most=at_most, plan=plan)
    assert hours(tmp_path) == pytest.approx(used)


def test_a_run_that_may_use_more_than_is_known_is_refused(tmp_path: Path) -> None:
    ran(tmp_path, from_h=3, to_h=0, final=False)
    with pytest.raises(UnknownUseError, match=RUN_ID) as refused:
        hours(tmp_path)
    assert refused.value.hint == f"until it ends: hpcrun cancel {RUN_ID}"
    noted(tmp_path, 9.0)
    assert hours(tmp_path) == pytest.approx(9.0)
