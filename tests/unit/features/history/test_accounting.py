"""The jobs of a user, from sacct's own words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.actions.status.past_jobs import PastJob
from hpcrun.features.history.accounted_jobs import (
    accounted_command,
    accounted_jobs,
    parse_accounted,
)
from hpcrun.job.run_paths import SUBMISSION_FILE
from hpcrun.schedulers.slurm_text import SEPARATOR, allocated_gpus
from tests.harness import REPO
from tests.unit.builders import write

DATA = REPO / "tests/data"
ANSWERS = sorted(DATA.glob("*/sacct-history.txt"))
NOW = 1_800_000_000.0


def job(path: Path, job_id: str) -> PastJob:
    """The job of one id among the lines of an answer."""
    lines = [
        line for line in path.read_text("utf-8").splitlines() if line.startswith(job_id + SEPARATOR)
    ]
    (only,) = parse_accounted("\n".join(lines), NOW)
    return only


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.parent.name)
def test_requeued_and_failed_jobs_and_elements_of_arrays(path: Path) -> None:
    requeued, failed = job(path, "1"), job(path, "2")
    assert requeued.name == "wrap"
    assert requeued.account == "lab"
    assert requeued.cluster == "dev"
    assert requeued.project == "/tmp/w"
    assert requeued.end == "completed"
    assert requeued.gpus == 4
    assert requeued.cpus > 0
    assert requeued.run_id is None
    first, second = requeued.times
    assert first.start_s < first.end_s < second.start_s
    assert not (first.lost or second.lost)
    assert requeued.wait_s is not None
    assert requeued.wait_s < 60
    assert failed.end == "failed"
    assert failed.cause == "exit status 3"
    assert failed.gpus == 1
    assert failed.times[0].lost is True
    elements = parse_accounted(path.read_text("utf-8"), NOW)[2:5]
    assert [(each.end, each.gpus) for each in elements] == [("completed", 0)] * 3
    assert sum(each.wait_s is not None for each in elements) == 1


def test_jobs_that_run_or_have_not_started_and_the_command_that_asks_for_them() -> None:
    running = job(DATA / "22.05/sacct-history.txt", "8")
    assert running.end is None
    assert running.is_running is True
    assert running.times[-1].end_s == NOW
    script = f"/home/me/runs/20261121-093012-train-3f2a/{SUBMISSION_FILE}"
    began = [
        "7",
        "train",
        "lab",
        "dev",
        "PENDING",
        "0:0",
        "100",
        "Unknown",
        "Unknown",
        "Unknown",
        "0",
        "",
        "/w",
    ]
    (only,) = parse_accounted(
        SEPARATOR.join([*began, f"sbatch {script}"]) + "\nnot a line of it\n", NOW
    )
    assert only.run_id == "20261121-093012-train-3f2a"
    assert only.times == ()
    assert only.wait_s is None
    command = accounted_command(0.0, 1001)
    assert "--user=1001" in command
    assert any(word.startswith("--starttime=19") for word in command)


def test_gpus_of_an_allocation() -> None:
    assert allocated_gpus("billing=1,cpu=1,gres/gpu=4,mem=2000M,node=1") == 4
    assert allocated_gpus("cpu=1,gres/gpu:a100=2,gres/gpu=2") == 2
    assert allocated_gpus("cpu=1,gres/gpu:a100=2,gres/gpu:h100=1") == 3
    assert allocated_gpus("cpu=1,gres/gpu=x") == allocated_gpus("") == 0


def test_an_accounting_that_does_not_answer_has_no_jobs(tmp_path: Path) -> None:
    jobs, answer = accounted_jobs(0.0, 1000.0, {"PATH": str(tmp_path)})
    assert jobs == []
    assert not answer.ok


def test_the_accounting_is_asked_for_times_in_seconds(tmp_path: Path) -> None:
    sacct = write(tmp_path / "sacct", '#!/bin/sh\necho "$SLURM_TIME_FORMAT $*" >&2\nexit 1\n')
    sacct.chmod(0o755)
    _, answer = accounted_jobs(0.0, 1000.0, {"PATH": str(tmp_path)})
    assert answer.stderr.startswith("%s ")
    assert f"--user={os.getuid()}" in answer.stderr
