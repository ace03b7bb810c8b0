"""Times at the beginning of lines, lines of many logs in the order of their times, and progress
bars.
"""

from __future__ import annotations

import tracemalloc
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcrun.runs import log_times
from hpcrun.runs.log_files import LogFile, fold, texts
from hpcrun.runs.log_times import (
    Stamps,
    has_stamps,
    merged,
    second_of_year,
    seconds_between,
    since,
)
from tests.unit.builders import write

STARTED = datetime(2026, 11, 21, 23, 0, 0).timestamp()


def at(*when: int) -> float:
    return datetime(*when).timestamp()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-11-21 23:05:01 INFO begins", at(2026, 11, 21, 23, 5, 1)),
        ("2026-11-21T23:05:01.250 begins", at(2026, 11, 21, 23, 5, 1) + 0.25),
        ("2026-11-21 23:05:01,250 - root - INFO", at(2026, 11, 21, 23, 5, 1) + 0.25),
        ("[2026-11-21 23:05:01] a100-1:12:34 [0] NCCL WARN", at(2026, 11, 21, 23, 5, 1)),
        ("2026/11/21 23:05:01 jax", at(2026, 11, 21, 23, 5, 1)),
        ("2026-11-21T23:05:01Z", datetime(2026, 11, 21, 23, 5, 1, tzinfo=timezone.utc).timestamp()),
        (
            "2026-11-21T23:05:01+0130",
            datetime(2026, 11, 21, 21, 35, 1, tzinfo=timezone.utc).timestamp(),
        ),
        ("[E707 23:05:01.5 ProcessGroupNCCL.cpp:2090] [PG ID 2]", at(2026, 7, 7, 23, 5, 1) + 0.5),
        (
            "[rank3]:[E1121 23:05:01.500000000 ProcessGroupNCCL.cpp:616]",
            at(2026, 11, 21, 23, 5, 1) + 0.5,
        ),
        ("I0101 00:00:05.0 the year after", at(2027, 1, 1, 0, 0, 5)),
        ("23:05:01 begins", at(2026, 11, 21, 23, 5, 1)),
        ("[00:05:01] the day after", at(2026, 11, 22, 0, 5, 1)),
        ("\x1b[32m[23:05:01.5]\x1b[0m coloured", at(2026, 11, 21, 23, 5, 1) + 0.5),
        ("1795300001.5 seconds", 1795300001.5),
        ("loss 23:05:01", None),
        ("25:61:61 is none", None),
        ("2026-13-41 23:05:01 is none", None),
        ("17953000012345 a number", None),
        ("", None),
    ],
)
def test_a_time_is_read(line: str, expected: float | None) -> None:
    assert Stamps(STARTED).read(line) == expected


@pytest.mark.parametrize(
    ("line", "other", "between_s"),
    [
        (
            "[E1122 16:29:32.123 ProcessGroupNCCL.cpp:629] [Rank 3]",
            "2026-11-22 16:29:33,123 INFO x",
            1.0,
        ),
        ("[E707 08:21:44.5 ProcessGroupNCCL.cpp:2090] x", "2026-07-07T08:21:45.500+01:00 | x", 1.0),
        (
            "W1122 00:21:32.269000 757 torch/distributed/x.py:1] x",
            "2026-11-22 00:21:30.269 | ERROR | a:b:1 - x",
            -2.0,
        ),
        (
            "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-12-31T23:59:59 ***",
            "[W101 00:00:01.0 x.cpp:1] x",
            2.0,
        ),
        (
            "[2026-11-22 10:00:00] n1:1:1 [0] x.cc:1 NCCL WARN x",
            "11/22/2026 10:00:05 - INFO - __main__ - x",
            5.0,
        ),
    ],
)
def test_the_times_of_all_kinds_of_lines_are_compared(
    line: str, other: str, between_s: float
) -> None:
    one_s, other_s = second_of_year(line), second_of_year(other)
    assert one_s is not None
    assert other_s is not None
    assert seconds_between(one_s, other_s) == pytest.approx(between_s, abs=1e-6)


