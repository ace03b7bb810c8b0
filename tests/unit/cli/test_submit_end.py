"""The end of a submitted job, and of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submission import SubmitResult
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.cli.output import Outcome
from hpcrun.cli.submit_end import how_it_ended, run_end, sweep_end
from hpcrun.runs.record import LastStatus
from tests.unit import builders
from tests.unit.builders import run, write


@pytest.mark.parametrize(
    ("reason", "exit_status", "text"),
    [
        ("NonZeroExitCode", 3, "job 4711 FAILED (exit status 3) after 00:01:00"),
        ("NonZeroExitCode", None, "job 4711 FAILED (NonZeroExitCode) after 00:01:00"),
        ("OutOfMemory", 3, "job 4711 FAILED (OutOfMemory) after 00:01:00"),
        (None, 3, "job 4711 FAILED after 00:01:00"),
    ],
)
def test_the_exit_status_takes_the_place_of_slurm_s_reason_for_it(
    reason: str | None, exit_status: int | None, text: str
) -> None:
    status = LastStatus(
        "FAILED", 500.0, final=True, reason=reason, exit_status=exit_status, elapsed_s=60
    )
    assert how_it_ended(RunStatus(run(), Path(), status)) == text


pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context({"HPCRUN_RUNS": str(tmp_path / "runs")}, tmp_path)


def submitted(context: Context, status: LastStatus, **said: Any) -> SubmitResult:
    """A run of this machine with this last status."""
    values = {"scheduler": "local", "cluster": None, "host": context.host, "job_id": "L7", **said}
    made = run(**values)
    folder = context.store.create(made, "")
    context.store.save_status(made.run_id, status)
    plan = builders.plan(builders.laptop(), gpus="0")
    prepared = Prepared(cast("Any", None), cast("Any", None), plan, "")
    return SubmitResult(prepared, made, folder)


def ended(state: str, **said: Any) -> LastStatus:
    return LastStatus(state, 500.0, final=True, elapsed_s=60, **said)


def texts(outcome: Outcome) -> list[str]:
    """The lines for a person: the notes, then the text."""
    parts = [*outcome.notes, *(outcome.text() if outcome.text else ())]
    return [line for part in parts for line in part.lines]


def test_a_run_that_has_completed_is_no_failure(context: Context) -> None:
    outcome = run_end(submitted(context, ended("COMPLETED")), context, follow=False)
    assert outcome.failure is None
    assert texts(outcome) == ["hpcrun: job L7 COMPLETED after 00:01:00"]


def test_a_run_that_has_failed_names_its_explanation(context: Context) -> None:
    status = ended("FAILED", exit_status=3, reason="NonZeroExitCode")
    outcome = run_end(submitted(context, status), context, follow=False)
    assert outcome.failure is not None
    assert outcome.failure.message == "job L7 FAILED (exit status 3) after 00:01:00"
    assert outcome.failure.hint == "hpcrun explain L7"


def test_the_end_of_the_stderr_of_the_failed_rank_is_shown(context: Context) -> None:
    result = submitted(context, ended("FAILED", exit_status=1))
    attempt = result.folder / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "L7", "host": "n1", "started": 400.0}))
    write(attempt / "exit", json.dumps({"status": 1, "signal": "", "ended": 450.0}))
    end = {"rank": 2, "node": "n1", "status": 1, "ended": 440.0}
    write(attempt / "rank-2.exit", json.dumps(end))
    write(attempt / "rank-2.err", "one\nValueError: too small\n")
    outcome = run_end(result, context, follow=False)
    lines = texts(outcome)
    assert "ValueError: too small" in lines[0]
    assert lines[1:] == [
        "hpcrun: rank 2 ended with exit status 1; the end of its stderr:",
        "  one",
        "  ValueError: too small",
    ]
    assert outcome.document is not None
    document = outcome.document()
    assert document["rank"] == 2
    assert document["rank_exit_status"] == 1
    assert document["state"] == "FAILED"


def sweep(context: Context, *states: str) -> Outcome:
    """The end of a sweep whose elements ended in these states."""
    indices = f"0-{len(states) - 1}"
    rows = [[["lr", str(index)]] for index in range(len(states))]
    result = submitted(
        context,
        LastStatus("RUNNING", 500.0),
        request={"sweep": rows},
        plan={"sweep": {"indices": indices, "first": 0}},
    )
    for index, state in enumerate(states):
        job = result.folder / f"elements/{index}"
        status = 0 if state == "COMPLETED" else 1
        start = {"job_id": f"L7_{index}", "host": "n1", "started": 400.0}
        write(job / "attempts/0/start", json.dumps(start))
        write(job / "attempts/0/exit", json.dumps({"status": status, "signal": "", "ended": 450.0}))
        end = {"state": state, "ended": 450.0, "status": status, "signal": None, "reason": None}
        process = {"pid": 2, "start_ticks": 1, "boot_id": "x", "limit_s": 0}
        record = {**start, **process, **end}
        write(job / "supervisor.json", json.dumps(record))
    return sweep_end([result], context)


def test_a_sweep_of_completed_elements_is_no_failure(context: Context) -> None:
    outcome = sweep(context, "COMPLETED", "COMPLETED")
    assert outcome.failure is None
    assert texts(outcome) == ["hpcrun: job L7 COMPLETED (2 elements: 2 completed)"]


def test_the_failed_elements_of_a_sweep_are_counted(context: Context) -> None:
    outcome = sweep(context, "FAILED", "COMPLETED", "FAILED", "FAILED")
    assert outcome.failure is not None
    assert outcome.failure.message == "3 of 4 elements did not complete, numbers: 0,2-3"
    assert outcome.failure.hint == "hpcrun explain L7/0"


def test_at_most_ten_failed_elements_have_a_line(context: Context) -> None:
    outcome = sweep(context, *["FAILED"] * 12)
    lines = texts(Outcome(notes=outcome.notes))
    assert len(lines) == 10
    assert lines[0].startswith("hpcrun: train/0 FAILED: ")
