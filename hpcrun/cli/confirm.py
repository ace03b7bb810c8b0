"""Asking a person at a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys

from hpcrun.cli.interrupt import interrupted_as
from hpcrun.errors import InterruptedByUser


def can_ask() -> bool:
    """Whether a person sits at a terminal who can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Ask, and return whether the answer was yes; nothing typed is no.

    Raises:
        InterruptedByUser: Ctrl-C.
    """
    with interrupted_as(InterruptedByUser("interrupted; nothing was done")):
        return _answer(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def ask(question: str, *, default: str, show_default: bool = True) -> str:
    """Ask, and return the answer; Enter alone is the default.

    Raises:
        KeyboardInterrupt: Ctrl-C, or the end of stdin.
    """
    line = _answer(f"{question} [{default}]: " if show_default else f"{question}: ")
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n") or default


def _answer(question: str) -> str:
    """Print a question and read a line; Ctrl-C in the moment before the reading begins is heard as well.

    It would be lost in read(2), which begins behind the signal and waits: Python's handlers run only between two
    steps of its own. What wakes select is there already (signal.set_wakeup_fd).
    """
    sys.stdout.flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes)
    try:
        select.select([sys.stdin, woken], [], [])
        return sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)
