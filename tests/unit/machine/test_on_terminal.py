"""Programs that use the terminal, and those of which only the status counts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from hpcrun.machine.on_terminal import run_on_terminal, succeeds

ENV = {"PATH": "/usr/bin:/bin", "WORD": "hello"}


def read_all(into: list[bytes]) -> Callable[[int], None]:
    """Return a reader that puts all it reads into a list."""

    def read(descriptor: int) -> None:
        while data := os.read(descriptor, 100):
            into.append(data)

    return read


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM)]
)
def test_the_status_is_that_of_the_program(script: str, status: int) -> None:
    assert run_on_terminal(["sh", "-c", script], ENV) == status


def test_what_the_program_prints_is_read() -> None:
    out: list[bytes] = []
    errors: list[bytes] = []
    argv = ["sh", "-c", "echo $WORD; echo oh no >&2"]
    status = run_on_terminal(argv, ENV, read=read_all(out), read_errors=read_all(errors))
    assert status == 0
    assert b"".join(out) == b"hello\n"
    assert b"".join(errors) == b"oh no\n"


def test_a_program_is_ended_where_its_reader_fails() -> None:
    def read(_: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_on_terminal(["sleep", "60"], ENV, read=read)


@pytest.mark.parametrize(("status", "shown"), [(255, -signal.SIGINT), (3, 3)])
def test_ctrl_c_is_told_where_the_program_says_so(status: int, shown: int) -> None:
    script = f"kill -INT $PPID; exit {status}"
    assert run_on_terminal(["sh", "-c", script], ENV) == shown


def test_signals_are_handled_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_on_terminal(["true"], ENV)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_on_terminal(["no-such-program"], ENV)


@pytest.mark.parametrize(
    ("argv", "ok"),
    [(["true"], True), (["sh", "-c", "exit 3"], False), (["no-such-program"], False)],
    ids=["true", "status", "none"],
)
def test_a_program_succeeds_with_status_0(argv: list[str], ok: bool) -> None:
    assert succeeds(argv, within_s=20) is ok


def test_a_program_that_takes_too_long_does_not_succeed() -> None:
    began = time.monotonic()
    assert succeeds(["sleep", "60"], within_s=0.02) is False
    assert time.monotonic() - began < 30
