"""How logs are printed: whole, by lines with their ranks, and on a terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcrun.actions.runs.log_choice import LogChoice
from hpcrun.cli.log_output import (
    Lines,
    _LinePrinter,
    _TerminalPrinter,
    heading,
    label,
    print_finished,
    terminal_text,
)
from hpcrun.errors import NotFoundError
from hpcrun.job.text.patterns import compile_pattern
from hpcrun.runs.log_files import LogFile
from tests.unit.builders import write

OUT = LogFile(Path("rank-0.out"), "rank 0")
ERR = LogFile(Path("rank-0.err"), "rank 0")
BATCH = LogFile(Path("batch.log"), "batch")


@pytest.mark.parametrize(
    ("log", "short", "whole"),
    [
        (OUT, "rank 0", "==> rank 0 stdout <=="),
        (ERR, "rank 0 err", "==> rank 0 stderr <=="),
        (BATCH, "batch", "==> batch <=="),
    ],
    ids=["out", "err", "batch"],
)
def test_a_log_is_named_by_rank_and_stream(log: LogFile, short: str, whole: str) -> None:
    assert label(log) == short
    assert heading(log) == whole


def logs(folder: Path, **texts: str) -> Path:
    """A run whose ranks have printed these texts: ``out0``, ``err0``."""
    attempt = folder / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "7", "host": "n1", "started": 5.0}))
    for name, text in texts.items():
        write(attempt / f"rank-{name[3:]}.{name[:3]}", text)
    return folder


def printed(
    capfd: pytest.CaptureFixture[str],
    folder: Path,
    choice: LogChoice | None = None,
    lines: Lines | None = None,
) -> str:
    """What is printed on stdout of the logs of a run."""
    assert print_finished(folder, choice or LogChoice(), lines)
    return capfd.readouterr().out


def test_one_log_is_printed_without_a_heading(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert printed(capfd, logs(tmp_path, out0="a\nb")) == "a\nb"


def test_two_logs_have_headings_with_a_line_between(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = "==> rank 0 stdout <==\na\n\n==> rank 0 stderr <==\nb\n"
    assert printed(capfd, logs(tmp_path, out0="a\n", err0="b\n")) == expected
    assert printed(capfd, logs(tmp_path, out0="a", err0="b\n")) == expected


def test_the_lines_of_several_ranks_begin_with_their_rank(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = logs(tmp_path, out0="a\n", out1="b\nc")
    shown = printed(capfd, folder, LogChoice(ranks=(0, 1)))
    assert shown == "[rank 0] a\n[rank 1] b\n[rank 1] c\n"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (Lines(last=1), "loss 3\n"),
        (Lines(pattern=compile_pattern("loss")), "loss 1\nloss 3\n"),
        (Lines(pattern=compile_pattern("loss"), last=1), "loss 3\n"),
        (Lines(since_s=2000.0), ""),
        (Lines(since_s=1000.0), "loss 1\nstep 2\nloss 3\n"),
    ],
    ids=["last", "pattern", "last that matches", "older", "younger"],
)
def test_the_chosen_lines_are_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], lines: Lines, shown: str
) -> None:
    folder = logs(tmp_path, out0="loss 1\nstep 2\nloss 3\n")
    os.utime(folder / "elements/0/attempts/0/rank-0.out", (1500, 1500))
    assert printed(capfd, folder, lines=lines) == shown


def test_without_a_match_that_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = Lines(pattern=compile_pattern("loss"))
    print_finished(logs(tmp_path, out0="a\n"), LogChoice(), lines)
    assert capfd.readouterr().err == "hpcrun: no line matches\n"


def test_a_run_without_logs_prints_nothing(tmp_path: Path) -> None:
    assert print_finished(logs(tmp_path), LogChoice()) is False


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = logs(tmp_path, out0="a\n")
    path = folder / "elements/0/attempts/0/rank-0.out"
    path.rename(tmp_path / "real")
    path.symlink_to(tmp_path / "real")
    with pytest.raises(NotFoundError, match=r"rank-0.out cannot be read: is a symbolic link"):
        print_finished(folder, LogChoice())


def test_merged_lines_are_the_last_of_all_logs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = logs(tmp_path, out0="2027-01-01 00:00:01 a\n", out1="2027-01-01 00:00:02 b")
    lines = Lines(merge=True)
    choice = LogChoice(ranks=(0, 1))
    shown = ["[rank 0] 2027-01-01 00:00:01 a", "[rank 1] 2027-01-01 00:00:02 b"]
    assert printed(capfd, folder, choice, lines).splitlines() == shown
    last = Lines(merge=True, last=1)
    assert printed(capfd, folder, choice, last).splitlines() == shown[1:]


def test_a_line_waits_for_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    printer = _LinePrinter(prefixes=True, pattern=None, colours=None)
    printer.feed(OUT, "one\ntw")
    printer.feed(ERR, "other\n")
    assert capfd.readouterr().out == "[rank 0] one\n[rank 0 err] other\n"
    printer.feed(OUT, "o")
    printer.finish()
    assert capfd.readouterr().out == "[rank 0] two\n"


def test_a_line_of_more_than_64_kibibytes_does_not_wait(capfd: pytest.CaptureFixture[str]) -> None:
    printer = _LinePrinter(prefixes=False, pattern=None, colours=None)
    printer.feed(OUT, "x" * 65536)
    assert capfd.readouterr().out == ""
    printer.feed(OUT, "x")
    assert capfd.readouterr().out == "x" * 65537 + "\n"


def test_the_states_of_a_long_progress_bar_do_not_count(capfd: pytest.CaptureFixture[str]) -> None:
    printer = _LinePrinter(prefixes=False, pattern=None, colours=None)
    printer.feed(OUT, "10%\r" * 20_000)
    assert capfd.readouterr().out == ""
    printer.feed(OUT, "100%\n")
    assert capfd.readouterr().out == "100%\n"


def on_terminal(capfd: pytest.CaptureFixture[str], *pieces: str, width: int = 20) -> list[str]:
    """What a terminal of this width gets for each piece, and at the end."""
    printer = _TerminalPrinter(colours=False, width=width)
    shown = []
    for piece in pieces:
        printer.feed(OUT, piece)
        shown.append(capfd.readouterr().out)
    printer.finish()
    return [*shown, capfd.readouterr().out]


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["one\n"], ["one\n", ""]),
        (["on", "e\n"], ["on", "e\n", ""]),
        (["10%", "\r20%"], ["10%", "\r\x1b[K20%", "\n"]),
        (["a" * 30], ["a" * 19, "a" * 11 + "\n"]),
        (["one", " two"], ["one", " two", "\n"]),
    ],
    ids=["line", "piece", "bar", "wide", "end"],
)
def test_a_terminal_shows_the_line_that_is_being_written(
    capfd: pytest.CaptureFixture[str], pieces: list[str], shown: list[str]
) -> None:
    assert on_terminal(capfd, *pieces) == shown


def test_another_log_ends_the_line_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    printer = _TerminalPrinter(colours=False, width=20)
    printer.feed(OUT, "one")
    printer.feed(ERR, "two\n")
    assert capfd.readouterr().out == "one\ntwo\n"


@pytest.mark.parametrize(
    ("line", "colours", "shown"),
    [
        ("\x1b[31mred\n", True, "\x1b[31mred\x1b[0m\n"),
        ("\x1b[31mred\x1b[0m\n", True, "\x1b[31mred\x1b[0m\n"),
        ("\x1b[31mred\x1b[m", True, "\x1b[31mred\x1b[m"),
        ("\x1b[31mred\n", False, "red\n"),
        ("a\rb\n", True, "b\n"),
        ("\udcff", True, "\ufffd"),
    ],
    ids=["reset", "no second reset", "short reset", "no colours", "bar", "byte"],
)
def test_a_line_is_safe_on_a_terminal(line: str, colours: bool, shown: str) -> None:
    assert terminal_text(line, colours=colours) == shown
