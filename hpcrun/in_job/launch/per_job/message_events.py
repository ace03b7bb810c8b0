"""Messages about the run, which hpcrun's own Python sends.

This program starts that Python and does not wait long for it.

``submit`` writes the path of that Python into the run's folder if there are messages. It decides
from the records which messages are due, and sends each of them once. If this node does not have it,
or reaches nothing, then the next command of hpcrun on a login node sends them. Nothing here may
fail the job, delay it by more than some seconds, or survive it.
"""

from __future__ import annotations

import os
import signal
import time

from .. import records
from ..processes import HEARD, send, start

FOLDER = "messages"
SENDER = "sender"
LOG = "log"
"""Below the run's folder, as in job/run_paths.py."""
STARTED = "started"
FIRST_STEP = "first-step"
FIRST_FAILURE = "first-failure"
FAILED = "failed"
FINISHED = "finished"
IDLE = "idle"
END_S = 10.0
WHILE_RUNNING_S = 60.0
"""The time that a sender has at the end of an attempt, and while the ranks run."""
KILL_S = 1.0
"""The time that a sender has to end after SIGKILL."""
LOOK_S = 3.0  # how often to look for the first step
LOG_IS_ALL_S = 60.0
"""After so long with output and without metrics, the output counts as the first step."""
# The package's folder comes first until hpcrun is found, and last for its libraries: it may hold
# anything.
_PROGRAM = (
    "import sys; sys.path[0] = sys.argv.pop(1); import hpcrun; sys.path.append(sys.path.pop(0)); "
    "from hpcrun.__main__ import main; main()"
)


class Messages:
    """The messages of one job of a run.

    A run without messages has no sender, and no event that would cause a message.
    """

    def __init__(self) -> None:
        self._folder = os.path.join(os.environ["HPCRUN_RUN_DIR"], FOLDER)
        sender = records.read(SENDER, self._folder) or {}
        # hpcrun's own Python, and the folder in which it finds hpcrun
        self._python = sender.get("python", "")
        self._package = sender.get("package", "")
        # of a sweep, which has one message for all of them
        self._elements = sender.get("elements", 0)
        self._events = frozenset(sender.get("events", ()))
        self._children: dict[int, float] = {}  # process id → when it is killed
        self._look_at = 0.0
        self._output_at: float | None = None
        self._awaited: frozenset[str] = frozenset()

    def tell_start(self) -> None:
        """Send a message about the start of the run, or about the end of the attempt before."""
        if os.environ["HPCRUN_ATTEMPT"] == "0":
            event = STARTED
            self._awaited = self._events & {FIRST_STEP, IDLE}
        else:
            event = FAILED
            self._awaited = self._events & {IDLE}
        if event in self._events and self._is_first_element(STARTED):
            self._start("--event", STARTED)

    def tick(self) -> None:
        """Look from time to time for the first step and for idle GPUs.

        A sender that takes too long is ended.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self._reap(now)
        for event in sorted(self._awaited):
            # one after another: in their order
            if not self._children and self._has_come(event, now):
                self._awaited -= {event}
                if self._is_first_element(event):
                    self._start("--event", event)

    def tell_end(self, *, failed: bool, wait_s: float = END_S, over: bool = True) -> None:
        """Send a message about the end of an attempt, and wait for some seconds.

        The wait is needed because Slurm kills what a job leaves behind.

        Args:
            failed: the attempt has failed.
            wait_s: the seconds to wait for the sender.
            over: no further attempt follows.
        """
        events = {FINISHED}
        if failed or self._elements:  # the end of a sweep may be good or bad: others decide
            events = {FAILED, FINISHED} if over else {FAILED}
        if not self._events & events:
            return
        if self._elements and (not over or not self._is_end_due(failed=failed)):
            return
        self._start(nice=False)
        until = time.monotonic() + wait_s
        while self._children and time.monotonic() < until:
            self._reap(time.monotonic())
            time.sleep(0.05)
        # a sender in a system call of a dead file system does not even respond to SIGKILL: it is
        # left to Slurm
        until = time.monotonic() + KILL_S
        while self._children and time.monotonic() < until:
            self._reap(float("inf"))
            time.sleep(0.05)

    def _is_end_due(self, *, failed: bool) -> bool:
        """Whether this element is the first that failed, or the last one to end."""
        mark = os.path.join(self._folder, f"ended-{os.environ['HPCRUN_ELEMENT']}")
        try:
            with open(mark, "w", encoding="utf-8"):
                pass
            ended = sum(name.startswith("ended-") for name in os.listdir(self._folder))
        except OSError:
            return True
        return ended >= self._elements or (failed and self._is_first_element(FIRST_FAILURE))

    def _is_first_element(self, event: str) -> bool:
        """Return whether this element is the first with this event.

        Of a thousand elements that start at once, one sends the message.
        """
        if not self._elements:
            return True
        mark = os.path.join(self._folder, f"{event}-element")
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError as error:
            return not isinstance(error, FileExistsError)
        return True

    def _has_come(self, event: str, now: float) -> bool:
        if event == IDLE:
            return os.path.exists(os.path.join(records.attempt_dir(), IDLE))
        if _size("rank-0.metrics"):
            return True
        if self._output_at is None and (_size("rank-0.out") or _size("rank-0.err")):
            self._output_at = now
        return self._output_at is not None and now > self._output_at + LOG_IS_ALL_S

    def _start(self, *event: str, nice: bool = True) -> None:
        """Start a sender, which hears no signal of the job.

        If memory is short, the sender is killed first.

        Args:
            *event: the arguments that name the event; none for the end of an attempt.
            nice: the sender has a low priority, beside the ranks.
        """
        run = os.environ["HPCRUN_RUN_DIR"]
        log = os.path.join(self._folder, LOG)
        argv = [self._python, "-E", "-c", _PROGRAM, self._package, "notify", "--of", run, *event]
        try:
            pid = start(argv, os.environ, out=log, err=log, own_group=True, blocked=HEARD)
        except OSError:  # this node does not have it: a command on the login node sends them
            return
        self._children[pid] = time.monotonic() + WHILE_RUNNING_S
        try:
            with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")
            if nice:
                os.setpriority(os.PRIO_PROCESS, pid, 10)
        except OSError:
            return

    def _reap(self, now: float) -> None:
        """Forget the senders that have ended, and kill the senders whose time is over.

        This function never waits for a sender.
        """
        for pid, until in list(self._children.items()):
            if now > until:
                send(pid, signal.SIGKILL, group=True)
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            except ChildProcessError:
                ended = True
            if ended:
                del self._children[pid]


def _size(name: str) -> int:
    try:
        return os.stat(os.path.join(records.attempt_dir(), name)).st_size
    except OSError:
        return 0
