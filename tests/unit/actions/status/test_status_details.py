"""status --verbose: the last output and metrics of a run, and the advice to request less time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_details import (
    Insight,
    last_line,
    last_metrics,
    look_closer,
    time_advice,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.schedulers.pending_and_usage import SlurmQueue
from hpcrun.schedulers.slurm_text import SEPARATOR
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


QUEUED = ("4711", "gpu", "t", "me", "PENDING", "0:00", "1:00", "1", "Priority", "9", "N/A", "q", "")
ENDED = ("4711", "60", "00:24", "64", "cpu=64", "", "2", "", "sbatch /r/run/.submission_file_a.sh")


def slurm(folder: Path) -> SlurmQueue:
    """A Slurm that has job 4711 in its queue and in its accounting, and counts the questions."""
    answers = {
        "squeue": SEPARATOR.join(QUEUED),
        "sacct": SEPARATOR.join(ENDED),
        "scontrol": "",
        "sinfo": "",
    }
    for name, answer in answers.items():
        text = f"#!/bin/sh\necho {name} >>'{folder}/asked'\ncat <<'END'\n{answer}\nEND\n"
        write(folder / "bin" / name, text).chmod(0o755)
    return SlurmQueue({"PATH": f"{folder}/bin:/usr/bin:/bin"})


def asked_about(folder: Path, item: RunStatus) -> tuple[Insight, list[str]]:
    """What is known of a run besides its status, and the commands that said so."""
    seen = look_closer([item], slurm(folder), {}, inside=False)
    asked = folder / "asked"
    return seen, sorted(asked.read_text().split()) if asked.exists() else []


def item(state: str, *, stale: bool = False, scheduler: str = "slurm", **said: Any) -> RunStatus:
    status = LastStatus(state, 500.0, **said)
    return RunStatus(run(scheduler=scheduler), Path("/none"), status, stale)


def test_a_pending_job_has_a_place_in_the_queue(tmp_path: Path) -> None:
    seen, asked = asked_about(tmp_path, item("PENDING", reason="Priority"))
    assert seen.waiting["4711"].place == 1
    assert asked == ["squeue"]


def test_an_ended_job_has_its_use_from_accounting(tmp_path: Path) -> None:
    seen, asked = asked_about(tmp_path, item("COMPLETED", final=True, elapsed_s=60))
    assert seen.usage["run", "4711"].cpus == 64
    assert asked == ["sacct"]


@pytest.mark.parametrize("reason", ["Resources", "ReqNodeNotAvail, UnavailableNodes:n1"])
def test_nodes_are_listed_where_a_job_waits_for_them(reason: str, tmp_path: Path) -> None:
    seen, asked = asked_about(tmp_path, item("PENDING", reason=reason))
    assert list(seen.awaited) == ["4711"]
    assert asked == ["sinfo", "squeue"]


@pytest.mark.parametrize("reason", ["QOSMaxJobsPerUserLimit", "AssocGrpGRES"])
def test_limits_are_read_where_a_job_waits_for_one(reason: str, tmp_path: Path) -> None:
    seen, asked = asked_about(tmp_path, item("PENDING", reason=reason))
    assert asked == ["scontrol", "squeue"]
    assert seen.awaited == {}


@pytest.mark.parametrize(
    "unasked",
    [
        pytest.param(item("PENDING", stale=True, reason="Resources"), id="stale"),
        pytest.param(item("PENDING", scheduler="local"), id="local"),
        pytest.param(item("RUNNING"), id="running"),
        pytest.param(item("CANCELLED", final=True), id="never ran"),
        pytest.param(item("FAILED", final=True, reason="QOSGrp"), id="ended for a limit"),
    ],
)
def test_slurm_is_not_asked_about_other_runs(unasked: RunStatus, tmp_path: Path) -> None:
    seen, asked = asked_about(tmp_path, unasked)
    assert seen == Insight()
    assert asked == []
