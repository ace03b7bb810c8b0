"""cancel, hold and release: what is said of each run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.runs.cancel import Cancellation, CancelledRun
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.control import _cancel_text, _changed_text
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run

RUN = "20260102-030405-train-0a1b"


@pytest.mark.parametrize(
    ("job_id", "text"),
    [
        ("7", "hpcrun: job 7 has already ended: FAILED"),
        (None, "hpcrun: run 20260102-030405-train-0a1b has already ended: FAILED"),
    ],
)
def test_a_run_without_a_job_id_is_named_by_its_run_id(job_id: str | None, text: str) -> None:
    ended = RunStatus(run(job_id=job_id), Path(), LastStatus("FAILED", 500.0, final=True))
    parts = list(_cancel_text(Cancellation([], [ended]), [], summary=False))
    assert [line for part in parts for line in part.lines] == [text]


@pytest.mark.parametrize(
    ("job_id", "status", "is_live", "text"),
    [
        (
            "7",
            LastStatus("RUNNING", 500.0),
            True,
            "job 7 is RUNNING: only a pending job can be held",
        ),
        ("7", LastStatus("PENDING", 500.0), False, "Slurm does not know job 7"),
        ("7", LastStatus("PENDING", 500.0), True, "job 7 has no pending elements"),
        ("7", LastStatus("FAILED", 500.0, final=True), False, "job 7 has already ended: FAILED"),
        (None, LastStatus("SUBMITTING", 500.0), False, f"run {RUN} has no job id yet: SUBMITTING"),
        (None, LastStatus("PENDING", 500.0), False, f"run {RUN} has no job id yet: PENDING"),
    ],
)
def test_hold_says_why_a_run_was_not_held(
    job_id: str | None, status: LastStatus, is_live: bool, text: str
) -> None:
    item = RunStatus(run(job_id=job_id), Path(), status, live=is_live)
    parts = list(_changed_text([], [item], "held"))
    assert [line for part in parts for line in part.lines] == [f"hpcrun: {text}"]


def test_cancel_says_what_the_scheduler_lists_afterwards() -> None:
    item = RunStatus(run(job_id="7"), Path(), LastStatus("RUNNING", 500.0))
    runs = [CancelledRun(item, "gone"), CancelledRun(item, "ending"), CancelledRun(item, "unknown")]
    [part] = [
        part for part in _cancel_text(Cancellation(runs, []), [], summary=False) if part.lines
    ]
    assert list(part.lines) == [
        "cancelled  job 7, run 20260102-030405-train-0a1b",
        "being cancelled  job 7, run 20260102-030405-train-0a1b",
    ]
