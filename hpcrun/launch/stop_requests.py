"""What one process does for all ranks of its node: hear of requests to stop, hand on what Slurm sends to tasks."""

from __future__ import annotations

import os
import time

from . import environment, records
from .node_folder import NodeFolder
from .processes import Canary, catches, send, signal

INSIST_S = 25.0
"""How long a rank that is cleared away has before SIGKILL: torchrun waits 30 s before it kills the wrapper."""
HEARTBEAT_S = 10.0
CLEARED = "cleared"
"""The file that says to the wrappers of this node that the ranks are cleared away behind one that failed."""


class StopRequests:
    """The requests to stop as one node hears them, and its signs of life."""

    def __init__(self, folder: NodeFolder, canary: Canary) -> None:
        self._folder, self._canary = folder, canary
        # the job may be warned and started again, so that it has to be known why it was ended
        self._managed = environment.MANAGED in os.environ
        self._was_ended = False
        self._insist_at: float | None = None
        self._beat_at = 0.0

    def tick(self) -> bool:
        """Look once whether the attempt is to stop: about every second."""
        if self._managed:
            for reason in records.stop_reasons():
                self._announce(reason)
            if time.monotonic() >= self._beat_at:
                self._beat_at = time.monotonic() + HEARTBEAT_S
                self._beat()
        if self._insist_at is not None and time.monotonic() > self._insist_at:
            for pid in self._folder.programs().values():
                send(pid, signal.SIGKILL, group=True)
        return False

    def told(self, number: int, programs: dict[int, int] | None = None) -> str:
        """Do what a signal from outside asks for; returns ``TERM`` or ``cleared`` where it was one that ends the job.

        Args:
            programs: rank → process id of those that it is handed on to, where Slurm has not signalled every process;
                all of the node's unless it is said.
        """
        ending = number == signal.SIGTERM
        cleared = ending and records.first_failed(records.rank_exits()) is not None
        first = ending and not cleared and records.ask_to_stop(records.TERMINATED)
        if cleared:
            self._folder.put(CLEARED)
        elif ending:
            self._announce(records.TERMINATED)
        if programs is None:
            programs = self._folder.programs()  # now: of those that begin after the announcement, see Rank._catch_up
        for rank, pid in programs.items():
            self._folder.note_heard(rank, pid, number)
        if not self._canary.heard(number):
            for rank, pid in programs.items():
                if not ending or self._was_ended or self._folder.claim(f"ended-{rank}"):
                    send(pid, number)
        self._was_ended = self._was_ended or ending
        if cleared:
            self._insist_at = time.monotonic() + INSIST_S
        if first:
            self._note_preemption()
        return "cleared" if cleared else "TERM" if ending else ""

    @staticmethod
    def _note_preemption() -> None:
        """Ask Slurm now: it forgets once it starts the job again by itself."""
        from . import slurm  # what it imports would cost every rank some milliseconds

        if "SLURM_JOB_ID" in os.environ and slurm.job().preempted:
            records.write("preempted", {})

    def _announce(self, reason: str) -> None:
        """Tell the ranks of this node that they are to stop."""
        if not self._folder.has(f"stop-{reason}"):
            self._folder.put(f"stop-{reason}")
        if reason == records.TIME_LIMIT:
            self._warn()

    def _warn(self) -> None:
        """Send SIGUSR1 once to each program that handles it, or begins to; another does not die of a warning."""
        for rank, pid in self._folder.programs().items():
            if not self._folder.has(f"warned-{rank}") and catches(pid, signal.SIGUSR1):
                self._folder.put(f"warned-{rank}")
                self._folder.note_heard(rank, pid, signal.SIGUSR1)
                send(pid, signal.SIGUSR1)

    def _beat(self) -> None:
        try:
            os.utime(os.path.join(records.attempt_dir(), f"node-{os.environ['HPCRUN_NODE']}.start"))
        except OSError:
            return
