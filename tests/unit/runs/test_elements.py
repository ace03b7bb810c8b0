"""The records of elements: which attempts have begun, and whether the newest was cancelled."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job import postmortem
from hpcrun.runs.elements import all_records, records_of
from tests.unit.builders import write


@pytest.mark.parametrize("mark", ["cancelled", "elements/0/cancelled"])
@pytest.mark.parametrize(
    ("marked_s", "is_cancelled"),
    [
        pytest.param(150.0, False, id="before the newest attempt"),
        pytest.param(250.0, True, id="while it runs"),
    ],
)
def test_a_mark_of_cancel_counts_for_the_attempt_in_which_it_was_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    marked_s: float,
    is_cancelled: bool,
) -> None:
    for number, started_s in ((0, 100.0), (1, 200.0)):
        record = {"job_id": "4711", "host": "n", "started": started_s}
        start = write(tmp_path / f"elements/0/attempts/{number}/start", json.dumps(record))
        os.utime(start, (started_s, started_s))
    os.utime(write(tmp_path / mark, ""), (marked_s, marked_s))
    assert records_of(tmp_path).cancelled is is_cancelled
    assert all_records(tmp_path, [0])[0].cancelled is is_cancelled
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("HPCRUN_ELEMENT", "0")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path / "elements/0/attempts/1"))
    assert postmortem._is_cancelled() is is_cancelled


def test_an_element_that_has_not_begun_is_cancelled_by_a_mark_of_any_time(tmp_path: Path) -> None:
    os.utime(write(tmp_path / "cancelled", ""), (150.0, 150.0))
    assert records_of(tmp_path).cancelled
    assert all_records(tmp_path, [0])[0].cancelled
