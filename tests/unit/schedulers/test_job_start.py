"""When a job could start: sbatch --test-only, as several versions of Slurm answer."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from hpcrun.machine.process import Completed
from hpcrun.schedulers import job_start
from hpcrun.schedulers.job_start import JobStart

RECORDED = Path(__file__).parents[2] / "data" / "22.05"
AT = datetime(2026, 11, 21, 3, 30).timestamp()


def test_sbatch_s_own_words_and_the_recorded_answers() -> None:
    said = (
        "sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition "
        "name specified\n"
    )
    assert (
        job_start.refusal_words(said)
        == "invalid partition specified: x; Invalid partition name specified"
    )
    assert job_start.refusal_words("sbatch: error: no\nsbatch: error: no\n") == "no"
    assert job_start.refusal_words("") == ""
    accepted = job_start.read_answer(
        completed((RECORDED / "sbatch-test-only-accepted.txt").read_text())
    )
    assert accepted.start is not None
    assert accepted.start.nodes == "h100-1"
    assert accepted.start.partition == "gpu"
    refused = job_start.read_answer(
        completed((RECORDED / "sbatch-test-only-refused.txt").read_text(), 1)
    )
    assert refused.start is None
    assert refused.silent is False
    assert refused.message == "allocation failure: Requested node configuration is not available"


def completed(stderr: str, status: int | None = 0) -> Completed:
    return Completed("sbatch --test-only", status, "", stderr)


WHEN = "sbatch: Job 7 to start at 2026-11-21T03:30:00"


def test_the_start_is_read(subtests: pytest.Subtests) -> None:
    for answer, start in (
        (
            f"{WHEN} using 32 processors on nodes a100-[1-2] in partition gpu",
            JobStart(AT, "a100-[1-2]", "gpu"),
        ),
        (f"{WHEN} using 32 processors on nodes a100-1", JobStart(AT, "a100-1")),  # before 18.08
        (f"{WHEN} using 32 processors on a100-1", JobStart(AT, "a100-1")),
        (
            f"sbatch: this site says hello\n{WHEN} using 1 processors on nodes n1 in partition "
            "gpu\n"
            "sbatch:   Preempts: 12,15",
            JobStart(AT, "n1", "gpu", ("12", "15")),
        ),
        # 24.11, in a federation, and 26.05
        (
            f"{WHEN} on cluster b using 2 processors on nodes n1 in partition p",
            JobStart(AT, "n1", "p"),
        ),
        (
            f"{WHEN} a using 64 processors on nodes a100-[1-2] in partition gpu",
            JobStart(AT, "a100-[1-2]", "gpu"),
        ),
        (
            "sbatch: Job 7 to start at Unknown using 32 processors on nodes n1 in partition gpu",
            None,
        ),
        (
            "sbatch: Job 7 to start at tomorr 03:30 using 32 processors on nodes n1 in partition "
            "gpu",
            None,
        ),
        ("allocation failure: Requested node configuration is not available", None),
        ("", None),
    ):
        with subtests.test(answer=answer):
            assert job_start.parse_start(answer) == start


def test_a_refusal_is_told_from_silence(subtests: pytest.Subtests) -> None:
    away = "allocation failure: Unable to contact slurm controller (connect failure)"
    for answer in (completed("timed out after 10 s", None), completed(away, 1), completed("", 1)):
        with subtests.test(answer=answer):
            read = job_start.read_answer(answer)
            assert read.start is None
            assert read.silent == bool(answer.stderr)
            assert read.message


def test_directives_are_asked_for_as_they_are() -> None:
    directives = (("gres", "gpu:a100:4"), ("comment", "two words"), ("no-requeue", None))
    assert job_start.estimate_command(directives)[:2] == ["sbatch", "--test-only"]
    assert set(job_start.estimate_command(directives)) > {
        "--gres=gpu:a100:4",
        "--comment=two words",
        "--no-requeue",
    }


def test_a_trial_is_an_answer_unless_it_says_otherwise() -> None:
    assert job_start.Trial(True, "accepted").silent is False


def test_without_a_reason_the_exit_status_is_told() -> None:
    read = job_start.read_answer(completed("", 1))
    assert read.message == "sbatch printed no reason (exit status 1)"


def test_no_request_is_no_question() -> None:
    assert job_start.SlurmForecast({}).estimate([]) == []
