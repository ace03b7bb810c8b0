"""Runs a program on this terminal: an editor, a shell, ssh.

``hpcrun --on`` waits for its imports, which are few.
"""

from __future__ import annotations

import os
import signal
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SSH_FAILED = 255
"""The exit status of ssh itself, also if a signal ends it."""
_ERRORS_WITHIN_S = 2.0
"""How long the rest of stderr is waited for: a process in the background may hold it open."""


def run_on_terminal(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    read: Callable[[int], None] | None = None,
    read_errors: Callable[[int], None] | None = None,
    interrupted: Sequence[int] = (SSH_FAILED,),
) -> int:
    """Run a program that uses the terminal, such as an editor; return its exit status.

    With ``read`` its stdout is a pipe instead, whose descriptor ``read`` gets; with ``read_errors``
    so is its stderr, which is read in a thread. After Ctrl-C the status is -SIGINT if the program
    has ended with one of the statuses ``interrupted``.

    Raises:
        OSError: there is no such program.
    """
    before = {number: signal.getsignal(number) for number in _HANDLED}
    interrupts: list[int] = []
    # for the program alone, as in git
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    pipes = []
    if read:
        source, sink = os.pipe()
        pipes.append((os.POSIX_SPAWN_DUP2, sink, 1))
    if read_errors:
        errors, errors_sink = os.pipe()
        pipes.append((os.POSIX_SPAWN_DUP2, errors_sink, 2))
        reader = threading.Thread(target=read_errors, args=(errors,), daemon=True)
    try:
        pid = os.posix_spawnp(
            argv[0], list(argv), dict(env), setsigdef=[signal.SIGINT], file_actions=pipes
        )
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        if read_errors:
            os.close(errors_sink)
            reader.start()
        if read:
            os.close(sink)
            try:
                read(source)
            except BaseException:
                os.kill(pid, signal.SIGTERM)
                raise
            finally:
                os.close(source)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if read_errors:
            reader.join(_ERRORS_WITHIN_S)
        if interrupts and status in interrupted:
            return -signal.SIGINT
        return status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def succeeds(argv: Sequence[str], *, within_s: float) -> bool:
    """Return whether a program ends with exit status 0 within so many seconds.

    The output of the program is not needed.
    """
    nothing = []
    for descriptor in (0, 1, 2):
        nothing.append((os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0))
    try:
        pid = os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=nothing)
    except OSError:
        return False
    end_s = time.monotonic() + within_s
    while True:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            return status == 0
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
            end_s += within_s
        time.sleep(0.001)
