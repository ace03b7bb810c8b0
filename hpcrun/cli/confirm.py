"""Asking a person at a terminal."""

from __future__ import annotations

import sys

import typer

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
    sys.stdout.flush()
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    with interrupted_as(InterruptedByUser("interrupted; nothing was done")):
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask(question: str, *, default: str, show_default: bool = True) -> str:
    """Ask, and return the answer; Enter alone is the default.

    Raises:
        KeyboardInterrupt: Ctrl-C, or the end of stdin.
    """
    try:
        return str(typer.prompt(question, default=default, show_default=show_default, err=True))
    except typer.Abort:
        raise KeyboardInterrupt from None
