"""A window on a log: what it reads of large files, of files that grow, and of several files
together.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.features.top import log_window
from hpcrun.features.top.log_window import (
    BLOCK,
    LogView,
    LogWindow,
    WindowLine,
    open_logs,
    read_stamps,
)
from hpcrun.job.text.patterns import compile_pattern
from hpcrun.runs.log_files import LONGEST_LINE, LogFile


def _log(path: Path, text: str) -> LogFile:
    path.write_text(text)
    return LogFile(path, "rank 0")


def _texts(view: LogView | LogWindow) -> list[str]:
    return [line.raw for line in view.lines]


def test_the_end_of_a_large_log_is_read_and_going_up_reads_the_blocks_before(
    tmp_path: Path,
) -> None:
    count = 60_000
    log = _log(
        tmp_path / "a.out",
        "".join(f"line {number}, and some words more\n" for number in range(count)),
    )
    window = LogWindow(log, most=2 * BLOCK)
    window.to_end()
    assert window.lines[-1].raw.startswith(f"line {count - 1},")
    assert window.end - window.begin <= BLOCK
    assert window.at_end
    assert not window.at_start

    seen = {line.at for line in window.lines}
    while not window.at_start:
        seen |= {line.at for line in window.older()}
        assert window.end - window.begin <= 3 * BLOCK
    assert len(seen) == count
    assert window.lines[0].raw.startswith("line 0,")
    assert not window.at_end

    while window.newer():
        pass
    assert window.at_end
    assert window.lines[-1].raw.startswith(f"line {count - 1},")


def test_new_lines_are_appended_and_the_line_that_is_not_complete_is_shown(tmp_path: Path) -> None:
    log = _log(tmp_path / "a.out", "one\ntwo")
    view = open_logs([log])
    assert _texts(view) == ["one", "two"]
    assert view.newer() == []
    with log.path.open("a") as file:
        file.write(" and more\nthree\nfo")
    assert [line.raw for line in view.newer()] == ["two and more", "three", "fo"]
    assert _texts(view) == ["one", "two and more", "three", "fo"]


def test_a_long_line_without_an_end_is_read_in_pieces(tmp_path: Path) -> None:
    view = open_logs([_log(tmp_path / "a.out", "x" * (2 * BLOCK))])
    assert view.at_end
    assert 0 < sum(len(line.raw) for line in view.lines) <= 2 * BLOCK


def test_a_log_that_is_not_there_yet_is_read_when_it_comes(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.out", "rank 0")
    view = open_logs([log])
    assert view.lines == []
    assert view.error == ""
    assert view.at_end is True
    log.path.write_text("now\n")
    view.newer()
    assert _texts(view) == ["now"]
    log.path.unlink()
    assert view.newer() == []
    assert "No such file" in view.error
    assert _texts(view) == ["now"]


def test_a_truncated_log_and_another_file_of_its_name_are_read_anew(tmp_path: Path) -> None:
    log = _log(tmp_path / "a.out", "old\n" * 10)
    view = open_logs([log])
    log.path.write_text("new\n")
    view.newer()
    assert _texts(view) == ["new"]
    other = _log(tmp_path / "b.out", "another, longer\n" * 3)
    other.path.rename(log.path)
    view.newer()
    assert _texts(view) == ["another, longer"] * 3


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "a.out").symlink_to("secret")
    view = open_logs([LogFile(tmp_path / "a.out", "rank 0")])
    assert view.lines == []
    assert "symbolic link" in view.error


def test_lines_of_two_logs_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    out = _log(
        tmp_path / "a.out", "2026-11-20 10:00:00 one\n  more of one\n2026-11-20 10:00:09 four\n"
    )
    err = _log(tmp_path / "a.err", "2026-11-20 10:00:05 two\n2026-11-20 10:00:06 three\n")
    assert [text.split()[-1] for text in _texts(open_logs([out, err]))] == [
        "one",
        "one",
        "two",
        "three",
        "four",
    ]


def test_lines_without_times_stand_where_they_were_written(tmp_path: Path) -> None:
    out = _log(tmp_path / "a.out", "2001-09-09 10:00:00 step 1\n2001-09-09 10:00:10 step 2\n")
    err = _log(tmp_path / "a.err", "Traceback\nKeyError\n")
    assert _texts(open_logs([out, err]))[-2:] == ["Traceback", "KeyError"]
    os.utime(err.path, (1, 1))
    assert _texts(open_logs([out, err]))[:2] == ["Traceback", "KeyError"]


def test_a_time_of_day_is_of_the_day_before_the_line_was_read(tmp_path: Path) -> None:
    view = open_logs([_log(tmp_path / "a.out", "23:59:59 before midnight\n00:00:01 after it\n")])
    read_stamps(view.lines)
    before, after = (line.stamp_s or 0.0 for line in view.lines)
    assert after - before == 2.0
    assert [line.raw[line.stamp_end :] for line in view.lines] == [" before midnight", " after it"]


def test_a_search_reads_on_until_it_finds_or_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_window, "SKIMMED", 100_000)
    hay = "".join(f"hay {number}\n" for number in range(50_000))
    err = _log(tmp_path / "a.err", "on stderr\n")
    view = LogView(
        [
            LogWindow(_log(tmp_path / "a.out", f"needle\n{hay}needles\n{hay}end"), most=BLOCK),
            LogWindow(err),
        ]
    )
    view.to_end()

    def find(
        words: str, start: WindowLine | None, *, up: bool, stopped: bool = False
    ) -> WindowLine | None:
        match, turned = view.find(compile_pattern(words), start, up=up, is_stopped=lambda: stopped)
        assert not turned or match is None
        return match

    second = find("needle", None, up=True)
    assert second is not None
    assert second.raw == "needles"
    assert second in view.lines
    first = find("needle", second, up=True)
    assert first is not None
    assert (first.raw, first.at) == ("needle", 0)
    assert first in view.lines
    assert (find("needle", first, up=False) or first).raw == "needles"
    assert (find("^end$", first, up=False) or first).raw == "end"

    view.to_end()
    before = _texts(view)
    assert find("nothing", None, up=True) is None
    assert find("needle", None, up=True, stopped=True) is None
    assert _texts(view) == before


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("x" * LONGEST_LINE, 0),
        ("x" * (LONGEST_LINE + 1), LONGEST_LINE + 1),
        ("one\n" + "x" * 2 * LONGEST_LINE, 4),
    ],
    ids=["short", "long", "behind a line"],
)
def test_an_unfinished_line_waits_unless_it_is_long(tmp_path: Path, text: str, read: int) -> None:
    window = LogWindow(_log(tmp_path / "a.out", text))
    window.begin = window.end = len(text)
    window.older()
    assert window.end == read


@pytest.mark.parametrize(("up", "at"), [(False, (7000, 8000)), (True, (8007, 9007))])
def test_a_search_moves_over_what_cannot_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: tuple[int, int], *, up: bool
) -> None:
    monkeypatch.setattr(log_window, "SKIMMED", 1000)
    monkeypatch.setattr(log_window, "BLOCK", 500)
    hay = "hay\n" * 2000
    window = LogWindow(_log(tmp_path / "a.out", f"{hay}needle\n{hay}"))
    if up:
        window.to_end()
    else:
        window.to_start()
    window.skim(compile_pattern("needle"), up=up, is_stopped=iter([False] * 20 + [True]).__next__)
    place = window.begin if up else window.end
    assert at[0] <= place <= at[1]
