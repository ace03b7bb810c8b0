"""Lines of many logs in the order of their times, and progress bars."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcrun.runs import log_lines
from hpcrun.runs.log_lines import merged
from hpcrun.runs.logs import LogFile, fold, texts


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
    st.lists(st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["x", "a long line of text " * 9])), max_size=12),
             min_size=1, max_size=4),
    st.integers(16, 300),
)  # fmt: skip
def test_every_line_comes_once_in_the_order_of_its_file_and_of_times(
    tmp_path: Path, said: list[list[tuple[int, str]]], room: int
) -> None:
    """Whatever the size of the parts in which files are read."""
    logs = []
    for number, lines in enumerate(said):
        path = tmp_path / str(number)
        path.write_text("".join(f"10:00:{second:02d} {text}\n" for second, text in sorted(lines)))
        logs.append(LogFile(path, f"rank {number}"))
    parts = log_lines._read_in_parts
    for log in logs:
        assert "".join(parts(log.path, room)) == log.path.read_text()
    found = list(merged(logs, started_s=0.0))
    for log in logs:
        assert [line for item, line in found if item == log] == log.path.read_text().splitlines(keepends=True)
    clocks = [line[:8] for _, line in found]
    assert clocks == sorted(clocks)


def test_a_log_that_vanished_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("10:00:00 a\n")
    logs = [LogFile(tmp_path / "a", "rank 0"), LogFile(tmp_path / "none", "rank 1")]
    assert [line for _, line in merged(logs, started_s=0.0)] == ["10:00:00 a\n"]


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    data = b"caf\xc3\xa9 \xff\xfe\xc3"
    (tmp_path / "a").write_bytes(data)
    assert "".join(texts(tmp_path / "a")).encode("utf-8", "surrogateescape") == data
