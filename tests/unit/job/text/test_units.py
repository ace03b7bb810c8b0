"""Times, sizes, numbers and lists, as Slurm writes them and as people do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun.job.text.units import (
    format_memory,
    format_rate,
    format_size,
    format_time,
    host_list,
    parse_count,
    parse_duration,
    parse_memory,
    parse_positive,
    parse_slurm_time,
    parse_time,
    parse_walltime,
)

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("1:30", MINUTE + 30),
        ("1:30:00", HOUR + 30 * MINUTE),
        ("100:00:00", 100 * HOUR),
        ("1-12", DAY + 12 * HOUR),
        ("1-12:30", DAY + 12 * HOUR + 30 * MINUTE),
        ("1-12:30:15", DAY + 12 * HOUR + 30 * MINUTE + 15),
        ("2-00:00:00", 2 * DAY),
        ("36h", 36 * HOUR),
        ("90m", 90 * MINUTE),
        ("45s", 45),
        ("1d12h", DAY + 12 * HOUR),
        ("1d2h3m4s", DAY + 2 * HOUR + 3 * MINUTE + 4),
        ("36H", 36 * HOUR),
        (" 90m ", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("2w", 14 * DAY),
        ("42.3s", 43),
    ],
)
def test_a_time_is_read_in_slurm_s_forms_and_in_people_s(typed: str, seconds: int) -> None:
    assert parse_time(typed) == seconds


@pytest.mark.parametrize(
    ("parse", "texts", "message"),
    [
        (
            parse_time,
            [
                "",
                " ",
                "soon",
                "1:2:3:4",
                "-5",
                "1h30",
                "h",
                "1-",
                "-1:00",
                "1:",
                "90 m",
                "1m1h",
                "1-1-1",
                "٣٦m",
            ],
            "is not a time; write it as 90m, 36h, 1d12h, 1:30:00 or 1-12:00:00",
        ),
        (parse_time, ["0", "0:00", "0:00:00", "0-0", "0h", "00:00:00"], "zero"),
        (
            parse_memory,
            ["", "G", "64X", "-64G", "64 G", "1,5G", "all", "64G per node", "1e3", "64B", ".5G"],
            "is not a memory size; write it as 64G, 500M",
        ),
        (parse_memory, ["512K", "1K", "0.5M"], "less than a megabyte"),  # 0 would be all
        (
            parse_count,
            [
                "",
                "0",
                "0.0M",
                "-1",
                "1.5",
                "1.2m",
                "1,2M",
                "1e6",
                "1M2",
                "١٢",
                "NaN",
                "inf",
                "M",
                "1.0000005M",
                "9" * 40,
            ],
            "write it as 1200000,",
        ),
        (
            parse_positive,
            ["nan", "inf", "1e400", "0", "-1", "1e-400", "", "1_0", "１", "0x1p3"],
            "not a number above zero",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_forms_that_can(
    parse: Callable[[str], object], texts: list[str], message: str
) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=message):
            parse(text)


def test_a_number_alone_is_refused_but_for_slurm_s_minutes() -> None:
    for parse in (parse_time, parse_duration):
        with pytest.raises(
            ValueError, match="'90' has no unit; write 90m for minutes, or 90s, 90h or 90d"
        ):
            parse(" 90 ")
    for parse_limit in (parse_slurm_time, parse_walltime):
        assert parse_limit(" 90 ") == 90 * MINUTE
    assert parse_slurm_time("1:30") == MINUTE + 30


def test_a_time_is_written_as_slurm_prints_it() -> None:
    times = {
        1: "00:00:01",
        90: "00:01:30",
        HOUR: "01:00:00",
        DAY - 1: "23:59:59",
        36 * HOUR: "1-12:00:00",
    }
    assert {seconds: format_time(seconds) for seconds in times} == times


@given(st.integers(1, 400 * DAY))
def test_a_time_written_is_read_back_the_same(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds


@pytest.mark.parametrize(
    ("typed", "megabytes"),
    [
        ("0", 0),
        ("500", 500),
        ("500M", 500),
        ("500MB", 500),
        ("64G", 65536),
        ("64g", 65536),
        ("64GB", 65536),
        ("64GiB", 65536),
        ("1.5T", 1536 * 1024),
        ("0.5G", 512),
        ("2048K", 2),
        (" 64G ", 65536),
    ],
)
def test_a_memory_size_is_read(typed: str, megabytes: int) -> None:
    assert parse_memory(typed) == megabytes


@given(st.integers(0, 10**12 - 1))
@example(0)
@example(1024)
@example(1024**2)
def test_a_memory_size_written_is_read_back_the_same(megabytes: int) -> None:
    assert parse_memory(format_memory(megabytes)) == megabytes


@given(st.text("0123456789:-.dhmsKMGTiB ", max_size=12) | st.text(max_size=12))
@example("9" * 400)
@example("9" * 400 + "h")
@example("9" * 400 + "T")
@example("9" * 5000)
def test_any_text_is_a_time_or_a_size_or_is_refused_in_words(typed: str) -> None:
    for parse in (parse_time, parse_memory):
        try:
            parse(typed)
        except ValueError as error:
            assert str(error)


def test_bytes_are_written_in_the_largest_unit_that_fits_and_rates_in_powers_of_ten() -> None:
    sizes = {
        0: "0 kB",
        1: "1 kB",
        1025: "2 kB",
        340 << 20: "340 MB",
        (1 << 30) - 1: "1024 MB",
        3 << 29: "1.5 GB",
    }
    assert {size: format_size(size) for size in sizes} == sizes
    rates = {0: "0.0 kB/s", 999_999: "1000.0 kB/s", 1_000_000: "1.00 MB/s", 2.5e9: "2.50 GB/s"}
    assert {rate: format_rate(rate) for rate in rates} == rates


def test_counts_and_positive_numbers() -> None:
    counts = {
        "1.2M": 1_200_000,
        "500k": 500_000,
        "0.5K": 500,
        "7B": 7 * 10**9,
        "7G": 7 * 10**9,
        "20480": 20480,
    }
    assert {text: parse_count(text) for text in counts} == counts
    assert [parse_positive(text) for text in ("1e-3", "0.001", ".5", "2")] == [0.001, 0.001, 0.5, 2]


@given(st.integers(1, 10**12))
def test_a_number_in_millions_is_that_number(number: int) -> None:
    assert parse_count(f"{number // 10**6}.{number % 10**6:06}M") == number


def test_nodes_are_listed_as_squeue_does(subtests: pytest.Subtests) -> None:
    for names, text in (
        ([], ""),
        (["login"], "login"),
        (["a100-1"], "a100-1"),
        (["a100-1", "a100-2"], "a100-[1-2]"),
        (["a100-2", "b7", "a100-4", "a100-3", "login"], "a100-[2-4],b7,login"),
        (["node09", "node10"], "node09,node10"),
    ):
        with subtests.test(names=names):
            assert host_list(names) == text
