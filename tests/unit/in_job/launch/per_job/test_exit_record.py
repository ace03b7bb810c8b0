"""The exit record of an attempt, and what it tells of the ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import records
from hpcrun.in_job.launch.per_job.exit_record import ranks_alone, write_exit

WARNING = (
    "UserWarning: This DataLoader will create {} worker processes in total. Our suggested max "
    "number of worker in current system is {}, which is smaller"
)


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    return tmp_path


def written(attempt: Path) -> dict[str, Any]:
    record = dict(json.loads((attempt / "exit").read_text()))
    assert record.pop("ended") > 1_700_000_000
    return record


def test_a_job_that_is_over(attempt: Path) -> None:
    write_exit(0, signalled=False)
    assert written(attempt) == {
        "status": 0,
        "signal": "",
        "message": "",
        "reason": "",
        "again": False,
        "how": "",
        "nodes": [],
        "alone": 0,
        "workers": [],
    }


def test_a_job_that_continues(attempt: Path) -> None:
    write_exit(143, signalled=True, why="failure", message="m", how=records.REQUEUE, nodes=["n1"])
    record = written(attempt)
    assert (record["status"], record["signal"], record["reason"]) == (143, "TERM", "failure")
    assert (record["again"], record["how"], record["nodes"]) == (True, "requeue", ["n1"])
    assert record["message"] == "m"


def test_a_record_of_another_attempt(attempt: Path) -> None:
    other = attempt / "other"
    other.mkdir()
    write_exit(1, signalled=False, folder=str(other))
    assert written(other)["status"] == 1
    assert not (attempt / "exit").exists()


@pytest.mark.parametrize(
    ("ranks", "number"),
    [
        ([], 0),
        ([True], 0),
        ([True, True], 2),
        ([True, True, True], 3),
        ([True, False], 0),
        ([True, None], 0),
        ([True, 1], 0),
    ],
)
def test_ranks_that_met_no_other(attempt: Path, ranks: list[Any], number: int) -> None:
    for rank, alone in enumerate(ranks):
        record = {"rank": rank, "status": 0, "ended": 1.0, "alone": alone}
        (attempt / f"rank-{rank}.exit").write_text(json.dumps(record))
    assert ranks_alone() == number
    assert ranks_alone(str(attempt)) == number


@pytest.mark.parametrize(
    ("text", "workers"),
    [(WARNING.format(16, 4), [16, 4]), (WARNING.format(1234567, 4), []), ("", [])],
    ids=["warning", "too-large", "none"],
)
def test_workers_of_a_loader_are_recorded(attempt: Path, text: str, workers: list[int]) -> None:
    (attempt / "rank-0.err").write_text(f"first\n{text}\n")
    write_exit(0, signalled=False)
    assert written(attempt)["workers"] == workers


def test_the_beginning_of_a_log_is_searched(attempt: Path) -> None:
    (attempt / "rank-0.err").write_text("x" * (1 << 18) + WARNING.format(16, 4))
    write_exit(0, signalled=False)
    assert written(attempt)["workers"] == []
