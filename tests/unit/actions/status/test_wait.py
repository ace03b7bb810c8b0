"""When a run that is waited for is over: by its script's own word first."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status import wait
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.wait import Pauses, Waiter, answers_of, ends_of
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

ATTEMPTS = "elements/0/attempts"


def ended(folder: Path, attempt: int = 0, *, signal: str = "", again: bool = False) -> None:
    """An attempt that has ended."""
    start = {"job_id": "4711", "host": "node1", "started": 1000.0}
    write(folder / ATTEMPTS / str(attempt) / "start", json.dumps(start))
    record = {
        "status": 0,
        "signal": signal,
        "ended": 1500.0,
        "message": "",
        "reason": "",
        "again": again,
    }
    write(folder / ATTEMPTS / str(attempt) / "exit", json.dumps(record))


def waiter(
    folder: Path, state: str = "RUNNING", **tell: Any
) -> tuple[Callable[[], bool], list[str]]:
    """Whether a run is over, by a scheduler that says the same at any time, and the answers of
    that.
    """
    asked: list[str] = []

    def ask() -> RunStatus:
        asked.append(state)
        return RunStatus(run(), folder, LastStatus(state, time.time(), final=state != "RUNNING"))

    return Waiter(folder, ask, **tell).over(), asked


def test_a_script_that_says_that_it_has_ended_is_enough(tmp_path: Path) -> None:
    is_over, asked = waiter(tmp_path)
    assert not is_over()
    ended(tmp_path)
    assert is_over()
    assert asked == []  # the controller had nothing to do with it


@pytest.mark.parametrize(("signal", "again"), [("", True), ("TERM", False), ("TERM", True)])
def test_an_attempt_that_is_started_again_or_was_signalled_is_not_the_end(
    tmp_path: Path, signal: str, again: bool
) -> None:
    is_over, _ = waiter(tmp_path)
    ended(tmp_path, signal=signal, again=again)
    assert not is_over()
    ended(tmp_path, 1)  # the next attempt goes to its end
    assert is_over()


@pytest.mark.parametrize("mark", ["cancelled", "elements/0/cancelled"])
def test_a_cancelled_script_that_says_that_it_was_signalled_has_ended(
    tmp_path: Path, mark: str
) -> None:
    is_over, _ = waiter(tmp_path)
    ended(tmp_path, signal="TERM")
    assert not is_over()
    write(tmp_path / mark, "")
    assert is_over()


def test_a_wait_goes_on_while_slurm_has_requeued_the_job_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(tmp_path)
    now = [1000.0]
    monkeypatch.setattr("hpcrun.actions.status.wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "hpcrun.actions.status.wait.time.sleep", lambda pause_s: now.append(now.pop() + pause_s)
    )
    states = ["COMPLETING", *["PENDING"] * 100, *["RUNNING"] * 100, "COMPLETED"]

    def poll() -> RunStatus:
        shown = states.pop(0)
        return RunStatus(run(), tmp_path, LastStatus(shown, now[0], final=shown == "COMPLETED"))

    assert Waiter(tmp_path, poll).wait().status.state == "COMPLETED"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in the list's only place; nothing is left to chance."""
    now = [1000.0]
    monkeypatch.setattr("hpcrun.actions.status.wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "hpcrun.actions.status.wait.random.uniform", lambda low, high: (low + high) / 2
    )
    return now


def test_the_scheduler_is_asked_about_a_job_that_left_no_word(
    tmp_path: Path, clock: list[float]
) -> None:
    is_over, asked = waiter(tmp_path, "CANCELLED")
    clock[0] += wait.ASK_FIRST_S - 0.1
    assert not is_over()
    assert asked == []
    clock[0] += 0.2
    assert is_over()
    assert asked == ["CANCELLED"]


def test_the_scheduler_is_asked_soon_at_first_and_then_twice_a_minute(
    tmp_path: Path, clock: list[float]
) -> None:
    is_over, asked = waiter(tmp_path)
    counts = []
    for _ in range(10):
        for _ in range(120):
            clock[0] += 0.5
            assert not is_over()
        counts.append(len(asked))
    assert 8 <= counts[0] <= 12
    assert counts[-1] - counts[0] == 18


def test_it_is_asked_at_once_where_the_records_have_changed(
    tmp_path: Path, clock: list[float]
) -> None:
    is_over, asked = waiter(tmp_path)
    clock[0] += 600
    assert not is_over()
    clock[0] += 1
    assert not is_over()
    assert len(asked) == 1
    ended(tmp_path, signal="TERM")  # it does not know by whom
    assert not is_over()
    clock[0] += 1.5
    assert not is_over()
    assert len(asked) == 3


