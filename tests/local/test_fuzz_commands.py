"""Hostile command lines on a terminal: some of what `make fuzz` tries, and that it would see what
is wrong.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from dev.hostile.command_lines import all_commands, command_line
from dev.hostile.fuzz_commands import Outcome, judge
from tests.harness import REPO

TITLE = b"\x1b]0;PWNED\x07"


def test_hostile_command_lines_end_with_a_message_and_leave_nothing_behind() -> None:
    argv = [
        sys.executable,
        "-m",
        "dev.hostile.fuzz_commands",
        "--count",
        "25",
        "--seed",
        "5",
        "--workers",
        "1",
    ]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("25 command lines (seed 5)")
    # again, by its number
    argv = [sys.executable, "-m", "dev.hostile.fuzz_commands", "--seed", "1", "--only", "3"]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=300)
    assert "exit status " in done.stdout, done.stdout + done.stderr
    assert "1 command lines (seed 1)" in done.stdout


def test_a_line_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    commands = all_commands()
    lines = [command_line(commands, 1, number) for number in range(200)]
    assert lines == [command_line(commands, 1, number) for number in range(200)]
    assert lines != [command_line(commands, 2, number) for number in range(200)]
    assert {b"submit", b"status", b"profile", b"clean"} <= {line[0] for line in lines}


@pytest.mark.parametrize(
    ("argv", "outcome", "kind"),
    [
        ((b"status",), Outcome(2, b"no such run\n", 1), None),
        ((b"status", TITLE), Outcome(6, b"no run '\\x1b]0;PWNED\\x07'\n", 1), None),
        ((b"status", TITLE), Outcome(6, b"no run '" + TITLE + b"'\n", 1), "escape sequence"),
        (
            (b"status",),
            Outcome(6, b"Traceback (most recent call last)\nKeyError: 1\n", 1),
            "traceback",
        ),
        ((b"status",), Outcome(1, b"this is a bug in hpcrun\n", 1), "exit status"),
        ((b"status",), Outcome(-11, b"", 1), "exit status"),
        ((b"status",), Outcome(0, b"", 21), "time"),
    ],
)
def test_what_is_wrong_with_a_line(
    argv: tuple[bytes, ...], outcome: Outcome, kind: str | None
) -> None:
    assert [found for found, _ in judge(argv, outcome)] == ([kind] if kind else [])
