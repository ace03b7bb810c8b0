"""When a run that is waited for is over: by its script's own word first."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpcrun.actions import wait
from hpcrun.actions.status import RunStatus
from hpcrun.actions.wait import Waiter
from hpcrun.runs.record import LastStatus
from tests.unit.given import run, write

ATTEMPTS = "elements/0/attempts"


def ended(folder: Path, attempt: int = 0, *, signal: str = "", again: bool = False) -> None:
    """An attempt that has ended."""
    start = {"job_id": "4711", "host": "node1", "started": 1000.0}
    write(folder / ATTEMPTS / str(attempt) / "start", json.dumps(start))
    record = {"status": 0, "signal": signal, "ended": 1500.0, "message": "", "reason": "", "again": again}
    write(folder / ATTEMPTS / str(attempt) / "exit", json.dumps(record))


def waiter(folder: Path, state: str = "RUNNING", asked: list[str] | None = None) -> Waiter:
    """A waiter whose scheduler says the same at any time."""

    def ask() -> RunStatus:
        if asked is not None:
            asked.append(state)
        return RunStatus(run(), folder, LastStatus(state, time.time(), final=state != "RUNNING"))

    return Waiter(folder, ask, ask)


def test_a_script_that_says_that_it_has_ended_is_enough(tmp_path: Path) -> None:
    asked: list[str] = []
    is_over = waiter(tmp_path, asked=asked).over()
    assert not is_over()
    ended(tmp_path)
    assert is_over()
    assert asked == []  # the controller had nothing to do with it


@pytest.mark.parametrize(("signal", "again"), [("", True), ("TERM", False), ("TERM", True)])
def test_an_attempt_that_is_started_again_or_was_signalled_is_not_the_end(
    tmp_path: Path, signal: str, again: bool
) -> None:
    is_over = waiter(tmp_path).over()
    ended(tmp_path, signal=signal, again=again)
    assert not is_over()
    ended(tmp_path, 1)  # the next attempt goes to its end
    assert is_over()


def test_the_scheduler_is_asked_now_and_then_about_a_job_that_left_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("hpcrun.actions.wait.time.monotonic", lambda: now_s)
    asked: list[str] = []
    is_over = waiter(tmp_path, "CANCELLED", asked).over()
    now_s += wait.ASK_EVERY_S - 0.1
    assert not is_over()
    assert asked == []
    now_s += 0.2
    assert is_over()
    assert asked == ["CANCELLED"]
