"""Run a person's own batch script as the child of ``launch job``.

Only the step of its launch line is the job's.

bash runs the script. At its launch line, ``hpcrun_launch`` (ask.py) hands over words, environment,
folder and streams through a Unix socket, and waits for the exit status. A restart in place starts
the step again while it waits; after a requeue the script runs again from its top.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import records
from ..job_step import JobStep
from ..processes import (
    Canary,
    has_ended,
    launch_program,
    reap,
    send,
    start_with,
    try_start,
    wait,
)
from ..records import REQUEUE
from .launch_words import hide_sizes, split_launch, step_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..processes import OnSignal

SOCKET = "HPCRUN_LAUNCH_SOCKET"
PROGRAM = "HPCRUN_LAUNCH"
ERRORS = "HPCRUN_SCRIPT_ERRORS"
"""Variables of the script: the socket, the program hpcrun_launch, and the file of its last failed
command.
"""
POLL_S = 0.1
KILL_S = 10.0
"""The time of a step from SIGTERM to SIGKILL, if its script or its launch has ended before it."""


class ScriptStep(JobStep):
    """The step that a script launches, with the interface of ``JobStep``.

    Args:
        managed: SIGUSR1 is the job's own warning, and not meant for the script.
    """

    def __init__(
        self,
        nodes: int | None,
        gpus: list[str],
        on_signal: OnSignal,
        tick: Callable[[], bool],
        *,
        managed: bool,
    ) -> None:
        super().__init__(nodes, gpus, self._on_script_signal, self._tick_with_script)
        self._job_signal = on_signal
        self._job_tick = tick
        self._managed = managed
        # of a short path, as sockets need: unix(7)
        self._folder = tempfile.mkdtemp(prefix="hpcrun-script-")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.path.join(self._folder, "socket"))
        self._server.listen(4)
        self._server.setblocking(False)
        self._asker: socket.socket | None = None
        self._words: list[str] = []
        self._name = ""
        self._pid = 0
        self._status = 0
        self._runs = False
        self._was_launched = False
        self._has_launch = False
        self._canary: Canary | None = None
        self._tick_at = 0.0
        self._signalled = False
        self._left_at: float | None = None

    def run(self, command: list[str], hosts: list[str]) -> int:
        """Run the script to its launch, and the step; the script waits.

        Return its status if it ends before.
        """
        again = self._asker is not None
        if not again and not self._to_launch(command):
            return self._status
        self._was_launched = True
        _tell(self._asker, f"attempt {records.attempt_dir()}")
        words = step_words(self._words, launch_program(), local=self._local, again=again)
        return super().run(words, hosts)

    def finish(self, status: int, *, elsewhere: bool = False) -> int:
        """Let the script continue behind its launch; return its exit status, which is the job's.

        Args:
            status: the status of the last attempt.
            elsewhere: the next attempt has been started elsewhere. Then this script does not
                continue, nor does the script of a requeued job.
        """
        record = records.read("exit") or {}
        if not self._name:  # it was not started
            self._leave(0)
            return status
        moves_on = elsewhere or record.get("how") == REQUEUE
        if self._runs and moves_on:
            send(self._pid, signal.SIGKILL)
            self._wait_for_end()
        elif self._runs:
            self.close_streams()  # a reader of the launch's output waits for their end
            _tell(self._asker, f"status {status}")
            self._wait_for_end()
        self._leave(0)
        if self._canary:
            self._canary.end()
        if moves_on or record.get("signal"):
            return status
        failed_before_launch = self._status != 0 and not self._was_launched
        if self._status != status or failed_before_launch:
            of_script = {"status": self._status, "ended": time.time(), "message": self._how(status)}
            records.write("exit", {**record, **of_script})
        return self._status

    def _how(self, launch_status: int) -> str:
        """Return how the script ended, if the exit status of its launch does not say it."""
        if not self._status:
            return f"{self._name} ended with status 0, its launch with {launch_status}"
        place = ""
        if self._was_launched:
            place = " after its launch"
        elif self._has_launch:
            place = " before its launch"
        errors = records.read_text("script-errors").splitlines()
        line = errors[-1] if errors else ""
        failed, _, rest = line.partition(" ")
        number, _, command = rest.partition(" ")
        where = ""
        if failed == str(self._status) and number.isdigit():
            where = f": line {number}: {command}"
        message = f"{self._name} ended with status {self._status}{place}{where}"
        records.say(message)
        return message

    # --- the script ------------------------------------------------------------------------------

    def _to_launch(self, command: list[str]) -> bool:
        """Start the script, and wait for its launch.

        The result is False if the script has ended, or if the job is about to end.
        """
        if not self._runs:
            self._start_script(command)
        if self._runs:
            ended = wait([self._pid], self._on_script_signal, self._until_launch, POLL_S)
            if ended:
                self._end(ended[1])
            elif not self._asker:
                self._status = records.TERM_STATUS
        return self._asker is not None

    def _start_script(self, command: list[str]) -> None:
        if self._canary:
            self._canary.end()
        program = os.path.join(records.attempt_dir(), "hpcrun_launch")
        words = [*launch_program(), "ask"]
        descriptor = os.open(program, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/bash -p\nexec {" ".join(map(shlex.quote, words))} "$@"\n')
        errors = os.path.join(records.attempt_dir(), "script-errors")
        env = {SOCKET: os.path.join(self._folder, "socket"), PROGRAM: program, ERRORS: errors}
        self._canary = Canary(self._leave)
        arguments = [argument for argument in command[1:] if not argument.startswith("-")]
        path = arguments[0] if arguments else command[0]
        self._name = os.path.basename(path)
        with suppress(OSError), open(path, "rb") as script:
            self._has_launch = os.fsencode(PROGRAM) in script.read()
        self._pid, self._status = try_start(command, {**os.environ, **env})
        self._runs = bool(self._pid)
        self._canary.guard(self._pid)

    def _leave(self, pid: int) -> None:
        """Remove the socket; the script ends if this process was killed."""
        if pid:
            send(pid, signal.SIGKILL)
        with suppress(OSError):
            os.unlink(os.path.join(self._folder, "socket"))
            os.rmdir(self._folder)

    def _end(self, status: int) -> None:
        reap(self._pid)
        self._status = status
        self._runs = False

    def _wait_for_end(self) -> None:
        ended = wait([self._pid], self._on_script_signal, self._tick_and_go_on)
        self._end(ended[1] if ended else records.TERM_STATUS)

    def _tick_and_go_on(self) -> bool:
        self._refuse_more()
        self._do_tick()
        return False

    def _on_script_signal(self, info: Any) -> None:
        number = info.si_signo
        self._signalled = self._signalled or number == signal.SIGTERM
        self._job_signal(info)
        is_warning = number == signal.SIGUSR1 and self._managed
        if not self._runs or is_warning:
            return
        if self._canary is None or not self._canary.heard(number):
            send(self._pid, number)

    # --- its launch ------------------------------------------------------------------------------

    def _until_launch(self) -> bool:
        """Accept a launch; about every second, do the job's work."""
        if self._asker is None:
            self._asker = self._accept()
        if self._asker:
            return True
        now = time.monotonic()
        if now < self._tick_at:
            return False
        self._tick_at = now + 1
        return self._do_tick()

    def _do_tick(self) -> bool:
        """Do the work of each second."""
        if self._canary:
            self._canary.renew()
        return self._job_tick()

    def _accept(self) -> socket.socket | None:
        """Take over the words, the environment, the folder and the streams of hpcrun_launch."""
        try:
            asker, _ = self._server.accept()
        except BlockingIOError:
            return None
        asker.settimeout(30)
        try:
            size, streams, _, _ = socket.recv_fds(asker, 8, 3)
            with asker.makefile("rb") as file:
                request = json.loads(file.read(int.from_bytes(size, "big")))
            os.chdir(request["folder"])
        except (OSError, ValueError) as error:
            records.say(f"the launch of {self._name} was not understood: {error}")
            asker.close()
            return None
        try:
            srun = split_launch(request["words"]).srun
        except ValueError as error:
            records.say(f"the ranks of {self._name} have no logs of their own: {error}")
            _tell(asker, "alone")
            asker.close()
            return None
        env = os.environ
        ours = {name: value for name, value in env.items() if name.startswith("HPCRUN_")}
        os.environ.clear()
        os.environ.update({**request["env"], **ours})
        if not srun and not self._local:
            hide_sizes()
        start_with(request["umask"])
        self._words = request["words"]
        self.streams = tuple(streams)
        asker.setblocking(False)
        copied: list[int] = []
        if not any(part.startswith(("-o", "--output")) for part in srun):
            copied = [number for number in (1, 2) if not _same_file(streams[number], number)]
        _tell(asker, f"copy {' '.join(map(str, copied))}")
        return asker

    def _refuse_more(self) -> None:
        """Let a second launch run without the job.

        The records of an attempt are the records of one step.
        """
        try:
            asker, _ = self._server.accept()
        except OSError:
            return
        _tell(asker, "alone")
        asker.close()

    def _tick_with_script(self) -> bool:
        """End the step if its script or its launch has ended while the step runs.

        Slurm and ``timeout srun`` do the same.
        """
        self._refuse_more()
        now = time.monotonic()
        if self._left_at is not None:
            if now > self._left_at + KILL_S:
                self.tell(signal.SIGKILL, to_srun=True)
        elif not self._signalled and (self._has_ended() or self._was_left()):
            self._left_at = now
            self.tell(signal.SIGTERM, to_srun=True)
        return self._do_tick()

    def _has_ended(self) -> bool:
        if not self._runs:
            return False
        return has_ended(self._pid)

    def _was_left(self) -> bool:
        """Whether hpcrun_launch has ended: only then there is something to read, the end."""
        try:
            return self._asker is not None and not self._asker.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _tell(asker: socket.socket | None, line: str) -> None:
    with suppress(OSError):  # hpcrun_launch may have ended
        if asker:
            asker.sendall(f"{line}\n".encode("utf-8", "surrogateescape"))


def _same_file(one: int, other: int) -> bool:
    """Whether two descriptors write to the same file."""
    try:
        first = os.fstat(one)
        second = os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
