"""What sbatch --test-only says, in the words of several versions of Slurm."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from hpcrun.schedulers.client import Start, estimate_command, parse_start, read_answer
from hpcrun.schedulers.process import Completed

RECORDED = Path(__file__).parents[2] / "data" / "22.05"
AT = datetime(2026, 11, 21, 3, 30).timestamp()


def completed(stderr: str, status: int | None = 0) -> Completed:
    return Completed("sbatch --test-only", status, "", stderr)


@pytest.mark.parametrize(
    ("said", "start"),
    [
        (
            "sbatch: Job 7 to start at 2026-11-21T03:30:00 using 32 processors on nodes a100-[1-2] in partition gpu",
            Start(AT, "a100-[1-2]", "gpu"),
        ),
        # before 18.08
        ("sbatch: Job 7 to start at 2026-11-21T03:30:00 using 32 processors on nodes a100-1", Start(AT, "a100-1")),
        ("sbatch: Job 7 to start at 2026-11-21T03:30:00 using 32 processors on a100-1", Start(AT, "a100-1")),
        (
            "sbatch: this site says hello\n"
            "sbatch: Job 7 to start at 2026-11-21T03:30:00 using 1 processors on nodes n1 in partition gpu\n"
            "sbatch:   Preempts: 12,15",
            Start(AT, "n1", "gpu", ("12", "15")),
        ),
        (  # 24.11, in a federation
            "sbatch: Job 7 to start at 2026-11-21T03:30:00 on cluster b using 2 processors on nodes n1 in partition p",
            Start(AT, "n1", "p"),
        ),
        (  # 26.05
            "sbatch: Job 7 to start at 2026-11-21T03:30:00 a using 64 processors on nodes a100-[1-2] in partition gpu",
            Start(AT, "a100-[1-2]", "gpu"),
        ),
        ("sbatch: Job 7 to start at Unknown using 32 processors on nodes n1 in partition gpu", None),
        ("sbatch: Job 7 to start at tomorr 03:30 using 32 processors on nodes n1 in partition gpu", None),
        ("allocation failure: Requested node configuration is not available", None),
        ("", None),
    ],
)
def test_the_start_is_read(said: str, start: Start | None) -> None:
    assert parse_start(said) == start


def test_the_recorded_answers() -> None:
    accepted = read_answer(completed((RECORDED / "sbatch-test-only-accepted.txt").read_text()))
    assert accepted.start is not None
    assert (accepted.start.nodes, accepted.start.partition) == ("h100-1", "gpu")
    refused = read_answer(completed((RECORDED / "sbatch-test-only-refused.txt").read_text(), 1))
    assert (refused.start, refused.silent) == (None, False)
    assert refused.message == "allocation failure: Requested node configuration is not available"


@pytest.mark.parametrize(
    ("answer", "silent"),
    [
        (completed("timed out after 10 s", None), True),
        (completed("allocation failure: Unable to contact slurm controller (connect failure)", 1), True),
        (completed("", 1), False),
    ],
)
def test_a_refusal_is_told_from_silence(answer: Completed, silent: bool) -> None:
    read = read_answer(answer)
    assert (read.start, read.silent) == (None, silent)
    assert read.message


def test_directives_are_asked_for_as_they_are() -> None:
    directives = (("gres", "gpu:a100:4"), ("comment", "two words"), ("no-requeue", None))
    assert estimate_command(directives)[:2] == ["sbatch", "--test-only"]
    assert set(estimate_command(directives)) > {"--gres=gpu:a100:4", "--comment=two words", "--no-requeue"}
