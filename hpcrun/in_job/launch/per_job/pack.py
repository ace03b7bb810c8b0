"""Run elements that share a task.

The command is ``launch pack FAILED [ELEMENT ATTEMPT COUNT ARGUMENT ...]... -- OPTIONS -- COMMAND``.

Each element is a child: ``launch job`` with these options and the command, followed by the
element's own arguments, as on a machine without Slurm. It has its own folder, CPUs of the task, and
one of the task's GPUs in turn. No element ends because another one has failed. When all have ended,
the task is requeued if one of them asks for it; it ends with the status of the first that failed,
FAILED if one did in an earlier start of this task.
"""

from __future__ import annotations

import os
import signal
import time
from tempfile import TemporaryFile
from typing import Any

from .. import records, slurm_requests
from ..processes import launch_program, reap, send, try_start, wait
from ..rank_environment import GPUS, PACKED, moved
from .exit_record import write_exit
from .job_arguments import parse_options

EVERY_S = 2.0
"""How often to look for elements that hpcrun cancel has marked."""
KILL_S = 30.0
"""The time of a cancelled element after SIGTERM: Slurm's own default (KillWait)."""
NUMBERS_OF_CPUS = ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_JOB_CPUS_PER_NODE")


def main(arguments: list[str]) -> int:
    """Run the elements; return the exit status of the task."""
    failed = int(arguments[0])
    elements = []
    rest = arguments[1:]
    while rest[0] != "--":
        number, attempt, count = rest[:3]
        end = 3 + int(count)
        elements.append(Element(number, attempt, rest[3:end]))
        rest = rest[end:]
    end = rest.index("--", 1)
    return Pack(elements, rest[1:end], failed).run(rest[end + 1 :])


class Element:
    """An element, its attempt, and its own arguments."""

    def __init__(self, number: str, attempt: str, arguments: list[str]) -> None:
        self.number = number
        self.attempt = attempt
        self.arguments = arguments
        self.folder = os.path.join(os.environ["HPCRUN_RUN_DIR"], "elements", number)
        self.attempt_folder = os.path.join(self.folder, "attempts", attempt)
        self.kill_at = float("inf")

    def environment(self) -> dict[str, str]:
        """Return the environment of this element.

        It follows from the environment of the element in whose name the set-up has run.
        """
        env = moved(os.environ, records.attempt_dir(), self.attempt_folder)
        env["HPCRUN_ELEMENT"] = self.number
        env["HPCRUN_ATTEMPT"] = self.attempt
        env["HPCRUN_REQUEUES"] = env.get("SLURM_RESTART_COUNT", "0")
        env["HPCRUN_CHECKPOINT_DIR"] = os.path.join(self.folder, "checkpoints")
        env[PACKED] = "1"
        return env

    def is_cancelled(self) -> bool:
        """Whether hpcrun cancel has marked the element."""
        return "cancelled" in records.names_in(self.folder)

    def exit(self) -> dict[str, Any]:
        """Return the record of its end, empty if there is none."""
        return records.read("exit", self.attempt_folder) or {}


