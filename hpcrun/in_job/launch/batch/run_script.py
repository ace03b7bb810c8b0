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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import rank_environment, records, slurm_requests
from ..job_step import JobStep
from ..processes import (
    IGNORED,
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
from .handed_over import MOST, limit, take_descriptors, with_limits
from .launch_words import Launch, split_launch, step_words, trace_as_written, without_marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..processes import OnSignal
    from .handed_over import Limits

SOCKET = "HPCRUN_LAUNCH_SOCKET"
PROGRAM = "HPCRUN_LAUNCH"
ERRORS = "HPCRUN_SCRIPT_ERRORS"
"""Variables of the script: the socket, the program hpcrun_launch, and the file of its last failed
command.
"""
_MOST_TRACED = 64 << 10
"""The end of the log in which a line of ``set -x`` is looked for."""
POLL_S = 0.1
KILL_S = 30.0
"""The time of a step from SIGTERM to SIGKILL, if its script or its launch has ended before it:
Slurm's own default (KillWait).
"""


@dataclass(frozen=True)
class ScriptRules:
    """How the job runs its script."""

    managed: bool  # SIGUSR1 is the job's own warning, and not meant for the script
    together: bool  # the first task that fails ends the others, so that the job can continue
    srun: list[str]  # options that its srun gets in front of its own
    added: list[str]  # variables of the ranks, NAME=VALUE


class ScriptStep(JobStep):
    """The step that a script launches, with the interface of ``JobStep``."""

    def __init__(
        self,
        nodes: int | None,
        gpus: list[str],
        on_signal: OnSignal,
        tick: Callable[[], bool],
        rules: ScriptRules,
    ) -> None:
        super().__init__(nodes, gpus, self._on_script_signal, self._tick_with_script)
        self._job_signal = on_signal
        self._job_tick = tick
        self._rules = rules
        self._env: dict[str, str] = {}  # of the script
        # of a short path, as sockets need: unix(7)
        self._folder = tempfile.mkdtemp(prefix="hpcrun-script-")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.path.join(self._folder, "socket"))
        self._server.listen(4)
        self._server.setblocking(False)
        self._asker: socket.socket | None = None
        self._launch = Launch([], [], [])
        self._launch_status = 0
        self._name = ""
        self._program = ""
        self._pid = 0
        self._status = 0
        self._runs = False
        self._limits: Limits = {}
        self._was_launched = False
        self._has_launch = False
        self._canary: Canary | None = None
        self._tick_at = 0.0
        self._signalled = False
        self._sent_to_all: set[int] = set()
        self._ends = False
        self._left_at: float | None = None

    def prepare(self, came: int | None, *, managed: bool) -> None:
        """Prepare the environment of the script; ``equip`` adds to that of its launch."""
        self._env = rank_environment.prepare_script(came, managed=managed)

    def run(self, command: list[str], hosts: list[str]) -> int:
        """Run the script to its launch, and the step; the script waits.

        Return its status if it ends before.
        """
        again = self._asker is not None
        if not again and not self._to_launch(command):
            return self._status
        self._was_launched = True
        _tell(self._asker, f"attempt {records.attempt_dir()}")
        added = []
        if self._rules.together:
            added.append("--kill-on-bad-exit=1")
        if again:
            added.append("--overlap")
        added += self._rules.srun
        words = step_words(self._launch, launch_program(), added, local=self._local)
        self.by_srun = bool(self._launch.srun) and not self._local
        self._launch_status = super().run(words, hosts)
        self.by_srun = not self._local
        return self._launch_status

    def finish(self, status: int, *, elsewhere: bool = False) -> int:
        """Let the script continue behind its launch; return its exit status, which is the job's.

        Args:
            status: the status of the last attempt, as the job sees it. The script gets that of its
                launch.
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
            self.killed_by = 0
        elif self._runs:
            self.close_streams()  # a reader of the launch's output waits for their end
            _tell(self._asker, f"status {self._launch_status}")
            self._wait_for_end()
        self._leave(0)
        if self._canary:
            self._canary.end()
        if moves_on:
            return status
        return self._record_end(record, status)

    def _record_end(self, record: dict[str, Any], status: int) -> int:
        """Record the end of the script as that of the job; return the exit status of the job.

        A script that is being ended, or that passes the status of its launch on, adds nothing. One
        that ends otherwise is the reason of the job's end.

        Args:
            record: how the last attempt ended.
            status: the status of this attempt, which counts if the script has nothing to add.
        """
        passes_on = self._was_launched and self._status == self._launch_status
        if record.get("signal"):
            if self._is_being_ended():
                return self._status
            record.update({"signal": "", "reason": ""})
        elif not self._status and (passes_on or not self._was_launched):
            return status  # its ranks may have stopped before their end
        if not passes_on:
            record["message"] = self._how()
        if self._status != status or not passes_on:
            records.write("exit", {**record, "status": self._status, "ended": time.time()})
        return self._status

    def _how(self) -> str:
        """Return how the script ended, if the exit status of its launch does not say it."""
        if not self._status:
            return f"{self._name} ended with status 0, its launch with {self._launch_status}"
        place = ""
        if self._was_launched:
            place = " after its launch"
        elif self._has_launch:
            place = " before its launch"
        errors = records.read_text("script-errors").splitlines()
        line = errors[-1] if errors else ""
        failed, _, rest = line.partition(" ")
        number, _, command = rest.partition(" ")
        if f'"${PROGRAM}" ' in command:
            command = without_marks(command.replace(f'"${PROGRAM}" ', ""))
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
        self._program = os.path.join(records.attempt_dir(), "hpcrun_launch")
        words = [*launch_program(), "ask"]
        descriptor = os.open(self._program, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/bash -p\nexec {" ".join(map(shlex.quote, words))} "$@"\n')
        errors = os.path.join(records.attempt_dir(), "script-errors")
        env = {SOCKET: os.path.join(self._folder, "socket"), PROGRAM: self._program, ERRORS: errors}
        # a later one, of a running step, must not hold a pipe of the launch: its reader would wait
        self._canary = Canary(self._leave, closes=True)
        arguments = [argument for argument in command[1:] if not argument.startswith("-")]
        path = arguments[0] if arguments else command[0]
        self._name = os.path.basename(path)
        with suppress(OSError), open(path, "rb") as script:
            self._has_launch = os.fsencode(PROGRAM) in script.read()
        environment = {**self._env, **_of_hpcrun(), **env}
        # as slurmstepd starts it: a script may end its group, `kill -- -$$`
        self._pid, self._status = try_start(command, environment, own_group=True)
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
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended and ended.si_code != os.CLD_EXITED:
            self.killed_by = ended.si_status
        reap(self._pid)
        self._status = status
        self._runs = False
        self._correct_trace()  # of a launch that did not begin: its input does not exist

    def _wait_for_end(self) -> None:
        ended = wait([self._pid], self._on_script_signal, self._tick_and_go_on)
        self._end(ended[1] if ended else records.TERM_STATUS)

    def _tick_and_go_on(self) -> bool:
        self._refuse_more()
        self._do_tick()
        return False

    def _on_script_signal(self, info: Any) -> None:
        number = info.si_signo
        self._signalled = self._signalled or number in (signal.SIGTERM, signal.SIGINT)
        self._job_signal(info)
        is_warning = number == signal.SIGUSR1 and self._rules.managed
        if not self._runs or is_warning:
            return
        if self._canary is None or not self._canary.heard(number):
            send(self._pid, number)
        else:
            self._sent_to_all.add(number)

    def _start(self, command: list[str], hosts: list[str], log: str | None) -> int:
        with with_limits(self._limits):
            status = super()._start(command, hosts, log)
        for pid in self._children:
            limit(pid, self._limits)
        return status

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
        """Take over what hpcrun_launch was typed with; return the connection to it, if it asks."""
        try:
            asker, _ = self._server.accept()
        except BlockingIOError:
            return None
        asker.settimeout(30)
        streams: list[int] = []
        try:
            size, streams, _, _ = socket.recv_fds(asker, 8, MOST)
            with asker.makefile("rb") as file:
                request = json.loads(file.read(int.from_bytes(size, "big")))
            os.chdir(request["folder"])
        except (OSError, ValueError) as error:
            records.say(f"the launch of {self._name} was not understood: {error}")
            _close(asker, streams)
            return None
        self._correct_trace()
        try:
            self._launch = split_launch(request["words"])
            _check_export(self._launch.srun, request["env"].get("SLURM_EXPORT_ENV"))
        except ValueError as error:
            records.say(f"the ranks of {self._name} have no logs of their own: {error}")
            _tell(asker, "alone")
            _close(asker, streams)
            return None
        self._take_over(request, streams)
        asker.setblocking(False)
        copied: list[int] = []
        if not any(part.startswith(("-o", "--output")) for part in self._launch.srun):
            copied = [number for number in (1, 2) if not _same_file(self.streams[number], number)]
        _tell(asker, f"copy {' '.join(map(str, copied))}")
        return asker

    def _take_over(self, request: dict[str, Any], streams: list[int]) -> None:
        """Start programs from now on as hpcrun_launch would have started them.

        Args:
            request: the environment, the umask, the limits and so on of hpcrun_launch.
            streams: its open files, which came beside the request.
        """
        ours = _of_hpcrun()
        os.environ.clear()
        os.environ.update({**request["env"], **ours})
        rank_environment.equip(self._rules.added)
        start_with(request["umask"], request["nice"])
        if request["ignored"] and not self._launch.srun:  # Slurm's tasks ignore no signal
            os.environ[IGNORED] = " ".join(map(str, request["ignored"]))
        self.streams = take_descriptors(request["descriptors"], streams)
        self._limits = request["limits"]

    def _correct_trace(self) -> None:
        """Show the launch in the job's log as the script has it, where ``set -x`` has shown it.

        The line keeps its place and its length: the script appends to the log.
        """
        with suppress(OSError):
            path = os.readlink("/proc/self/fd/2")
            if not path.startswith(os.path.realpath(os.environ["HPCRUN_RUN_DIR"]) + os.sep):
                return
            with open(path, "r+b") as log:
                start = max(0, log.seek(0, os.SEEK_END) - _MOST_TRACED)
                log.seek(start)
                place, text = trace_as_written(log.read(), self._program)
                log.seek(start + place)
                log.write(text)

    def _refuse_more(self) -> None:
        """Let a second launch run without the job.

        The records of an attempt are the records of one step.
        """
        try:
            asker, _ = self._server.accept()
        except OSError:
            return
        _tell(asker, "alone")
        asker.close()  # with it the descriptors that it has not handed over

    def _tick_with_script(self) -> bool:
        """End the step if its script or its launch has ended while the step runs.

        Slurm and ``timeout srun`` do the same.
        """
        self._refuse_more()
        now = time.monotonic()
        was_left = self._was_left()
        has_ended = self._has_ended()
        if self._left_at is not None:
            if now > self._left_at + KILL_S:
                self.tell(signal.SIGKILL, to_srun=True)
        elif (was_left or has_ended) and not self._is_being_ended():
            self._left_at = now
            if has_ended and self.by_srun:
                slurm_requests.end_steps()  # a signal to srun would kill the tasks at once
            else:
                self.tell(signal.SIGTERM, to_srun=True)
        return self._do_tick()

    def _is_being_ended(self) -> bool:
        """Whether Slurm ends the whole job, and so the step, after SIGTERM.

        With --signal=B:TERM, or scancel --batch, SIGTERM is for the script alone.
        """
        if self._signalled and not self._ends:
            self._ends = self._local or slurm_requests.job().state != "RUNNING"
        return self._ends

    def _has_ended(self) -> bool:
        if not self._runs:
            return False
        return has_ended(self._pid)

    def _was_left(self) -> bool:
        """Whether hpcrun_launch has ended; a signal that it got before is passed on to the step."""
        if self._asker is None:
            return False
        try:
            numbers = self._asker.recv(64)
        except BlockingIOError:
            return False
        except OSError:
            return True
        for number in numbers:
            has_it = not self.by_srun and number in self._sent_to_all
            self._sent_to_all.discard(number)
            if not has_it and not self._is_being_ended():
                self.tell(number, to_srun=True)
        return not numbers


def _check_export(srun: list[str], export: str | None) -> None:
    """Check that srun passes the variables of the job on to its tasks.

    Raises:
        ValueError: it does not.
    """
    if not srun or not export or "ALL" in export.split(","):
        return
    if not any(option.startswith("--export") for option in srun):
        raise ValueError(f"SLURM_EXPORT_ENV={export} keeps the variables of the job from srun")


def _of_hpcrun() -> dict[str, str]:
    """Return hpcrun's own variables."""
    return {name: value for name, value in os.environ.items() if name.startswith("HPCRUN_")}


def _tell(asker: socket.socket | None, line: str) -> None:
    with suppress(OSError):  # hpcrun_launch may have ended
        if asker:
            asker.sendall(f"{line}\n".encode("utf-8", "surrogateescape"))


def _close(asker: socket.socket, streams: list[int]) -> None:
    """Close a launch that the job does not run, and its streams: their readers wait for the end."""
    asker.close()
    for descriptor in streams:
        os.close(descriptor)


def _same_file(one: int, other: int) -> bool:
    """Whether two descriptors write to the same file."""
    try:
        first = os.fstat(one)
        second = os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
