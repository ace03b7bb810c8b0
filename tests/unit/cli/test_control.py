"""cancel, hold and release: the text about runs that do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.control import _cancel_text, _changed_text
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run


@pytest.mark.parametrize(
    ("job_id", "text"),
    [
        ("7", "hpcrun: job 7 has already ended: FAILED"),
        (None, "hpcrun: run 20260102-030405-train-0a1b has already ended: FAILED"),
    ],
)
def test_a_run_without_a_job_id_is_named_by_its_run_id(job_id: str | None, text: str) -> None:
    ended = RunStatus(run(job_id=job_id), Path(), LastStatus("FAILED", 500.0, final=True))
    parts = list(_cancel_text([], [ended], [], summary=False))
    assert [line for part in parts for line in part.lines] == [text]


@pytest.mark.parametrize(
    ("job_id", "text"),
    [
        ("7", "hpcrun: job 7 is SUBMITTING, not pending"),
        (None, "hpcrun: run 20260102-030405-train-0a1b is SUBMITTING, not pending"),
    ],
)
def test_a_run_without_a_job_id_is_named_by_its_run_id_by_hold(
    job_id: str | None, text: str
) -> None:
    submitting = RunStatus(run(job_id=job_id), Path(), LastStatus("SUBMITTING", 500.0))
    parts = list(_changed_text([], [submitting], "held"))
    assert [line for part in parts for line in part.lines] == [text]