class Pack:
    """The elements of one task."""

    def __init__(self, elements: list[Element], options: list[str], failed: int) -> None:
        self._elements = elements
        self._words = options
        self._failed = failed
        self._options = parse_options(options)
        self._running: dict[int, Element] = {}
        self._signalled = False
        self._requeued = False

    def run(self, command: list[str]) -> int:
        """Start the elements and wait for all of them.

        The result is the status of the first element that failed.
        """
        requeues = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        if self._options.requeue and requeues >= self._options.requeue:
            slurm_requests.requeue_no_more()  # Slurm's own requeues count, too
        self._start(command)
        while self._running:
            ended = wait(list(self._running), self._on_signal, self._tick, EVERY_S)
            if ended is not None:
                pid, status = ended
                reap(pid)
                self._end(self._running.pop(pid), status)
        self._requeue()
        return self._failed

    def _start(self, command: list[str]) -> None:
        assert self._options.came is not None
        with open(self._options.came, "rb") as file:
            came = file.read()
        all_cpus = sorted(os.sched_getaffinity(0), key=_core)
        number = len(self._elements)
        code = records.read("code")
        for place, element in enumerate(self._elements):
            if code:  # of the snapshot that all of them run
                records.write("code", code, element.attempt_folder)
            cpus = all_cpus[place * len(all_cpus) // number : (place + 1) * len(all_cpus) // number]
            if not cpus:
                cpus = [all_cpus[place % len(all_cpus)]]
            env = element.environment()
            env.update(dict.fromkeys(NUMBERS_OF_CPUS, str(len(cpus))))
            for name in GPUS:
                if os.environ.get(name):
                    gpus = os.environ[name].split(",")
                    env[name] = gpus[place % len(gpus)]
            os.sched_setaffinity(0, cpus)  # which the child inherits
            pid, status = self._start_element(element, env, came, command)
            if pid:
                self._running[pid] = element
            else:
                self._end(element, status)
        os.sched_setaffinity(0, all_cpus)

    def _start_element(
        self, element: Element, env: dict[str, str], came: bytes, command: list[str]
    ) -> tuple[int, int]:
        """Start the job of an element; return its id and 0, or 0 and an exit status.

        Args:
            element: the element.
            env: its environment.
            came: the original environment of the script: each child reads it from the beginning.
            command: the command of all elements.
        """
        host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        try:
            with TemporaryFile() as copy:
                copy.write(came)
                copy.seek(0)
                os.set_inheritable(copy.fileno(), True)
                options = ["--came", str(copy.fileno()), "--nodes", "1", "--within", host]
                job = [*launch_program(), "job", *self._words, *options, "--"]
                return try_start([*job, *command, *element.arguments], env)
        except OSError as error:  # the disk of this node is full
            records.say(f"cannot start element {element.number}: {error}")
            return 0, 1

    def _end(self, element: Element, status: int) -> None:
        """Note how an element ended; of one whose process was killed there is no record."""
        self._failed = self._failed or status
        if not element.exit():
            write_exit(status, signalled=self._signalled, folder=element.attempt_folder)

    def _on_signal(self, info: Any) -> None:
        self._signalled = self._signalled or info.si_signo == signal.SIGTERM
        for pid in self._running:
            send(pid, info.si_signo)

    def _tick(self) -> bool:
        now = time.monotonic()
        for pid, element in self._running.items():
            if now > element.kill_at:
                send(pid, signal.SIGKILL)
            elif element.kill_at == float("inf") and element.is_cancelled():
                element.kill_at = now + KILL_S
                send(pid, signal.SIGTERM)
        if self._signalled and all(element.exit() for element in self._running.values()):
            self._requeue()  # Slurm is about to end this process, and all elements know why
        return False

    def _requeue(self) -> None:
        """Requeue the task if one of its elements asks for it."""
        again = []
        bad: set[str] = set()
        for element in self._elements:
            record = element.exit()
            if record.get("again") is True:
                again.append((element, record))
                bad.update(str(node) for node in record.get("nodes", ()))
        if not again or self._requeued:
            return
        self._requeued = True
        excluded = sorted(bad) if self._options.exclude_bad_nodes else []
        if slurm_requests.requeue_patiently(excluded):
            return
        for element, record in again:
            texts = (
                record.get("message"),
                "scontrol requeue failed; hpcrun resubmit starts it again",
            )
            message = "; ".join(text for text in texts if text)
            over = {**record, "again": False, "how": records.OVER, "message": message}
            records.write("exit", over, element.attempt_folder)


def _core(cpu: int) -> tuple[int, int]:
    """Return a key that puts the threads of a core side by side."""
    path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    first = records.read_text(path).replace(",", "-").partition("-")[0].strip()
    core = int(first) if first.isdigit() else cpu
    return core, cpu
