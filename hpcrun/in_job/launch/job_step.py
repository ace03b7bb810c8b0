"""The step of a job: srun, or the "nodes" of this machine.

Start the step, wait for the step, and repeat the request.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from . import rank_environment, records, slurm_requests
from .processes import hide_colons, reap, send, try_start, wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from .processes import OnSignal

CONTROLLER_S = 3600.0
ASK_AGAIN_S = 10.0
"""How long to wait for Slurm's controller, and how often to ask it."""
PROMPT_S = 1.0
"""A controller that answers within this time was not down before: Slurm's commands try again after
a second.
"""


class JobStep:
    """The commands on the nodes of one allocation, one after another.

    Args:
        nodes: the number of nodes on this machine; None with Slurm.
        gpus: the GPUs of each of these nodes; empty if they have none.
        on_signal: called for each signal that arrives while a command runs.
        tick: called about every second; it ends the waiting by returning True.

    Attributes:
        started_at: when the command was started, by the monotonic clock.
        streams: descriptors that the command gets, by their numbers there; empty for the stdin,
            stdout and stderr of this process.
        by_srun: srun starts the command, as a step of Slurm, which signals it.
        killed_by: the signal that has ended a person's script; 0 for none.
    """

    def __init__(
        self, nodes: int | None, gpus: list[str], on_signal: OnSignal, tick: Callable[[], bool]
    ) -> None:
        self.started_at = 0.0
        self._local = nodes is not None
        self._nodes = nodes or 1
        self._gpus = gpus
        self._on_signal = on_signal
        self._tick = tick
        self._children: list[int] = []
        self.streams: dict[int, int] = {}
        self.by_srun = not self._local
        self.killed_by = 0

    def prepare(self, came: int | None, *, managed: bool) -> None:
        """Prepare the environment of the step; the arguments are those of rank_environment."""
        rank_environment.prepare(came, managed=managed)

    def run(self, command: list[str], hosts: list[str]) -> int:
        """Run the command of the ranks to its end, and return its status.

        The status is 143 if the waiting has ended before.
        """
        status = self.run_other(command, hosts)
        if status or self._local or records.has_begun():
            return status
        # NFS lists anew a folder that this machine changes
        records.write("heartbeat", int(time.time()))
        if records.has_begun():
            return 0
        # srun 22.05, when every node fails to launch its tasks
        records.say("srun ended with exit status 0, and no rank has started")
        return 1

    def run_other(
        self,
        command: list[str],
        hosts: list[str],
        log: str | None = None,
        *,
        one_fails_all: bool = True,
    ) -> int:
        """Run a command, which need not be the command of the ranks, to its end.

        The result is the status, as in ``run``.

        Args:
            command: the program and its arguments.
            hosts: the names of the nodes of this machine.
            log: a file to which the output is appended.
            one_fails_all: the first failure ends the other nodes, like srun --kill-on-bad-exit.
        """
        until = float("inf")
        while True:
            status = self._wait(self._start(command, hosts, log), one_fails_all)
            if self._local or status != rank_environment.SRUN_FAILED or records.has_begun():
                return status
            until = min(until, time.monotonic() + CONTROLLER_S)
            if not self._controller_was_away(until):
                return 1  # like srun itself

    def tell(self, number: int, *, to_srun: bool = False) -> None:
        """Forward a signal to the nodes of this machine; on a cluster Slurm does this."""
        if self._local or to_srun:
            for pid in self._children:
                send(pid, number)

    def finish(self, status: int, *, elsewhere: bool = False) -> int:  # noqa: ARG002 - for scripts
        """Return the status of the job after its last attempt here, which ended with this one.

        Args:
            status: the status of the last attempt.
            elsewhere: the next attempt has been started elsewhere.
        """
        return status

    def close_streams(self) -> None:
        """Close the streams of the command: nothing else is started with them."""
        for descriptor in self.streams.values():
            os.close(descriptor)
        self.streams = {}

    def _start(self, command: list[str], hosts: list[str], log: str | None) -> int:
        """Start the command; return 0, or an exit status if it cannot be started."""
        self.started_at = time.monotonic()
        status = 0
        for number in range(self._nodes):
            env = dict(os.environ)
            if self._local:
                env["HPCRUN_NODE"] = hosts[number]
                env["HPCRUN_NODE_RANK"] = str(number)
                if self._gpus:
                    env["CUDA_VISIBLE_DEVICES"] = self._gpus[number]
            elif self.by_srun:
                env.setdefault("SLURM_EXIT_ERROR", str(rank_environment.SRUN_FAILED))
                command, colons = hide_colons(command)
                env.update(colons)
            pid, failed = try_start(command, env, out=log, err=log, streams=self.streams)
            if pid:
                self._children.append(pid)
            status = status or failed
        return status

    def _wait(self, status: int, one_fails_all: bool) -> int:
        while self._children:
            first = wait(self._children, self._on_signal, self._tick)
            if first is None:
                return records.TERM_STATUS
            pid, ended = first
            reap(pid)
            self._children.remove(pid)
            if ended and not status:
                status = ended
                if one_fails_all:
                    self.tell(signal.SIGTERM)
        return status

    def _controller_was_away(self, until: float) -> bool:
        """Wait until Slurm reports the job as running; return whether Slurm does so.

        The result is True only if Slurm had not responded before.

        srun gives up after MessageTimeout, or at once if the controller stops during the request.
        """
        asked_at = time.monotonic()
        state = slurm_requests.job().state
        is_over = False
        if state and time.monotonic() - asked_at < PROMPT_S:
            return False  # it has refused the step, and would refuse it again
        records.say("Slurm's controller was away, and the step has not begun: asking again")

        def on_signal(info: Any) -> None:
            nonlocal is_over
            self._on_signal(info)
            is_over = is_over or info.si_signo != signal.SIGUSR1

        def tick() -> bool:
            nonlocal is_over
            is_over = self._tick() or is_over or time.monotonic() > until
            return is_over or time.monotonic() >= asked_at + ASK_AGAIN_S

        while not state and not is_over:
            wait([], on_signal, tick)
            asked_at = time.monotonic()
            state = slurm_requests.job().state
        return state == "RUNNING" and not is_over and time.monotonic() < until
