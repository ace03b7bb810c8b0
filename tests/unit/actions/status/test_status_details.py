"""What an ended run could have asked for, and what a running one says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_details import last_line, last_metrics, time_advice
from hpcrun.runs.record import LastStatus
from hpcrun.views.details_text import bar_text
from tests.unit.builders import run, write


def test_too_long_a_limit_is_remarked_on(subtests: pytest.Subtests) -> None:
    for state, ran_s, limit_s, is_said in (
        ("COMPLETED", 7200, 172_800, True),
        ("COMPLETED", 7200, 9000, False),
        ("COMPLETED", 60, 3600, False),
        ("FAILED", 60, 172_800, False),
        ("COMPLETED", 60, None, False),
    ):
        with subtests.test(state=state):
            said = time_advice(LastStatus(state, 1.0, final=True, elapsed_s=ran_s, limit_s=limit_s))
            assert ["--time" in text for text in said] == [True] * is_said


def test_the_last_line_and_the_last_metrics_of_rank_0(tmp_path: Path) -> None:
    item = RunStatus(run(), tmp_path, LastStatus("RUNNING", 1.0))
    assert last_line(item) is None
    assert last_metrics(item) == {}
    attempt = tmp_path / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "1", "host": "n1", "started": 1.0}))
    assert last_line(item) is None
    assert last_metrics(item) == {}
    write(attempt / "rank-0.out", "first\nepoch 1: 10%\repoch 1: 20%\r\n\n")
    write(attempt / "rank-0.metrics", '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n{"st')
    assert last_line(item) == "epoch 1: 20%"
    os.utime(attempt / "rank-0.out", (1000.0, 1000.0))
    write(attempt / "rank-0.err", "INFO epoch 2\n")
    assert last_line(item) == "INFO epoch 2"  # of the stream that it wrote to last
    assert last_metrics(item) == {"step": 2, "loss": 0.25}


def test_a_bar_is_never_longer_than_it_is() -> None:
    assert bar_text(1800, 3600) == "██████████░░░░░░░░░░ 50%, 30:00 of 1:00:00"
    assert bar_text(9999, 3600).startswith("████████████████████ 100%")
    assert bar_text(-5, 3600).startswith("░░░░░░░░░░░░░░░░░░░░ 0%")
