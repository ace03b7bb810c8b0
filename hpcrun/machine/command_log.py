"""The log of the commands that hpcrun runs: each, how it ended, and how many seconds it took.

``hpcrun -v`` or HPCRUN_DEBUG prints the log on stderr; ``submit`` and ``cancel`` also add it to a
file in the run's folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_logs: list[Callable[[str], object]] = []


def log_message(message: str) -> None:
    """Log a message; without ``-v``, HPCRUN_DEBUG or a file to log to, it goes nowhere."""
    for write in _logs:
        with suppress(OSError):
            write(message)


@contextmanager
def timed(command: str) -> Iterator[list[str]]:
    """Log a command when the block ends. The block puts into the list how the command ended."""
    started = time.monotonic()
    how = list[str]()
    try:
        yield how
    except BaseException as error:
        how.append(f"{type(error).__name__} {error}".strip())
        raise
    finally:
        end = how[-1] if how else ""
        words = " ".join(end.split())
        shown = "".join(letter if letter.isprintable() else "?" for letter in words)
        log_message(f"{command}: {shown}, {time.monotonic() - started:.3f} s")


def log_to_stderr() -> None:
    """Print the log on stderr from now on."""
    _logs.append(_print_on_stderr)


def _print_on_stderr(message: str) -> None:
    clock = time.strftime("%H:%M:%S")
    sys.stderr.write(f"hpcrun: {clock} {message}\n")


@contextmanager
def logged_to(path: Path, what: str) -> Iterator[None]:
    """Add the log of this block to a file.

    If the file cannot be written, the block runs all the same.

    Args:
        path: the file, to which lines are added.
        what: the action, such as ``cancel``; each line begins with it.
    """

    def write(message: str) -> None:
        # whatever the umask, no other user can write it
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            file.write(f"{now} {what}: {message}\n")

    _logs.append(write)
    try:
        yield
    finally:
        _logs.remove(write)
