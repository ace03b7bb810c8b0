"""What hpcrun does, for whoever wants to know: each command that it runs, how that ended, and how long it took.

It is told on stderr under ``hpcrun -v`` or HPCRUN_DEBUG, and in the folder of a run while something is done to that
run. Python's logging is imported only where somebody listens: most calls of ``hpcrun status`` need none.
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
    """Tell whoever listens."""
    if "logging" in sys.modules:
        import logging

        logging.getLogger(_NAME).info("%s", message)


@contextmanager
def timed(command: str) -> Iterator[list[str]]:
    """Tell of a command when it has ended; what is put into the list says how it did."""
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
    """Tell on stderr from now on."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("hpcrun: %(asctime)s %(message)s", "%H:%M:%S"))
    _logger().addHandler(handler)


@contextmanager
def kept_in(path: Path, what: str) -> Iterator[None]:
    """Add what is told meanwhile to a file; one that cannot be written stops nobody.

    Args:
        what: is done, such as ``cancel``: it stands before each line.
    """
    import logging

    class Quiet(logging.FileHandler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError):
                super().emit(record)

        def handleError(self, record: logging.LogRecord) -> None:
            """Print no traceback, as logging's own does."""

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