@pytest.mark.parametrize(
    "line", ["step 1122 16:29:32 loss", "[E1399 16:29:32.1 x.cpp:1]", "took 00:01:02", ""]
)
def test_a_line_without_a_date_has_no_time(line: str) -> None:
    assert second_of_year(line) is None


def test_days_are_counted_on_and_lines_since_a_time_begin_with_the_first_not_before_it() -> None:
    stamps = Stamps(STARTED)
    times = [
        stamps.read(clock) for clock in ("23:30:00", "23:29:59", "11:00:00", "22:00:00", "09:00:00")
    ]
    days = [(21, 23, 30), (21, 23, 29, 59), (22, 11), (22, 22), (23, 9)]
    assert times == [at(2026, 11, *day) for day in days]
    lines = [
        "no time",
        "2026-11-21 23:00:00 before",
        "  before",
        "2026-11-21 23:00:05 then",
        "  and this",
        "2026-11-21 22:59:00 a clock set back",
    ]
    begin_s, started_s = at(2026, 11, 21, 23, 0, 5), at(2026, 11, 21, 22, 0)
    assert list(since(iter(lines), begin_s, started_s)) == lines[3:]
    assert list(since(iter(lines), begin_s + 1, started_s)) == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain\n"),
        ("windows\r\n", "windows\n"),
        ("\r10%\r20%\n", "20%\n"),
        ("\r10%\r20%", "20%"),
        ("10%\r", "10%"),
        ("\r\r\n", "\n"),
        ("", ""),
    ],
)
def test_of_a_bar_its_last_state_is_left(line: str, shown: str) -> None:
    assert fold(line) == shown


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 59), st.sampled_from(["x", "a long line of text " * 9])),
            max_size=12,
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(16, 300),
)
def test_every_line_comes_once_in_the_order_of_its_file_and_of_times(
    tmp_path: Path, said: list[list[tuple[int, str]]], room: int
) -> None:
    """Whatever the size of the parts in which files are read."""
    logs = []
    for number, lines in enumerate(said):
        path = tmp_path / str(number)
        path.write_text("".join(f"10:00:{second:02d} {text}\n" for second, text in sorted(lines)))
        logs.append(LogFile(path, f"rank {number}"))
    parts = log_times._read_in_parts
    for log in logs:
        assert "".join(parts(log.path, room)) == log.path.read_text()
    found = list(merged(logs, started_s=0.0))
    for log in logs:
        assert [line for item, line in found if item == log] == log.path.read_text().splitlines(
            keepends=True
        )
    clocks = [line[:8] for _, line in found]
    assert clocks == sorted(clocks)


def test_a_log_that_vanished_is_left_out_and_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    data = b"10:00:00 caf\xc3\xa9 \xff\xfe\xc3\n"
    (tmp_path / "a").write_bytes(data)
    assert "".join(texts(tmp_path / "a")).encode("utf-8", "surrogateescape") == data
    logs = [LogFile(tmp_path / "a", "rank 0"), LogFile(tmp_path / "none", "rank 1")]
    assert [line.encode("utf-8", "surrogateescape") for _, line in merged(logs, started_s=0.0)] == [
        data
    ]
    assert list(merged([], started_s=0.0)) == []


def test_times_are_seen_at_the_beginning_and_at_the_end_of_a_log(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for before, line, after in (
        (0, "23:00:05 x", 1000),
        (150, "23:00:05 x", 1000),
        (1000, "23:00:05 x", 150),
        (1000, "23:00:05 x", 0),
        (500, "loss 23:00:05", 0),
    ):
        with subtests.test(before=before):
            (tmp_path / "a").write_text("no time\n" * before + f"{line}\n" + "no time\n" * after)
            assert has_stamps(tmp_path / "a", 0.0) == (line == "23:00:05 x"), before


def test_of_many_logs_little_is_held_in_memory_and_no_line_is_lost(tmp_path: Path) -> None:
    text = "".join(f"10:00:{second:02d} {'x' * 2000}\n" for second in range(60))
    logs = [LogFile(write(tmp_path / str(rank), text), f"rank {rank}") for rank in range(200)]
    tracemalloc.start()
    count = sum(1 for _ in merged(logs, started_s=0.0))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200 * 60
    assert most < 16 * 1024 * 1024  # of 24