def test_each_answer_is_told_while_the_run_goes_on(tmp_path: Path, clock: list[float]) -> None:
    told: list[str] = []
    for state in ("RUNNING", "CANCELLED"):
        is_over, _ = waiter(tmp_path, state, tell=lambda item: told.append(item.status.state))
        clock[0] += 600
        assert is_over() == (state == "CANCELLED")
    assert told == ["RUNNING"]


def test_the_questions_of_many_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("hpcrun.actions.status.wait.time.monotonic", lambda: now_s)
    times: list[float] = []
    for _ in range(100):
        now_s = 1000.0
        pauses = wait.Pauses()
        now_s += wait.FIRST_S
        pauses.next()
        while not pauses.are_over():
            now_s += 0.1
        times.append(now_s)
    assert max(times) - min(times) > wait.ASK_EVERY_S / 4


def test_status_watch_looks_again_where_a_run_s_records_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, slept = 1000.0, 0
    monkeypatch.setattr("hpcrun.actions.status.wait.time.monotonic", lambda: now_s)
    store = RunStore(tmp_path)
    known = run()
    folder = store.create(known, "#!/bin/bash\n")

    def sleep(seconds: float) -> None:
        nonlocal now_s, slept
        now_s, slept = now_s + seconds, slept + 1
        if slept == 3:
            ended(folder)

    monkeypatch.setattr("hpcrun.actions.status.wait.time.sleep", sleep)
    changes = wait.Changes(store, 15)
    assert not changes.wait()
    assert now_s == 1003.0
    changes.wait()
    assert 13 <= now_s - 1003 <= 17  # squeue is called again
    for _ in range(20):
        changes.wait()
    before = now_s
    changes.wait()
    assert 27 <= now_s - before <= 34  # it has become quiet


def test_a_runs_folder_that_cannot_be_read_for_a_while_ends_no_wait(tmp_path: Path) -> None:
    tmp_path.joinpath("active").write_text("no folder")
    store = RunStore(tmp_path)
    with pytest.raises(PlanError, match="cannot read the runs folder"):
        store.active_ids()
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 3

    assert wait.Changes(store, 15, pause=pause).wait()
    assert len(pauses) == 3


def test_a_quick_answer_is_just_the_answer() -> None:
    def failing() -> int:
        raise SchedulerError("away")

    assert list(answers_of(lambda: 7, 20)) == [7]
    with pytest.raises(SchedulerError, match="away"):
        next(answers_of(failing, 20))


def test_before_a_late_answer_comes_none() -> None:
    may_answer = threading.Event()
    answers = answers_of(may_answer.wait, 0.01)
    assert next(answers) is None
    may_answer.set()
    assert list(answers) == [True]


def waiting(*states: str) -> list[Waiter]:
    """Waiters for runs in these states, whose folders have no records."""
    waiters = []
    for state in states:
        status = LastStatus(state, 1.0, final=state != "RUNNING")
        poll = partial(RunStatus, run(), Path("/none"), status)
        waiters.append(Waiter(Path("/none"), poll))
    return waiters


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("states", "first", "places"),
    [
        (["COMPLETED", "FAILED"], False, [0, 1]),
        (["RUNNING", "FAILED"], True, [1]),
        (["RUNNING", "FAILED"], False, [1]),
        (["RUNNING"], True, []),
    ],
    ids=["all", "first", "late", "none"],
)
def test_each_run_that_ends_in_time_is_told(
    states: list[str], first: bool, places: list[int]
) -> None:
    ends = list(ends_of(waiting(*states), within_s=0.01, first=first))
    assert [place for place, _ in ends] == places


@pytest.mark.parametrize(
    ("age_s", "pause_s"),
    [(0.0, 1.0), (2.0, 1.0), (10.0, 5.0), (59.0, 29.5), (60.0, 30.0), (600.0, 30.0)],
)
def test_the_pauses_grow_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, age_s: float, pause_s: float
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("hpcrun.actions.status.wait.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("hpcrun.actions.status.wait.random.uniform", lambda *_: 1.0)
    pauses = Pauses()
    now_s[0] += age_s
    pauses.next()
    now_s[0] += pause_s - 0.01
    assert not pauses.are_over()
    now_s[0] += 0.01
    assert pauses.are_over()
    pauses.begin()
    assert pauses.are_over()
