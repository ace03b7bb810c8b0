"""The batch script on stdin, which ``hpcrun submit -`` reads as sbatch does."""

from __future__ import annotations

import select
import sys

from hpcrun.cli.output import tell
from hpcrun.errors import UsageError
from hpcrun.files.reading import decode_named

# shell_text.py reads less; a text without an end is cut here
_MOST_BYTES = 1_000_000
_WAIT_S = 2.0
_HINT = "give a batch script: hpcrun submit - <train.sbatch"


def is_piped() -> bool:
    """Return whether stdin is a file or a pipe, and not a terminal."""
    return sys.stdin is not None and not sys.stdin.isatty()


def read_stdin() -> str:
    """Return the text on stdin, which is to be a batch script.

    Raises:
        UsageError: stdin is closed, cannot be read, is larger than a script, or is no text.
    """
    if sys.stdin is None:
        raise UsageError("stdin is closed: there is no batch script to read", hint=_HINT)
    try:
        _tell_if_it_waits()
        data = sys.stdin.buffer.read(_MOST_BYTES + 1) or b""
    except OSError as error:
        raise UsageError(f"cannot read stdin: {error.strerror}", hint=_HINT) from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"stdin is larger than {_MOST_BYTES / 1e6:g} MB", hint=_HINT)
    try:
        return decode_named("stdin", data)
    except ValueError as error:
        raise UsageError(str(error), hint=_HINT) from None


def _tell_if_it_waits() -> None:
    """Print what the command waits for, if a terminal or a pipe has no text yet."""
    is_terminal = sys.stdin.isatty()
    has_text, _, _ = select.select([sys.stdin], [], [], 0 if is_terminal else _WAIT_S)
    if not has_text:
        end = "; Ctrl-D ends it" if is_terminal else ""
        tell([f"hpcrun: waiting for a batch script on stdin{end}"])
