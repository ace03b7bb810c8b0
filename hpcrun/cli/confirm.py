"""Asking a person at a terminal."""

from __future__ import annotations

import sys

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
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        raise InterruptedByUser("interrupted; nothing was done") from None
