"""Ctrl-C, before, while and after a command runs. It is imported first, so it imports next to nothing."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.errors import InterruptedByUser

EXIT_STATUS = 130  # 128 + SIGINT, as a shell reports it
MESSAGE = b"hpcrun: interrupted\n"


def exit_at_interrupt() -> None:
    """Let Ctrl-C end the process at once, with a message and no traceback.

    A KeyboardInterrupt cannot be relied on here: while modules are imported, or Python ends, it may be raised in code
    that prints a traceback and goes on. A SIGINT that the parent process ignores, as nohup's does, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_at_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: the command that runs now cleans up and prints its own message."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class interrupted_as:  # a context manager without contextlib, which would have to be imported for it
    """Say at Ctrl-C what is still going on and how to come back: ``with interrupted_as(InterruptedByUser("...")):``.

    Args:
        error: the words, or what finds them when they are needed.
    """

    def __init__(self, error: InterruptedByUser | Callable[[], InterruptedByUser]) -> None:
        self._error = error

    def __enter__(self) -> None:
        """Begin what may be interrupted."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Put the words in the place of an interrupt."""
        if isinstance(error, KeyboardInterrupt):
            raise (self._error() if callable(self._error) else self._error) from None


def _exit(_number: int, _frame: object) -> None:
    os.write(2, MESSAGE)
    os._exit(EXIT_STATUS)
