"""What the script wrote down of its start, its end, and its ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.layout import AttemptFolder, RunFolder
from hpcrun.runs.attempt import ExitRecord, attempts, first_failure, hosts, last_attempt, node_ranks, ranks
from tests.unit.given import write


def attempt(run: Path, number: int = 0, *, start: bool = True, **end: Any) -> Path:
    folder = RunFolder(run).element(0).attempt(number).path
    folder.mkdir(parents=True)
    if start:
        write(folder / "start", json.dumps({"job_id": "4711", "host": "node1", "started": 100.5}))
    if end:
        write(folder / "exit", json.dumps(end))
    return folder


def rank_exit(folder: Path, rank: int, status: int, ended: float, node: str = "node1", **more: Any) -> None:
    fields = {"rank": rank, "node": node, "status": status, "ended": ended, **more}
    write(folder / f"rank-{rank}.exit", json.dumps(fields))


def test_a_run_that_has_not_started_has_no_attempt(tmp_path: Path) -> None:
    assert last_attempt(tmp_path) is None
    attempt(tmp_path, start=False)
    assert last_attempt(tmp_path) is None


def test_an_attempt_that_runs_has_a_start_and_no_exit(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    found = last_attempt(tmp_path)
    assert found is not None
    assert (found.folder.path, found.job_id, found.started_s, found.exit) == (folder, "4711", 100.5, None)


def test_an_attempt_that_ended_says_how(tmp_path: Path) -> None:
    attempt(tmp_path, status=143, signal="TERM", ended=200.0, message="no module command")
    found = last_attempt(tmp_path)
    assert found is not None
    assert found.exit == ExitRecord(143, "TERM", 200.0, "no module command")


def test_the_newest_attempt_counts_by_number_and_not_by_text(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        attempt(tmp_path, number)
    attempt(tmp_path, 11, start=False)
    (RunFolder(tmp_path).element(0).attempts / "notes").mkdir()
    found = last_attempt(tmp_path)
    assert found is not None
    assert found.folder.path.name == "10"


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_an_exit_record_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    (attempt(tmp_path) / "exit").write_text(text, "latin-1")
    found = last_attempt(tmp_path)
    assert found is not None
    assert found.exit is None


def test_a_message_with_control_characters_is_read(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    (folder / "exit").write_bytes(b'{"status": 1, "signal": "", "ended": 2.0, "message": "a\tb\x01\xff"}\n')
    found = last_attempt(tmp_path)
    assert found is not None
    assert found.exit is not None
    assert found.exit.message.startswith("a\tb")


def test_ranks_are_those_that_wrote_something_in_order(tmp_path: Path) -> None:
    for name in ("rank-10.out", "rank-2.err", "rank-2.out", "rank-0.exit", "rank-x.out", ".rank-7.exit.12", "start"):
        write(tmp_path / name, "")
    assert ranks(AttemptFolder(tmp_path)) == [0, 2, 10]


def test_the_rank_that_failed_first_is_named(tmp_path: Path) -> None:
    rank_exit(tmp_path, 0, 0, 1.0)
    rank_exit(tmp_path, 1, 1, 5.0)
    rank_exit(tmp_path, 3, 134, 4.0, "node2")
    found = first_failure(AttemptFolder(tmp_path))
    assert found is not None
    assert (found.rank, found.node, found.status, found.ended_s) == (3, "node2", 134, 4.0)


def test_a_rank_that_was_told_to_end_is_named_only_where_no_other_failed(tmp_path: Path) -> None:
    rank_exit(tmp_path, 0, 143, 1.0)
    told = first_failure(AttemptFolder(tmp_path))
    assert told is not None
    assert told.rank == 0
    rank_exit(tmp_path, 1, 1, 9.0)
    failed = first_failure(AttemptFolder(tmp_path))
    assert failed is not None
    assert failed.rank == 1


@pytest.mark.parametrize("told", ["TERM", "cleared"])
def test_a_rank_that_was_told_to_end_is_a_consequence_whatever_its_status(tmp_path: Path, told: str) -> None:
    rank_exit(tmp_path, 0, 1, 1.0, told=told, heard=True)
    rank_exit(tmp_path, 1, 3, 2.0, told="", heard=False)
    found = first_failure(AttemptFolder(tmp_path))
    assert found is not None
    assert (found.rank, found.signalled, found.is_consequence) == (1, "", False)


def test_where_every_rank_ended_well_none_failed(tmp_path: Path) -> None:
    rank_exit(tmp_path, 0, 0, 1.0)
    write(tmp_path / "rank-1.exit", "{")
    assert first_failure(AttemptFolder(tmp_path)) is None


def test_attempts_come_newest_first_and_are_read_as_they_are_wanted(tmp_path: Path) -> None:
    for number in (0, 1, 10):
        attempt(tmp_path, number)
    assert [found.number for found in attempts(tmp_path)] == [10, 1, 0]
    assert list(attempts(tmp_path, element=7)) == []


def test_why_an_attempt_ended_and_whether_it_is_started_again(tmp_path: Path) -> None:
    attempt(tmp_path, status=124, signal="", ended=200.0, message="", reason="time_limit", again=True)
    found = last_attempt(tmp_path)
    assert found is not None
    assert found.exit == ExitRecord(124, "", 200.0, "", "time_limit", True)


def test_a_sign_of_life_is_later_than_the_start(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    for text, alive_s in (("", 100.5), ("90", 100.5), ("160", 160.0)):
        write(folder / "heartbeat", text)
        found = last_attempt(tmp_path)
        assert found is not None
        assert found.alive_s == alive_s


@pytest.mark.parametrize(
    "text", ["{}", '{"started": "soon", "job_id": 1, "host": "a"}', '{"started": null}', "\x00\xff"]
)
def test_an_attempt_whose_start_was_overwritten_hides_no_other(text: str, tmp_path: Path) -> None:
    for number, said in ((0, '{"job_id": "1", "host": "a", "started": 5}'), (1, text)):
        write(RunFolder(tmp_path).element(0).attempt(number).start, said)
    assert [attempt.number for attempt in attempts(tmp_path)] == [0]


def test_nodes_in_slurm_s_order_and_the_ranks_of_those_that_have_started(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    assert (hosts(AttemptFolder(folder)), node_ranks(AttemptFolder(folder))) == ([], {})
    write(folder / "hosts", "node2\nnode1\nnode3\n")
    for node, first, count in (("node1", 4, 2), ("node2", 0, 4)):
        write(folder / f"node-{node}.start", json.dumps({"node": node, "first_rank": first, "ranks": count}))
    write(folder / "node-node3.start", json.dumps({"node": "node3"}))  # cut off
    write(folder / "node-node4.exit", json.dumps({"node": "node4", "first_rank": 9, "ranks": 1}))
    assert hosts(AttemptFolder(folder)) == ["node2", "node1", "node3"]
    assert node_ranks(AttemptFolder(folder)) == {"node1": range(4, 6), "node2": range(4)}
    assert node_ranks(AttemptFolder(tmp_path / "gone")) == {}
