"""``hpcrun_launch WORDS ...``: the launch of a script; the job runs its step.

It hands its words, environment, folder, limits and descriptors to the job (run_script.py), and ends
with the status of the step. As srun does, it passes signals on, and waits for the end of the step.
If its output goes elsewhere than the script's, as in ``srun ... | tee log``, it copies that of the
ranks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from typing import Any

from .. import records
from ..processes import inherited
from .handed_over import own_descriptors, read_limits
from .launch_words import plain_words

WAIT_S = 0.3
_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_MOST = 1 << 20
"""The bytes of a log that are read at a time."""


def main(words: list[str]) -> int:
    """Have the job run the step, and return the status of the step.

    If the job does not run the step, this process becomes the launch as it was written.
    """
    of_script = inherited()
    with socket.socket(socket.AF_UNIX) as job:
        try:
            job.connect(os.environ["HPCRUN_LAUNCH_SOCKET"])
        except (OSError, KeyError) as error:
            records.say(f"the job does not respond to its launch: {error}")
            return 1
        caught = [number for number in _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        for number in caught:
            signal.signal(number, lambda sent, _: _pass_on(job, sent))
        with suppress(ConnectionError):  # the job has ended, which wait() says
            _send(job, words, of_script)
        step = _Step(job)
        status = step.wait()
        while status is None:
            step.copy()
            status = step.wait()
        step.copy(whole=True)
    if status >= 0:
        return status
    for number in caught:
        signal.signal(number, signal.SIG_DFL)
    plain = plain_words(words)
    os.umask(of_script["umask"])
    return os.execvp(plain[0], plain)


def _pass_on(job: socket.socket, number: int) -> None:
    with suppress(OSError):  # the job has ended
        job.send(bytes([number]))


def _send(job: socket.socket, words: list[str], of_script: dict[str, Any]) -> None:
    descriptors = own_descriptors()
    request = {
        "words": words,
        "env": dict(os.environ),
        "folder": os.getcwd(),
        "limits": read_limits(),
        "descriptors": list(descriptors),
        **of_script,
    }
    data = json.dumps(request).encode("ascii")
    socket.send_fds(job, [len(data).to_bytes(8, "big")], list(descriptors.values()))
    job.sendall(data)


class _Step:
    """What the job tells of the step, line by line: see script.py."""

    def __init__(self, job: socket.socket) -> None:
        self._job = job
        self._text = ""
        self._copied: tuple[int, ...] = ()
        self._folder = ""
        self._done: dict[str, int] = {}

    def wait(self) -> int | None:
        """Wait a moment; return the status of the step, or None while the step runs.

        The result is -1 if the job does not run the step.
        """
        self._job.settimeout(WAIT_S if self._copied else None)
        try:
            data = self._job.recv(4096)
        except (TimeoutError, socket.timeout):  # one class since Python 3.10
            return None
        except ConnectionError:
            data = b""
        *lines, self._text = (self._text + data.decode("utf-8", "surrogateescape")).split("\n")
        for line in lines:
            kind, _, value = line.partition(" ")
            if kind == "alone":
                return -1
            if kind == "status":
                return int(value)
            if kind == "copy":
                self._copied = tuple(map(int, value.split()))
            elif kind == "attempt":
                self.copy(whole=True)
                self._folder = value
                self._done = {}
        if not data:
            records.say("the job has ended, and so its launch ends")
            return 1
        return None

    def copy(self, *, whole: bool = False) -> None:
        """Copy new lines of the ranks' logs.

        Args:
            whole: no more lines follow: also the last one, which may have no end.
        """
        if not self._copied or not self._folder:
            return
        for name in records.names_in(self._folder):
            stream = {".out": 1, ".err": 2}.get(os.path.splitext(name)[1])
            if name.startswith("rank-") and stream in self._copied:
                self._copy_file(name, stream, whole)

    def _copy_file(self, name: str, stream: Any, whole: bool) -> None:
        try:
            with open(os.path.join(self._folder, name), "rb") as file:
                file.seek(self._done.get(name, 0))
                while data := file.read(_MOST):
                    lines = data
                    if not whole and len(data) < _MOST:
                        lines = data[: data.rfind(b"\n") + 1]
                    self._done[name] = self._done.get(name, 0) + len(lines)
                    if not lines:
                        return
                    _write(stream, lines)
                    file.seek(self._done[name])
        except OSError:  # the reader of the pipe has ended
            self._copied = tuple(number for number in self._copied if number != stream)


def _write(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]
