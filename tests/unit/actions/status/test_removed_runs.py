"""Past jobs that are read from the log of actions after their folders are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.past_jobs import (
    NOT_EXAMINED,
    UNKNOWN_CAUSE,
    JobTime,
    PastJob,
    job_record,
    read_job,
    removed_runs,
)
from hpcrun.runs.store import RunStore

JOB = PastJob(
    name="train",
    project="/p",
    account="lab",
    profile="h100",
    cluster="alpha",
    gpus=8,
    cpus=64,
    times=(JobTime(10.0, 20.0), JobTime(30.0, 40.0, lost=True)),
    end="failed",
    ended_s=40.0,
    wait_s=5.0,
    cause="cuda-out-of-memory",
    run_id="20260102-030405-train-0a1b",
    agent="codex",
)
LINE: dict[str, Any] = {
    "action": "clean",
    "run_ids": ["20260102-030405-train-0a1b"],
    "scheduler": "slurm",
    "text": "train",
}


def test_a_past_job_survives_as_json() -> None:
    assert read_job(json.loads(json.dumps(job_record(JOB)))) == JOB


def test_nothing_can_be_examined_any_more() -> None:
    failed = PastJob(**{**_fields(JOB), "cause": NOT_EXAMINED})
    assert read_job(job_record(failed)).cause == UNKNOWN_CAUSE


def _fields(job: PastJob) -> dict[str, Any]:
    return {name: getattr(job, name) for name in PastJob.__slots__}


@pytest.mark.parametrize(
    "change",
    [{"gpus": -1}, {"gpus": "8"}, {"times": [{"start_s": 1}]}, {"end": "never"}, {"name": None}],
)
def test_a_damaged_record_is_no_job(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"its field|it has no"):
        read_job({**job_record(JOB), **change})


@pytest.mark.parametrize(
    "change",
    [
        {"run_ids": []},
        {"run_ids": None},
        {"scheduler": None},
        {"jobs": None},
        {"jobs": [1]},
        {"jobs": [{"gpus": 1}]},
        {"action": "cancel"},
    ],
)
def test_a_line_that_cannot_be_used_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    good = {**LINE, "run_ids": ["other"], "jobs": [job_record(JOB)]}
    damaged = {**good, "run_ids": LINE["run_ids"], **change}
    lines = [json.dumps(damaged), "[]", "{", json.dumps(good)]
    (tmp_path / "actions.jsonl").write_text("\n".join(lines))
    assert [run.run_id for run in removed_runs(RunStore(tmp_path))] == ["other"]


def test_without_a_log_no_run_was_removed(tmp_path: Path) -> None:
    assert removed_runs(RunStore(tmp_path)) == []


def test_a_log_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    good = {**LINE, "jobs": [job_record(JOB)]}
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/log").write_text(json.dumps(good))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/actions.jsonl").symlink_to(tmp_path / "elsewhere/log")
    assert removed_runs(RunStore(tmp_path / "runs")) == []
