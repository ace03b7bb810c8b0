"""Ctrl-C, before, while and after a command runs.

It is imported first, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.errors import InterruptedByUser

EXIT_STATUS = 130  # 128 + SIGINT, as a shell reports it
MESSAGE = b"hpcrun: interrupted\n"
SUBMITTED: list[str] = []
"""The ids of the jobs that this command has submitted: Ctrl-C names them."""


def exit_at_interrupt() -> None:
    """Let Ctrl-C end the process at once, with a message and no traceback.

    A KeyboardInterrupt cannot be relied on here: while modules are imported, or Python ends, it may
    be raised in code that prints a traceback and goes on. A SIGINT that the parent process ignores,
    as nohup's does, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_at_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again.

    The command that runs now cleans up and prints its own message.
    """
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as a script or a coding agent sends that does not wait any longer; or SIGHUP.

    Attributes:
        exit_status: 128 + the signal, as a shell reports it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_status = 128 + number


def _terminate(number: int, _frame: object) -> None:
    raise Terminated(number)


class terminated_too:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does: with a message and --json's document.

    A signal that the parent process ignores, as nohup's does, stays ignored.
    """

    def __enter__(self) -> None:
        """Begin the block."""
        self._before = []
        for number in (signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if before != signal.SIG_IGN:
                self._before.append((number, before))
                signal.signal(number, _terminate)

    def __exit__(self, *_: object) -> None:
        """End the block."""
        for number, before in self._before:
            signal.signal(number, before)


class interrupted_as:  # not made with contextlib, which would have to be imported
    """Raise this error at Ctrl-C while the block runs.

    The error says what still runs and how to come back to it.
    """

    def __init__(self, error: InterruptedByUser | Callable[[], InterruptedByUser]) -> None:
        self._error = error

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Replace a KeyboardInterrupt with the error."""
        if isinstance(error, KeyboardInterrupt):
            interrupted = self._error() if callable(self._error) else self._error
            if isinstance(error, Terminated):
                interrupted.exit_code = error.exit_status
            raise interrupted from None


def _exit(_number: int, _frame: object) -> None:
    if SUBMITTED:
        from hpcrun.errors import InterruptedByUser

        error = InterruptedByUser.after(SUBMITTED)
        os.write(2, f"hpcrun: {error.message}\nhint: {error.hint}\n".encode())
    else:
        os.write(2, MESSAGE)
    os._exit(EXIT_STATUS)
