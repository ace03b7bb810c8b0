"""hpcrun wait: what it says of runs that have not ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.wait import waiter_for
from hpcrun.cli.context import Context
from hpcrun.cli.wait import _failure, _json_of, _now, _Result
from hpcrun.errors import NotFoundError
from hpcrun.explain.first_line import Ending
from hpcrun.runs.record import LastStatus
from tests.unit import builders


def test_a_run_that_was_removed_while_it_was_waited_for_is_told(tmp_path: Path) -> None:
    context = Context({"HPCRUN_RUNS": str(tmp_path / "runs")}, tmp_path)
    run = builders.run(scheduler="local", cluster=None, host=context.host, job_id="L1")
    folder = context.store.create(run, "#!/bin/bash\n")
    waiter = waiter_for(run.run_id, context.ports)
    [status] = _now([waiter], [0], context)
    assert status.run.run_id == run.run_id
    shutil.rmtree(folder)
    with pytest.raises(NotFoundError, match=run.run_id):
        _now([waiter], [0], context)


def result(state: str, job_id: str = "7", line: str = "", element: int | None = None) -> _Result:
    """A run in this state."""
    final = state not in ("PENDING", "RUNNING")
    status = LastStatus(state, 500.0, final=final, elapsed_s=60)
    item = RunStatus(builders.run(job_id=job_id), Path(), status, element=element)
    return _Result(item, Ending(line))


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (result("COMPLETED"), "job 7 COMPLETED after 00:01:00"),
        (
            result("FAILED", line="rank 1: KeyError"),
            "job 7 FAILED after 00:01:00: rank 1: KeyError",
        ),
        (result("RUNNING"), "job 7 RUNNING for 00:01:00"),
    ],
    ids=["completed", "failed", "running"],
)
def test_what_became_of_a_run_is_one_line(one: _Result, line: str) -> None:
    assert one.line(600.0) == line


@pytest.mark.parametrize(
    ("results", "message", "hint", "exit_code"),
    [
        (
            [result("FAILED")],
            "job 7 did not complete",
            "hpcrun explain 7",
            7,
        ),
        (
            [result("COMPLETED"), result("FAILED", "8"), result("FAILED", "9")],
            "2 runs of 3 did not complete",
            "hpcrun explain 8",
            7,
        ),
        (
            [result("RUNNING")],
            "the time of 5m is over before the end of job 7",
            "hpcrun wait --timeout 5m 7",
            8,
        ),
        (
            [result("RUNNING"), result("FAILED", "8"), result("PENDING", "9")],
            "the time of 5m is over before the end of 2 runs of 3",
            "hpcrun wait --timeout 5m 7 9",
            8,
        ),
        (
            [result("FAILED", element=3)],
            "job 20260102-030405-train-0a1b/3 did not complete",
            "hpcrun explain 20260102-030405-train-0a1b/3",
            7,
        ),
    ],
    ids=["one failed", "two failed", "late", "two late", "element"],
)
def test_the_failure_says_which_runs_are_meant(
    results: list[_Result], message: str, hint: str, exit_code: int
) -> None:
    failure = _failure(results, "5m", is_met=False)
    assert failure is not None
    assert (failure.message, failure.hint) == (message, hint)
    assert failure.exit_code == exit_code


def test_runs_that_go_on_are_no_failure_where_one_was_enough() -> None:
    assert _failure([result("RUNNING"), result("COMPLETED", "8")], "5m", is_met=True) is None
    assert _failure([result("COMPLETED")], None, is_met=False) is None


def test_the_document_has_the_runs_in_the_order_of_the_command() -> None:
    runs = _json_of({1: result("FAILED", "8"), 0: result("RUNNING", element=2)})["runs"]
    assert [(run["job_id"], run["element"], run["final"]) for run in runs] == [
        ("7", 2, False),
        ("8", None, True),
    ]
