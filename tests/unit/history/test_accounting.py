"""The jobs of a user, from sacct's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.features.history.past_jobs import AccountedJob, accounted_command, parse_accounted
from hpcrun.job.layout import SUBMISSION_FILE
from hpcrun.schedulers.slurm_text import SEPARATOR, allocated_gpus
from tests.harness import REPO

DATA = REPO / "tests/data"
ANSWERS = sorted(DATA.glob("*/sacct-history.txt"))


def jobs(path: Path) -> dict[str, AccountedJob]:
    return {job.job_id: job for job in parse_accounted(path.read_text("utf-8"))}


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.parent.name)
def test_a_requeued_job_is_one_job_with_a_time_for_each_start(path: Path) -> None:
    found = jobs(path)["1"]
    assert [each.state for each in found.times] == ["REQUEUED", "COMPLETED"]
    assert (found.name, found.account, found.cluster, found.workdir) == ("wrap", "lab", "dev", "/tmp/w")
    assert (found.state, found.gpus, found.cpus > 0, found.run_id) == ("COMPLETED", 4, True, None)
    first, second = found.times
    assert found.eligible_s is not None
    assert first.end_s is not None
    assert found.eligible_s <= first.start_s < first.end_s < second.start_s


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.parent.name)
def test_jobs_that_failed_or_have_no_gpu_and_elements_of_arrays(path: Path) -> None:
    found = jobs(path)
    assert (found["2"].state, found["2"].exit_status, found["2"].gpus) == ("FAILED", 3, 1)
    assert [(found[f"3_{index}"].state, found[f"3_{index}"].gpus) for index in range(3)] == [("COMPLETED", 0)] * 3


def test_a_job_that_runs_has_no_end() -> None:
    found = jobs(DATA / "22.05/sacct-history.txt")["8"]
    assert [(each.state, each.end_s) for each in found.times] == [("RUNNING", None)]


def test_a_job_of_a_run_and_one_that_has_not_started() -> None:
    script = f"/home/me/runs/20261121-093012-train-3f2a/{SUBMISSION_FILE}"
    began = ["7", "train", "lab", "dev", "PENDING", "0:0", "100", "Unknown", "Unknown", "Unknown", "0", "", "/w"]
    (found,) = parse_accounted(SEPARATOR.join([*began, f"sbatch {script}"]) + "\nnot a line of it\n")
    assert (found.run_id, found.times, found.eligible_s) == ("20261121-093012-train-3f2a", (), 100)


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=1,cpu=1,gres/gpu=4,mem=2000M,node=1", 4),
        ("cpu=1,gres/gpu:a100=2,gres/gpu=2", 2),
        ("cpu=1,gres/gpu:a100=2,gres/gpu:h100=1", 3),
        ("cpu=1,gres/gpu=x", 0),
        ("", 0),
    ],
)
def test_gpus_of_an_allocation(tres: str, gpus: int) -> None:
    assert allocated_gpus(tres) == gpus


def test_the_command_asks_for_one_users_jobs_of_a_time() -> None:
    command = accounted_command(0.0, 1001)
    assert "--user=1001" in command and any(word.startswith("--starttime=19") for word in command)
