"""Ctrl-C and SIGTERM: what they raise while a command runs, and how they end it before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hpcrun.cli import interrupt
from hpcrun.cli.interrupt import (
    Terminated,
    exit_at_interrupt,
    interrupted_as,
    raise_at_interrupt,
    terminated_too,
)
from hpcrun.errors import InterruptedByUser
from tests.harness import REPO


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Handle signals afterwards as before."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_ctrl_c_ends_the_process_before_and_after_a_command() -> None:
    exit_at_interrupt()
    assert signal.getsignal(signal.SIGINT) is interrupt._exit
    raise_at_interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_at_interrupt()
    raise_at_interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("submitted", "printed"),
    [
        ([], b"hpcrun: interrupted\n"),
        (
            ["7", "8"],
            b"hpcrun: interrupted; 2 jobs were submitted\nhint: to cancel: hpcrun cancel 7 8\n",
        ),
    ],
)
def test_the_end_by_ctrl_c_is_a_message(submitted: list[str], printed: bytes) -> None:
    program = (
        "import os, signal\n"
        "from hpcrun.cli import interrupt\n"
        f"interrupt.SUBMITTED.extend({submitted})\n"
        "interrupt.exit_at_interrupt()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPO,
        capture_output=True,
        check=False,
        timeout=60,
        restore_signals=True,
    )
    assert done.returncode == 130
    assert done.stderr == printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["TERM", "HUP"])
def test_a_terminated_command_says_what_goes_on(number: signal.Signals) -> None:
    with (
        pytest.raises(InterruptedByUser, match="the job goes on") as raised,
        interrupted_as(InterruptedByUser("the job goes on")),
        terminated_too(),
    ):
        os.kill(os.getpid(), number)
    assert raised.value.exit_code == 128 + number


def test_ctrl_c_has_the_exit_status_of_a_shell() -> None:
    with (
        pytest.raises(InterruptedByUser) as raised,
        interrupted_as(InterruptedByUser("the job goes on")),
        terminated_too(),
    ):
        os.kill(os.getpid(), signal.SIGINT)
    assert raised.value.exit_code == 130


def test_signals_are_handled_as_before_behind_the_block() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGTERM)
    with terminated_too():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is interrupt._terminate
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_the_status_of_a_terminated_command_is_128_and_the_signal() -> None:
    assert Terminated(15).exit_status == 143
    assert isinstance(Terminated(15), KeyboardInterrupt)
