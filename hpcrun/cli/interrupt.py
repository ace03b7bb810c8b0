"""What Ctrl-C does before and after a command runs: imported first, so it imports next to nothing."""

from __future__ import annotations

import os
import signal

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


def _exit(_number: int, _frame: object) -> None:
    os.write(2, MESSAGE)
    os._exit(EXIT_STATUS)
