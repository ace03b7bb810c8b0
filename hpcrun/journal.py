"""The log of the commands that hpcrun runs: each command, how it ended, and how many seconds it took.

``hpcrun -v`` or HPCRUN_DEBUG prints it on stderr. ``submit`` and ``cancel`` also add it to a file in the run's folder.
Python's logging is imported only if the log goes somewhere: most calls of ``hpcrun status`` do without it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_NAME = "hpcrun.commands"


def note(message: str) -> None:
    """Log a message; without ``-v``, HPCRUN_DEBUG or a file to log to, it goes nowhere."""
    if "logging" in sys.modules:
        import logging

        logging.getLogger(_NAME).info("%s", message)


@contextmanager
def timed(command: str) -> Iterator[list[str]]:
    """Log a command when the block ends. The block puts into the list how the command ended."""
    started, how = time.monotonic(), list[str]()
    try:
        yield how
    except BaseException as error:
        how.append(f"{type(error).__name__} {error}".strip())
        raise
    finally:
        words = " ".join("".join(how[-1:]).split())
        shown = "".join(letter if letter.isprintable() else "?" for letter in words)
        note(f"{command}: {shown}, {time.monotonic() - started:.3f} s")


def tell_on_stderr() -> None:
    """Print the log on stderr from now on."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("hpcrun: %(asctime)s %(message)s", "%H:%M:%S"))
    _logger().addHandler(handler)


@contextmanager
def kept_in(path: Path, what: str) -> Iterator[None]:
    """Add the log of this block to a file. If the file cannot be written, the block runs all the same.

    Args:
        what: the action, such as ``cancel``; each line begins with it.
    """
    import logging

    class Quiet(logging.FileHandler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError):
                super().emit(record)

        def handleError(self, record: logging.LogRecord) -> None:
            """Print no traceback, as logging's own does."""

    with suppress(OSError):
        path.touch(0o600)  # whatever the umask, no other user can write it
    handler = Quiet(path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {what}: %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logger = _logger()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):
            handler.close()


def _logger() -> Any:
    import logging

    logger = logging.getLogger(_NAME)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a program that uses hpcrun's Executor has logs of its own
    return logger
