"""Times at the beginning of lines."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from hpcrun.runs.log_times import Stamps

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
        ("2026-11-21T23:05:01+0130", datetime(2026, 11, 21, 21, 35, 1, tzinfo=timezone.utc).timestamp()),
        ("[E707 23:05:01.5 ProcessGroupNCCL.cpp:2090] [PG ID 2]", at(2026, 7, 7, 23, 5, 1) + 0.5),
        ("[rank3]:[E1121 23:05:01.500000000 ProcessGroupNCCL.cpp:616]", at(2026, 11, 21, 23, 5, 1) + 0.5),
        ("W1121 23:05:01.000000 1234 torch/distributed/run.py:793]", at(2026, 11, 21, 23, 5, 1)),
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


def test_days_are_counted_on() -> None:
    stamps = Stamps(STARTED)
    found = [stamps.read(clock) for clock in ("23:30:00", "11:00:00", "22:00:00", "09:00:00")]
    assert found == [at(2026, 11, 21, 23, 30), at(2026, 11, 22, 11), at(2026, 11, 22, 22), at(2026, 11, 23, 9)]


def test_a_clock_that_goes_back_a_little_is_no_new_day() -> None:
    stamps = Stamps(STARTED)
    stamps.read("23:30:00")
    assert stamps.read("23:29:59") == at(2026, 11, 21, 23, 29, 59)
