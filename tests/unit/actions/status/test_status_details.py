"""status --verbose: the last output and metrics of a run, and the advice to request less time."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_details import last_line, last_metrics, time_advice
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write

HOUR = 3600


@pytest.mark.parametrize(
    ("state", "ran_s", "limit_s", "advised"),
    [
        ("COMPLETED", 899, 3604, True),
        ("COMPLETED", 901, 3604, False),
        ("COMPLETED", 899, 3600, False),
        ("COMPLETED", 60, 24 * HOUR, True),
        ("FAILED", 60, 24 * HOUR, False),
        ("COMPLETED", None, 24 * HOUR, False),
        ("COMPLETED", 60, None, False),
    ],
)
def test_a_quarter_of_a_long_limit_is_little(
    state: str, ran_s: int | None, limit_s: int | None, advised: bool
) -> None:
    status = LastStatus(state, 0.0, elapsed_s=ran_s, limit_s=limit_s)
    assert bool(time_advice(status)) is advised


def started(folder: Path, **files: str) -> RunStatus:
    attempt = RunFolder(folder).element(0).attempt(0)
    write(attempt.start, '{"job_id": "4711", "host": "n0", "started": 1.0}')
    if "out" in files:
        write(attempt.rank_log(0, "out"), files["out"])
    if "metrics" in files:
        write(attempt.rank_metrics(0), files["metrics"])
    return RunStatus(run(), folder, LastStatus("RUNNING", 500.0))


def test_a_run_that_has_not_started_has_no_output(tmp_path: Path) -> None:
    pending = RunStatus(run(), tmp_path, LastStatus("PENDING", 500.0))
    assert last_line(pending) is None
    assert last_metrics(pending) == {}


def test_the_last_line_is_that_of_rank_0(tmp_path: Path) -> None:
    assert last_line(started(tmp_path, out="one\ntwo\n")) == "two"


def test_an_empty_log_has_no_last_line(tmp_path: Path) -> None:
    assert last_line(started(tmp_path, out="")) is None


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ('{"loss": 1}\n{"loss": 0.5, "step": 3}\n', {"loss": 0.5, "step": 3}),
        ('{"loss": 1}\n{"loss": 0.', {"loss": 1}),
        ('{"loss": 1, "name": "a", "more": [1]}\n', {"loss": 1, "name": "a"}),
        ("x\ny\n", {}),
        ("", {}),
    ],
    ids="last incomplete plain no-metrics empty".split(),
)
def test_the_last_whole_metrics_are_shown(
    tmp_path: Path, text: str, metrics: dict[str, object]
) -> None:
    assert last_metrics(started(tmp_path, metrics=text)) == metrics


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert last_metrics(started(tmp_path)) == {}
