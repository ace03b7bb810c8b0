"""The ranks of an attempt: how each is, and in which order."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from hpcrun.features.top import ranks
from hpcrun.features.top.ranks import RankRow, RanksReader, RankState, matching_rows
from hpcrun.features.top.run_page_text import rank_heading
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.attempt import attempts
from tests.unit.builders import write
from tests.unit.explain.test_running import NOW_S, attempt, node, wrote


def _ended(folder: AttemptFolder, rank: int, status: int, ended_s: float, told: str = "") -> None:
    record = {"rank": rank, "node": "n0", "status": status, "ended": ended_s, "told": told}
    write(folder.rank_exit(rank), json.dumps(record))


def _read(
    reader: RanksReader, shown: Sequence[int] = (), *, is_over: bool = False
) -> list[RankRow]:
    answer = reader.read(NOW_S, is_over=is_over, shown=shown)
    assert answer is not None
    return answer[1]


def test_no_attempt_has_started(tmp_path: Path) -> None:
    assert RanksReader(tmp_path, 0, 4).read(NOW_S, is_over=False) is None


def test_ranks_that_failed_come_first_in_the_order_of_their_failures(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    for rank in range(5):
        wrote(folder, rank, f"line of {rank}\n", 60)
    _ended(folder, 0, 143, NOW_S - 8, "cleared")
    _ended(folder, 1, 1, NOW_S - 9)
    _ended(folder, 2, 137, NOW_S - 10)
    _ended(folder, 3, 0, NOW_S - 20)
    rows = _read(RanksReader(tmp_path, 0, 5), is_over=True)
    states = [
        "2 failed (137)",
        "1 failed (1)",
        "4 no exit status",
        "0 terminated (143)",
        "3 completed",
    ]
    assert [f"{row.rank} {row.state}" for row in rows] == states
    assert rows[0].line == "line of 2"
    heading = rank_heading(next(attempts(tmp_path, 0)), rows, 5, NOW_S)
    assert heading.endswith(" ago; 2 failed, 1 no exit status, 1 terminated, 1 completed")


def test_a_silent_rank_comes_before_those_that_write(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 3)
    node(folder, "n1", 3, 2)
    wrote(folder, 0, "step 9\n", 3)
    wrote(folder, 1, "step 4\n", 900)
    wrote(folder, 2, "warning\n", 7190)  # only at the start: this rank prints nothing
    rows = _read(RanksReader(tmp_path, 0, 6))
    states = ["1 SILENT", "3 NO_OUTPUT", "4 NO_OUTPUT", "5 NOT_STARTED", "0 RUNNING", "2 RUNNING"]
    assert [f"{row.rank} {row.kind.name}" for row in rows] == states
    assert [row.node for row in rows] == ["n0", "n1", "n1", None, "n0", "n0"]


def test_a_rank_that_always_writes_seldom_is_not_silent(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 3)
    wrote(folder, 0, "2027-01-15 07:59:57 a\n2027-01-15 07:59:58 b\n", 2)
    wrote(folder, 1, "2027-01-15 07:40:00 epoch\n2027-01-15 07:50:00 epoch\n", 600)
    wrote(folder, 2, "2027-01-15 07:49:58 a\n2027-01-15 07:49:59 b\n", 601)
    rows = _read(RanksReader(tmp_path, 0, 3))
    assert [(row.rank, row.kind.name) for row in rows] == [
        (2, "SILENT"),
        (0, "RUNNING"),
        (1, "RUNNING"),
    ]


def test_without_reading_more_logs_the_ranks_beyond_the_most_pauses_are_silent(
    tmp_path: Path,
) -> None:
    count = ranks.MOST_PACES + 2
    folder = attempt(tmp_path)
    wrote(folder, 0, "2027-01-15 07:59:57 a\n2027-01-15 07:59:58 b\n", 2)
    for rank in range(1, count):
        wrote(folder, rank, "2027-01-15 07:40:00 epoch\n2027-01-15 07:50:00 epoch\n", 601 - rank)
    rows = _read(RanksReader(tmp_path, 0, count))
    assert [row.rank for row in rows if row.kind is RankState.SILENT] == [count - 1]


def test_a_rank_of_an_attempt_that_has_ended_has_no_exit_status_while_the_job_goes_on(
    tmp_path: Path,
) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "line\n", 60)
    write(folder.exit, json.dumps({"status": 1, "signal": "", "ended": NOW_S - 5}))
    assert [row.kind for row in _read(RanksReader(tmp_path, 0, 1))] == [RankState.NO_END]


def test_last_lines_are_read_again_only_where_a_rank_has_written(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    for rank in range(3):
        wrote(folder, rank, "first\n", 60)
    reader = RanksReader(tmp_path, 0, 3)
    reader.read(NOW_S, is_over=False)
    path = folder.rank_log(1, "out")
    before = path.stat().st_mtime
    path.write_text("changed, but not its time\n")
    os.utime(path, (before, before))
    wrote(folder, 2, "second\n", 10)
    assert {row.rank: row.line for row in _read(reader)} == {0: "first", 1: "first", 2: "second"}


def test_many_ranks_get_their_last_lines_in_rounds_those_on_the_screen_first(
    tmp_path: Path,
) -> None:
    count = ranks.MOST_LINES + 10
    folder = attempt(tmp_path)
    for rank in range(count):
        wrote(folder, rank, f"line {rank}\n", 5)
    reader = RanksReader(tmp_path, 0, count)
    read = [row.rank for row in _read(reader, [count - 1]) if row.line]
    assert len(read) == ranks.MOST_LINES
    assert count - 1 in read
    assert all(row.line for row in _read(reader))


def test_a_filter_takes_words_of_all_columns() -> None:
    rows = [
        RankRow(3, RankState.FAILED, "n1", exit_status=1, line="KeyError"),
        RankRow(4, RankState.RUNNING, "n1"),
    ]
    assert [row.rank for row in matching_rows(rows, "n1")] == [3, 4]
    assert [row.rank for row in matching_rows(rows, "N1 keyerror")] == [3]
    assert [row.rank for row in matching_rows(rows, "rank 4")] == [4]
    assert matching_rows(rows, "nothing") == []


def test_the_last_line_of_a_rank_that_failed_is_that_of_stderr(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "KeyError: 'recall'\n\n", 5, "err")
    wrote(folder, 0, "step 9\n", 4)
    reader = RanksReader(tmp_path, 0, 1)
    assert _read(reader)[0].line == "step 9"
    _ended(folder, 0, 1, NOW_S - 4)
    assert _read(reader, is_over=True)[0].line == "KeyError: 'recall'"
