"""Numbers that people type about a training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.job.units import parse_count, parse_duration, parse_positive


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.2M", 1_200_000),
        ("500k", 500_000),
        ("0.5K", 500),
        ("7B", 7 * 10**9),
        ("7G", 7 * 10**9),
        ("20480000", 20480000),
    ],
)
def test_counts(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "0", "0.0M", "-1", "1.5", "1.2m", "1,2M", "1e6", "1M2", "١٢", "NaN", "inf", "M", "1.0000005M", "9" * 40],
)
def test_no_counts(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 1200000,"):
        parse_count(text)


@given(st.integers(1, 10**12))
def test_a_number_in_millions_is_that_number(number: int) -> None:
    assert parse_count(f"{number // 10**6}.{number % 10**6:06}M") == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("36m", 2160),
        ("42.3s", 42.3),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("0:36:00", 2160),
        ("1-00:00:00", 86400),
        ("1d", 86400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [("36", "has no unit"), ("", "is not a time"), ("0s", "longer than zero"),
     ("36 minutes", "is not a time"), ("m", "is not a time"), ("-5m", "is not a time"), ("٣٦m", "is not a time"),
     ("0:00:00", "longer than zero")],
)  # fmt: skip
def test_no_durations(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_duration(text)


@pytest.mark.parametrize("text", ["nan", "inf", "1e400", "0", "-1", "1e-400", "", "1_0", "１", "0x1p3"])
def test_no_positive_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="not a number above zero"):
        parse_positive(text)


def test_positive_numbers() -> None:
    assert [parse_positive(text) for text in ("1e-3", "0.001", ".5", "2")] == [0.001, 0.001, 0.5, 2]
