"""cancel: the text about runs that have already ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.control import _cancel_text
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
