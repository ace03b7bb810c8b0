"""The JSON documents of commands that change runs, and of how a run ended or why it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.cancel import Cancellation, CancelledRun, Seen
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.first_line import Ending
from hpcrun.job.job_states import OverLimit
from hpcrun.job.run_paths import RoleRanks
from hpcrun.runs.record import LastStatus
from hpcrun.views.changes_json import cancel_json, matches_json, pending_json
from hpcrun.views.end_json import end_json, waiting_json
from tests.unit.builders import run

RUN = {
    "run_id": "20260102-030405-train-0a1b",
    "name": "train",
    "job_id": "4711",
    "element": None,
}


def item(state: str, reason: str | None = None, *, final: bool = False, **said: Any) -> RunStatus:
    return RunStatus(
        run(), Path("/none"), LastStatus(state, 1.0, reason=reason, final=final), **said
    )


@pytest.mark.parametrize(
    ("seen", "result"),
    [("gone", "cancelled"), ("ending", "being cancelled"), ("going on", "going on")],
)
def test_the_result_of_a_cancellation_is_what_the_scheduler_lists(seen: Seen, result: str) -> None:
    cancelled = CancelledRun(item("CANCELLED", final=True), seen)
    document = cancel_json(Cancellation([cancelled], [item("RUNNING")]), [run(job_id="9")])
    assert document["kind"] == "cancel"
    state = {"state": "CANCELLED", "final": True, "reason": None}
    assert document["changed"] == [{**RUN, **state, "result": result}]
    assert [other["state"] for other in document["others"]] == ["RUNNING"]
    assert [waiting["job_id"] for waiting in document["may_start"]] == ["9"]


def test_runs_that_a_question_is_about_are_matches() -> None:
    document = matches_json("hold", [item("PENDING", "Priority")])
    state = {"state": "PENDING", "final": False, "reason": "Priority"}
    assert document == {"kind": "hold", "changed": [], "matches": [{**RUN, **state}]}


def test_held_runs_have_a_result_and_others_have_none() -> None:
    document = pending_json("hold", "held", [item("PENDING")], [item("RUNNING")])
    assert [changed["result"] for changed in document["changed"]] == ["held"]
    assert [(other["state"], other.get("result")) for other in document["others"]] == [
        ("RUNNING", None)
    ]


def test_an_end_names_its_cause_and_rank() -> None:
    failed = item("FAILED", "NonZeroExitCode", final=True, silent_s=61.9)
    role = RoleRanks("actor", 2, 4, 0, 1, "end")
    document = end_json(failed, Ending("out of memory", 1, role, 9))
    assert document["cause"] == "out of memory"
    assert document["rank"] == 1
    assert document["role"] == "actor"
    assert document["rank_exit_status"] == 9
    assert document["silent_s"] == 61


def test_an_end_of_unknown_cause_has_none() -> None:
    document = end_json(item("FAILED", final=True), Ending(""))
    assert document["cause"] is None
    assert document["role"] is None
    assert document["silent_s"] is None


LIMIT = OverLimit("QOS short", "gres/gpu", 8, 4, "you")


@pytest.mark.parametrize(
    ("waiting", "never", "words"),
    [
        pytest.param(item("PENDING", "DependencyNeverSatisfied"), True, "--after", id="never"),
        pytest.param(item("PENDING", "JobHeldUser"), False, "4711", id="held"),
        pytest.param(item("RUNNING", "JobHeldUser"), False, None, id="running"),
        pytest.param(item("PENDING", "nobody knows"), False, None, id="unknown"),
    ],
)
def test_a_pending_run_has_advice(waiting: RunStatus, never: bool, words: str | None) -> None:
    document = waiting_json(waiting)
    assert document["never_starts"] is never
    assert document["limit"] is None
    if words is None:
        assert document["advice"] is None
    else:
        assert words in document["advice"]
        assert "JOB" not in document["advice"]


def test_the_limit_that_a_job_alone_is_over_is_shown() -> None:
    document = waiting_json(item("PENDING", "QOSMaxGRESPerUser", over_limit=LIMIT))
    assert document["limit"] == {
        "holder": "QOS short",
        "what": "gres/gpu",
        "requested": 8,
        "allowed": 4,
        "whose": "you",
    }
    assert document["never_starts"] is True
