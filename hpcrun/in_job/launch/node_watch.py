"""Find requests to stop, forward signals, and take samples, for all ranks of a node.

One process per node does this for all its ranks.
"""

from __future__ import annotations

import os
import time

from . import rank_environment, records
from .node_folder import NodeFolder
from .processes import Canary, catches, is_fork_of_any, send, signal

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from .sampler import Sampler

INSIST_S = 25.0
"""The time of a rank before SIGKILL after another rank has failed: torchrun waits 30 s before it
kills the wrapper.
"""
HEARTBEAT_S = 10.0
CLEARED = "cleared"
"""The file that tells the wrappers of this node that the ranks are terminated because another rank
has failed.
"""


class StopRequests:
    """The requests to stop of one node, its heartbeat, and the samples of its use."""

    def __init__(self, folder: NodeFolder, canary: Canary) -> None:
        self._folder = folder
        self._canary = canary
        self.programs = folder.programs
        # the job may be warned and requeued, so the reason of its end is needed
        self._managed = rank_environment.MANAGED in os.environ
        self._was_ended = False
        self._insist_at: float | None = None
        self._beat_at = 0.0
        self._sampler: Sampler | None = None

    def tick(self) -> None:
        """Check once whether the attempt must stop: about every second."""
        if self._managed:
            for reason in records.stop_reasons():
                self._announce(reason)
            if time.monotonic() >= self._beat_at:
                self._beat_at = time.monotonic() + HEARTBEAT_S
                self._beat()
        if self._insist_at is not None and time.monotonic() > self._insist_at:
            for pid in self._folder.programs().values():
                send(pid, signal.SIGKILL, group=True)
        if self._sampler is None:
            from .sampler import Sampler  # a second after the start, which it does not delay

            self._sampler = Sampler(lambda: [os.getpid(), *self._folder.programs().values()])
        self._sampler.tick()

    def end(self) -> None:
        """Write what has not been written yet."""
        if self._sampler:
            self._sampler.end()

    def on_signal(self, number: int, programs: dict[int, int] | None = None) -> str:
        """Handle a signal from outside; return ``TERM`` or ``cleared`` if it ends the job.

        Args:
            number: the number of the signal.
            programs: rank → process id of the programs that get it if Slurm has not signalled every
                process; by default all programs of the node.
        """
        ending = number == signal.SIGTERM
        cleared = ending and records.has_failed()
        first = ending and not cleared and records.ask_to_stop(records.TERMINATED)
        if cleared:
            self._folder.claim(CLEARED)
        elif ending:
            self._announce(records.TERMINATED)
        if programs is None:
            # those that start after the announcement: see Rank._catch_up
            programs = self.programs()
        for rank, pid in programs.items():
            self._folder.note_heard(rank, pid, number)
        if not self._canary.heard(number):
            self._forward(number, programs)
        if not ending:
            return ""
        self._was_ended = True
        if cleared:
            self._insist_at = time.monotonic() + INSIST_S
            return "cleared"
        if first:
            self._note_preemption()
        return "TERM"

    def _forward(self, number: int, programs: dict[int, int]) -> None:
        """Send a signal to some programs, the first SIGTERM only to those that have not got it."""
        for rank, pid in programs.items():
            is_first_term = number == signal.SIGTERM and not self._was_ended
            if not is_first_term or self._folder.claim(f"ended-{rank}"):
                send(pid, number)

    @staticmethod
    def _note_preemption() -> None:
        """Ask Slurm now, since it forgets the preemption when it requeues the job by itself."""
        from . import slurm_requests  # its imports would take every rank some milliseconds

        if "SLURM_JOB_ID" in os.environ and slurm_requests.job().preempted:
            records.write("preempted", {})

    def _announce(self, reason: str) -> None:
        """Tell the ranks of this node to stop."""
        self._folder.claim(f"stop-{reason}")
        if reason == records.TIME_LIMIT:
            self._warn()

    def _warn(self) -> None:
        """Send SIGUSR1 once to each process of the ranks that handles this signal, now or later.

        The signal would kill the other processes. A fork of a process, such as a worker that loads
        data, has the handler of this process, and must not run it, too.
        """
        handlers = {}
        for pid, rank in self._folder.rank_processes().items():
            if catches(pid, signal.SIGUSR1):
                handlers[pid] = rank
        for pid, rank in handlers.items():
            mark = f"warned-{pid}"
            if self._folder.has(mark) or is_fork_of_any(pid, handlers):
                continue
            if self._folder.claim(mark):
                self._folder.note_heard(rank, pid, signal.SIGUSR1)
                send(pid, signal.SIGUSR1)

    def _beat(self) -> None:
        try:
            os.utime(os.path.join(records.attempt_dir(), f"node-{os.environ['HPCRUN_NODE']}.start"))
        except OSError:
            return
