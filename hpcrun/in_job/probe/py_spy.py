"""Run py-spy for ``explain --stacks``: choose the program and its environment.

This module also limits how much is read of what py-spy prints.

The rank runs code that nobody has checked. So nothing is looked up in the folder where hpcrun was
called, py-spy sees nothing of the environment of the login session, and its output and its time
have a limit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPY_S = 3.0
SPY_TRIES = 3
"""The time for one py-spy.

Of a process that is computing it sometimes reads half of a change: then it tries again.
"""
MOST_PRINTED = 4 << 20
"""Bytes that are read of py-spy: the stacks of a thousand threads have less."""
FORBIDDEN = "py-spy may not read this process"
_SYSTEM = "/usr/local/bin:/usr/bin:/bin"


def find_py_spy(python: str, path: str, given: str) -> str:
    """Return the py-spy beside a rank's Python, on its PATH, or the one that hpcrun has.

    The result is the empty string if there is none.

    Args:
        python: the Python as the rank was started with it; a relative name tells nothing of its
            folder.
        path: the rank's PATH.
        given: the one that hpcrun has.
    """
    of_rank = os.pathsep.join((os.path.dirname(python), path))
    program = shutil.which("py-spy", path=absolute(of_rank))
    if program:
        return program
    if os.path.isabs(given) and os.access(given, os.X_OK):
        return given
    return shutil.which("py-spy", path=absolute(os.environ.get("PATH", ""))) or ""


def absolute(path: str) -> str:
    """Return a PATH without its relative and empty entries.

    These entries mean the current folder, which belongs to somebody else.
    """
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))


def dump(py_spy: str, pid: int, path: str, until: float) -> tuple[str, str]:
    """Return py-spy's JSON of a process, or nothing and what it said.

    Args:
        py_spy: the path of py-spy.
        pid: the id of the process.
        path: the rank's PATH.
        until: when it must have ended.
    """
    command = [py_spy, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    env = {"PATH": absolute(path) or _SYSTEM, "LC_ALL": "C.UTF-8"}
    problem = "no time was left for py-spy"
    for _ in range(SPY_TRIES):
        left_s = min(SPY_S, until - time.monotonic())
        if left_s <= 0:
            break
        try:
            status, out, err = _run(command, env, left_s)
        except subprocess.TimeoutExpired:
            return "", f"py-spy did not respond for {left_s:.1g} s"
        except OSError as error:
            return "", f"{py_spy}: {error.strerror}"
        if max(len(out), len(err)) > MOST_PRINTED:
            return "", f"py-spy printed more than {MOST_PRINTED >> 20} MB"
        if status == 0:
            return out.decode("utf-8", "replace"), ""
        messages = err.decode("utf-8", "replace").strip().splitlines()
        message = f"exit status {status}"
        if messages:
            message = messages[0].strip().replace("Error: ", "")[:200]
        problem = f"py-spy: {message}"
        if "Permission Denied" in problem:
            return "", FORBIDDEN
    return "", problem


def _run(command: list[str], env: dict[str, str], within_s: float) -> tuple[int, bytes, bytes]:
    """Run a command in ``/``; return its exit status and what it printed.

    One that prints too much is killed.

    Raises:
        subprocess.TimeoutExpired: it did not end in time; it was killed.
        OSError: it cannot be started.
    """
    pipes: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    # a session: what it has started is killed with it
    with subprocess.Popen(command, env=env, cwd="/", start_new_session=True, **pipes) as process:
        assert process.stdout
        assert process.stderr

        def kill() -> None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(within_s, kill)
        timer.start()
        try:
            out = process.stdout.read(MOST_PRINTED + 1)
            err = b""
            if len(out) <= MOST_PRINTED:
                err = process.stderr.read(MOST_PRINTED + 1)
            if max(len(out), len(err)) > MOST_PRINTED:
                kill()
            process.wait()
            if timer.finished.is_set():
                raise subprocess.TimeoutExpired(command, within_s)
        finally:
            timer.cancel()
    return process.returncode, out, err
