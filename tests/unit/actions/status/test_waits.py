"""For which runs a run waits, and when it can never start."""

from __future__ import annotations

import pytest

from hpcrun.actions.status.run_status import NEVER, never_started, waits_of
from hpcrun.runs.record import LastStatus
from tests.unit.given import run

FIRST = "20260101-000000-first-0000"
LAST = "20260101-000000-last-0000"
AFTER = [
    {"run_id": FIRST, "job_id": "1", "condition": "ok", "over": False},
    {"run_id": LAST, "job_id": "2", "condition": "fail", "over": False},
]


def names(state: str, *, final: bool = False, **states: str | None) -> list[str]:
    """The runs that one waits for, each of which is in a state; a state in capitals with a star is not final."""

    def status_of(run_id: str) -> LastStatus | None:
        word = states["first" if run_id == FIRST else "last"]
        return None if word is None else LastStatus(word.rstrip("*"), 0, final=not word.endswith("*"))

    status = LastStatus(state, 0, final=final)
    return [f"{wait.name} {wait.state}" for wait in waits_of(run(after=AFTER), status, status_of)]


def test_a_waiting_run_waits_for_what_is_not_fulfilled() -> None:
    assert names("PENDING", first="RUNNING*", last=None) == ["first RUNNING", "last UNKNOWN"]
    assert names("PENDING", first="COMPLETED", last="RUNNING*") == ["last RUNNING"]
    assert names("PENDING", first="COMPLETED", last="FAILED") == []
    assert names("RUNNING", first="RUNNING*", last="RUNNING*") == []


def test_a_cancelled_run_names_what_it_could_not_wait_for() -> None:
    assert names("CANCELLED", final=True, first="FAILED", last="RUNNING*") == ["first FAILED"]
    assert names("CANCELLED", final=True, first="RUNNING*", last="RUNNING*") == []


@pytest.mark.parametrize(("first", "ends"), [("FAILED", True), ("RUNNING*", False), ("COMPLETED", False)])
def test_a_run_that_slurm_forgot_was_cancelled_where_it_could_not_start(first: str, ends: bool) -> None:
    def status_of(run_id: str) -> LastStatus:
        return LastStatus(first.rstrip("*"), 0, final=not first.endswith("*"))

    status = LastStatus("UNKNOWN", 0)
    judged = never_started(status, waits_of(run(after=AFTER[:1]), status, status_of))
    assert judged == (LastStatus("CANCELLED", 0, final=True, reason=NEVER) if ends else status)
