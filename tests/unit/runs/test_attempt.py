"""What the script wrote down of its start, its end, and its ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.run_paths import AttemptFolder, RunFolder
from hpcrun.runs.attempt import (
    Attempt,
    ExitRecord,
    RankExit,
    alone_ranks,
    attempts,
    first_failure,
    hosts,
    in_failed_role,
    last_attempt,
    loader_note,
    newest_number,
    node_ranks,
    rank_exits,
    ranks,
    with_granted_nodes,
)
from hpcrun.views.text import ranks_text, size_text
from tests.unit.builders import run, write


def attempt(run: Path, number: int = 0, *, start: bool = True) -> Path:
    folder = RunFolder(run).element(0).attempt(number).path
    folder.mkdir(parents=True)
    if start:
        write(folder / "start", json.dumps({"job_id": "4711", "host": "node1", "started": 100.5}))
    return folder


def rank_exit(
    folder: Path, rank: int, status: int, ended: float, node: str = "node1", **more: Any
) -> None:
    fields = {"rank": rank, "node": node, "status": status, "ended": ended, **more}
    write(folder / f"rank-{rank}.exit", json.dumps(fields))


def newest(run: Path) -> Attempt:
    (attempt, *_) = attempts(run)
    assert attempt == last_attempt(run)
    return attempt


def first_failed(folder: Path) -> RankExit:
    first = first_failure(AttemptFolder(folder))
    assert first is not None
    return first


def test_a_run_has_the_nodes_that_slurm_has_given_to_its_newest_attempt(tmp_path: Path) -> None:
    waiting = run(nodes=4, world_size=8, plan={"shape": {"node_choice": "2-4"}})
    assert with_granted_nodes(waiting, tmp_path) == waiting
    assert size_text(waiting) == "2-4 nodes × 2 GPUs"
    assert ranks_text(waiting) == "at most 8 ranks"
    for number, names in enumerate(("a\nb\nc\nd\n", "a\nb\n")):
        write(attempt(tmp_path, number) / "hosts", names)
    granted = with_granted_nodes(waiting, tmp_path)
    assert (granted.nodes, granted.world_size) == (2, 4)
    assert size_text(granted) == "2 nodes × 2 GPUs"
    assert ranks_text(granted) == "4 ranks"


def test_an_attempt_that_runs_has_a_start_no_exit_and_a_sign_of_life_that_is_later(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    assert last_attempt(tmp_path) is None
    attempt(tmp_path, 1, start=False)
    assert last_attempt(tmp_path) is None
    folder = attempt(tmp_path)
    last = newest(tmp_path)
    assert last.folder.path == folder
    assert last.job_id == "4711"
    assert last.started_s == 100.5
    assert last.exit is None
    for text, alive_s in (("", 100.5), ("90", 100.5), ("160", 160.0)):
        with subtests.test(text=text):
            write(folder / "heartbeat", text)
            assert newest(tmp_path).alive_s == alive_s


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (
            b'{"status": 143, "signal": "TERM", "ended": 200, "message": "no module command"}',
            ExitRecord(143, "TERM", 200.0, "no module command"),
        ),
        (
            b'{"status": 124, "signal": "", "ended": 2, "message": "", "reason": "time_limit", '
            b'"again": true}',
            ExitRecord(124, "", 2.0, "", "time_limit", True),
        ),
        (
            b'{"status": 1, "signal": "", "ended": 2.0, "message": "a\tb\x01\xff"}\n',
            ExitRecord(1, "", 2.0, "a\tb\x01\ufffd"),
        ),
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"\xff", None),
    ],
)
def test_the_exit_record_of_an_attempt(
    text: bytes, record: ExitRecord | None, tmp_path: Path
) -> None:
    (attempt(tmp_path) / "exit").write_bytes(text)
    assert newest(tmp_path).exit == record


def test_ranks_are_those_that_wrote_something_and_attempts_come_newest_first_by_number(
    tmp_path: Path,
) -> None:
    for name in (
        "rank-10.out",
        "rank-2.err",
        "rank-2.out",
        "rank-0.exit",
        "rank-x.out",
        ".rank-7.exit.12",
        "start",
    ):
        write(tmp_path / name, "")
    assert ranks(AttemptFolder(tmp_path)) == [0, 2, 10]
    for number in (0, 2, 10):
        attempt(tmp_path, number)
    attempt(tmp_path, 11, start=False)
    (RunFolder(tmp_path).element(0).attempts / "notes").mkdir()
    assert [each.number for each in attempts(tmp_path)] == [10, 2, 0]
    assert list(attempts(tmp_path, element=7)) == []


def test_the_rank_that_failed_first_is_named(tmp_path: Path) -> None:
    rank_exit(tmp_path, 0, 0, 1.0)
    write(tmp_path / "rank-2.exit", "{")
    assert first_failure(AttemptFolder(tmp_path)) is None
    rank_exit(tmp_path, 1, 1, 5.0)
    rank_exit(tmp_path, 3, 134, 4.0, "node2")
    assert first_failed(tmp_path) == RankExit(3, "node2", 134, 4.0)


@pytest.mark.parametrize(("status", "told"), [(143, ""), (1, "TERM"), (1, "cleared")])
def test_a_terminated_rank_is_named_only_where_no_other_failed(
    status: int, told: str, tmp_path: Path
) -> None:
    rank_exit(tmp_path, 0, status, 1.0, told=told)
    first = first_failed(tmp_path)
    assert first.rank == 0
    assert first.is_consequence is True
    rank_exit(tmp_path, 1, 3, 9.0, told="")
    first = first_failed(tmp_path)
    assert first.rank == 1
    assert first.signalled == ""
    assert first.is_consequence is False


def test_an_attempt_whose_start_was_overwritten_hides_no_other(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    write(
        RunFolder(tmp_path).element(0).attempt(0).start,
        '{"job_id": "1", "host": "a", "started": 5}',
    )
    for text in (
        "{}",
        '{"started": "soon", "job_id": 1, "host": "a"}',
        '{"started": null}',
        "\x00\xff",
    ):
        with subtests.test(text=text):
            write(RunFolder(tmp_path).element(0).attempt(1).start, text)
            assert [attempt.number for attempt in attempts(tmp_path)] == [0]


def test_nodes_in_slurm_s_order_and_the_ranks_of_those_that_have_started(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    assert hosts(AttemptFolder(folder)) == []
    assert node_ranks(AttemptFolder(folder)) == {}
    write(folder / "hosts", "node2\nnode1\nnode3\n")
    for node, first, count in (("node1", 4, 2), ("node2", 0, 4)):
        write(
            folder / f"node-{node}.start",
            json.dumps({"node": node, "first_rank": first, "ranks": count}),
        )
    write(folder / "node-node3.start", json.dumps({"node": "node3"}))  # cut off
    write(folder / "node-node4.exit", json.dumps({"node": "node4", "first_rank": 9, "ranks": 1}))
    assert hosts(AttemptFolder(folder)) == ["node2", "node1", "node3"]
    assert node_ranks(AttemptFolder(folder)) == {"node1": range(4, 6), "node2": range(4)}
    assert node_ranks(AttemptFolder(tmp_path / "gone")) == {}


ROLES = [
    {"name": "server", "first_rank": 0, "ranks": 1, "first_node": 0, "nodes": 1},
    {"name": "trainer", "first_rank": 1, "ranks": 1, "first_node": 0, "nodes": 1},
]


def role_that_failed(folder: Path, server: str, trainer: str) -> str | None:
    """The role that failed first in the newest attempt; each role has this ``on_exit``."""
    on_exit = {"server": server, "trainer": trainer}
    roles = [{**role, "on_exit": on_exit[str(role["name"])], "after": []} for role in ROLES]
    attempt = in_failed_role(last_attempt(folder), run(plan={"roles": roles}))
    assert attempt is not None
    assert attempt.folder.role is not None
    return attempt.folder.role.name


def test_the_role_whose_rank_failed_first_is_the_one_that_failed(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    rank_exit(folder, 0, status=1, ended=200.0)
    rank_exit(folder, 1, status=1, ended=210.0)
    assert role_that_failed(tmp_path, "fail", "end") == "server"


def test_any_end_of_a_role_without_which_the_job_fails_is_a_failure(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    rank_exit(folder, 0, status=0, ended=200.0)
    rank_exit(folder, 1, status=1, ended=210.0)
    assert role_that_failed(tmp_path, "fail", "end") == "server"
    assert role_that_failed(tmp_path, "end", "end") == "trainer"


def test_the_role_that_decides_counts_where_no_role_failed(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    for rank in (0, 1):
        write(folder / f"rank-{rank}.out", "")
    assert role_that_failed(tmp_path, "ignore", "end") == "trainer"


def test_a_role_with_ranks_counts_before_the_role_that_decides_without_ranks(
    tmp_path: Path,
) -> None:
    write(attempt(tmp_path) / "rank-0.out", "")
    assert role_that_failed(tmp_path, "ignore", "end") == "server"


@pytest.mark.parametrize(
    ("name", "most"), [("rank", 10**7), ("status", 10**6), ("pid", 1 << 22)], ids=str
)
def test_a_number_of_a_rank_s_end_has_its_limits(tmp_path: Path, name: str, most: int) -> None:
    for rank, value in enumerate((-1, 0, most, most + 1)):
        fields = {"rank": rank, "node": "n1", "status": 1, "ended": 5.0, name: value}
        write(tmp_path / f"rank-{rank}.exit", json.dumps(fields))
    read = rank_exits(AttemptFolder(tmp_path))
    assert [getattr(end, name) for end in read] == [0, most]


@pytest.mark.parametrize(("name", "most"), [("first_rank", 10**7), ("ranks", 4096)])
def test_a_number_of_a_node_s_start_has_its_limits(tmp_path: Path, name: str, most: int) -> None:
    for value in (-1, 1, most, most + 1):
        fields = {"node": f"n{value}", "first_rank": 0, "ranks": 1, name: value}
        write(tmp_path / f"node-n{value}.start", json.dumps(fields))
    assert set(node_ranks(AttemptFolder(tmp_path))) == {"n1", f"n{most}"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", 10**6 + 1),
        ("status", -1),
        ("alone", 10**7 + 1),
        ("workers", [10**7 + 1]),
        ("ended", -1),
        ("signal", None),
    ],
)
def test_an_end_with_an_impossible_value_is_none(tmp_path: Path, name: str, value: Any) -> None:
    fields = {"status": 0, "signal": "", "ended": 5.0, name: value}
    write(attempt(tmp_path) / "exit", json.dumps(fields))
    assert newest(tmp_path).exit is None


def test_an_end_notes_ranks_alone_and_too_many_workers() -> None:
    end = ExitRecord(0, "", 5.0, alone=4, workers=(16, 8))
    alone, workers = end.notes
    assert alone.startswith("none of the 4 ranks was seen connected")
    assert workers.startswith("a DataLoader has 16 workers, and torch advises at most 8")
    assert ExitRecord(0, "", 5.0).notes == ()


@pytest.mark.parametrize(
    ("status", "message", "hides"),
    [(0, "no module", True), (1, "no module", False), (0, "", False)],
)
def test_a_good_end_with_a_message_hides_a_failure(status: int, message: str, hides: bool) -> None:
    assert ExitRecord(status, "", 5.0, message).hides_failure is hides


def test_torch_s_warning_about_workers_is_found_in_rank_0(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    assert loader_note(folder) == ""
    warning = (
        "This DataLoader will create 16 worker processes in total. Our suggested max number of "
        "worker in current system is 8, which is smaller"
    )
    write(tmp_path / "rank-0.err", "\n" * 200_000 + warning)
    assert loader_note(folder).startswith(
        "a DataLoader has 16 workers, and torch advises at most 8"
    )


@pytest.mark.parametrize(
    ("alone", "started", "number"), [((0, 1), 2, 2), ((0,), 1, 0), ((0, 1), 3, 0)]
)
def test_ranks_are_alone_where_none_is_connected(
    tmp_path: Path, alone: tuple[int, ...], started: int, number: int
) -> None:
    for rank in alone:
        write(tmp_path / f"rank-{rank}.alone", "")
    fields = {"node": "n1", "first_rank": 0, "ranks": started}
    write(tmp_path / "node-n1.start", json.dumps(fields))
    assert alone_ranks(AttemptFolder(tmp_path)) == number


def test_the_newest_number_counts_attempts_that_have_not_started(tmp_path: Path) -> None:
    assert newest_number(tmp_path) == -1
    attempt(tmp_path, 0)
    attempt(tmp_path, 3, start=False)
    assert newest_number(tmp_path) == 3
