"""How an attempt of a Slurm job ends: its record, with Slurm's answers and the step faked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from hpcrun.in_job.launch import slurm_requests
from hpcrun.in_job.launch.job_step import JobStep
from hpcrun.in_job.launch.per_job import job
from hpcrun.in_job.launch.per_job.dead_nodes import Heartbeats
from hpcrun.in_job.launch.per_job.idle_watch import IdleWatch
from hpcrun.in_job.launch.slurm_requests import JobSays

RESTARTS = ("--grace", "60", "--restarts", "2", "--retry-on-failure")


def fails(step: JobStep, *_: object) -> int:
    """Fail at once."""
    return 1


def end_of_job(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    answer: JobSays,
    run: Callable[..., int] = fails,
) -> dict[str, Any]:
    """The record of a job on two nodes whose step fails, while Slurm gives this answer."""
    attempt = folder / "run/elements/0/attempts/0"
    attempt.mkdir(parents=True, exist_ok=True)
    env = {
        "HPCRUN_RUN_DIR": str(folder / "run"),
        "HPCRUN_ATTEMPT_DIR": str(attempt),
        "HPCRUN_CHECKPOINT_DIR": str(folder / "run/elements/0/checkpoints"),
        "HPCRUN_ELEMENT": "0",
        "HPCRUN_ATTEMPT": "0",
        "HPCRUN_JOB_ID": "7",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    monkeypatch.setattr(slurm_requests, "TRIES", 1)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(slurm_requests, "job", lambda: answer)
    monkeypatch.setattr(slurm_requests, "nodes_dead", lambda nodes: dict.fromkeys(nodes, False))
    monkeypatch.setattr(JobStep, "run", run)
    with patch.dict(os.environ, env):
        assert job.main([*options, "--", "srun", "program"]) == 1
    return dict(json.loads((attempt / "exit").read_text()))


@pytest.mark.parametrize(
    ("answer", "reason", "message"),
    [
        (JobSays("COMPLETING"), "failure", "not restarted: Slurm reports the job as COMPLETING"),
        (JobSays("RUNNING", restarts=1), "failure", "not restarted: Slurm has requeued the job"),
        (JobSays(), "failure", "not restarted: Slurm does not respond"),
        (
            JobSays("RUNNING", nodes="n1"),
            "node_failure",
            "not restarted: too few nodes are left to restart on",
        ),
    ],
)
def test_a_job_that_cannot_be_restarted_has_not_used_up_its_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: JobSays, reason: str, message: str
) -> None:
    record = end_of_job(tmp_path, monkeypatch, RESTARTS, answer)
    assert record["reason"] == reason
    assert record["how"] == ""
    assert record["message"] == message


def test_the_message_of_a_failed_role_stays_if_slurm_refuses_to_requeue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = tmp_path / "run/elements/0/attempts/0/roles"
    roles.mkdir(parents=True)
    (roles / "server.end").write_text('{"message": "role server failed", "time": 1}')
    monkeypatch.setattr(slurm_requests, "requeue", lambda _: "Access denied")
    options = ("--grace", "60", "--requeue", "1", "--retry-on-failure")
    record = end_of_job(tmp_path, monkeypatch, options, JobSays("RUNNING", restarts=0))
    assert record["message"] == (
        "role server failed; scontrol requeue failed; hpcrun resubmit starts it again"
    )


def test_while_a_script_continues_behind_its_launch_idle_gpus_do_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(step: JobStep, status: int, **_: bool) -> int:
        step._tick()
        return status

    monkeypatch.setattr(JobStep, "finish", finish)
    monkeypatch.setattr(IdleWatch, "check", lambda watch: watch._limit_s > 0)
    monkeypatch.setattr(slurm_requests, "end_steps", lambda: "")
    options = ("--grace", "60", "--cancel-idle", "600")
    record = end_of_job(tmp_path, monkeypatch, options, JobSays("RUNNING"))
    assert record["reason"] == "failure"


@pytest.mark.parametrize(
    ("options", "watched"),
    [
        pytest.param((), [], id="it could not continue"),
        pytest.param(RESTARTS, ["n1", "n2"], id="restarts"),
        pytest.param(("--grace", "60", "--requeue", "1"), ["n1", "n2"], id="requeues"),
    ],
)
def test_dead_nodes_are_looked_for_if_the_job_can_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], watched: list[str]
) -> None:
    found: list[list[str]] = []

    def check(heartbeats: Heartbeats) -> list[str]:
        found.append(heartbeats._nodes)
        return []

    def run(step: JobStep, *_: object) -> int:
        step._tick()
        return 1

    monkeypatch.setattr(Heartbeats, "check", check)
    end_of_job(tmp_path, monkeypatch, options, JobSays("COMPLETING"), run)
    assert found == [watched]
