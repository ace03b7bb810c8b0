"""Watches the step of a job: Slurm's signals, nodes without a heartbeat, idle GPUs, time limits.

The step calls the monitor for each signal, and about every second, while a command runs.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from .. import records, slurm_requests
from ..processes import Canary, name_tree, sweep
from .dead_nodes import Heartbeats
from .exit_record import write_exit
from .guard import Guard
from .idle_watch import IdleWatch
from .job_arguments import step_of
from .why_ended import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .job_arguments import JobOptions
    from .message_events import Messages

HEARTBEAT_S = 30.0
IDLE_S = 30.0
"""The time of the ranks after SIGTERM, if the GPUs were idle: Slurm's own default (KillWait)."""
KILL_S = 2.0
"""How long srun has to end a step with a node that does not respond.

By then the other nodes have ended.
"""
RANKS_S = 5.0
"""The time in which the nodes of this machine notice that the job was killed, and record their end.

On a cluster Slurm ends the ranks; the canary ends the clients of Slurm on this node.
"""
NEVER = float("inf")


class StepMonitor:
    """The step of a job, and the watch over it.

    Args:
        options: the options of the job.
        messages: the messages about events while the ranks run.
        record_reason: called once if SIGKILL may come before the ranks have ended; it records why
            the job ends.

    Attributes:
        step: starts commands on the nodes.
        signalled: this process got SIGTERM or SIGINT.
        given_up: ranks continued after the grace time of a warning, or of the end of idle GPUs.
        heartbeats: the heartbeats of the nodes of this attempt.
        guard: the guard of the job, if it has one.
        canary: ends what this process has started, if this process is killed.
    """

    def __init__(
        self, options: JobOptions, messages: Messages, record_reason: Callable[[], None]
    ) -> None:
        self.step = step_of(options, self._on_signal, self._tick)
        self.signalled = False
        self.given_up = False
        self.heartbeats = Heartbeats([])
        self.guard: Guard | None = None
        self.renew_canary()
        self._idle = IdleWatch(0, options.sample_s, [])
        self._options = options
        self._messages = messages
        self._record_reason = record_reason
        self._has_recorded_reason = False
        self._pack_pid = os.getppid() if options.within else 0
        self._heartbeat_at = time.monotonic() + HEARTBEAT_S
        self._limit_s = NEVER  # of a command with its own time limit
        self._kill_at = NEVER  # set if a node is dead: srun would wait for it without limit
        # set by a warning and by idle GPUs: then the ranks' grace time is over
        self._give_up_at = NEVER

    @property
    def idle_message(self) -> str:
        """Why the step was ended because of idle GPUs; empty if it was not."""
        return self._idle.message

    def left_s(self) -> float:
        """Return the seconds until the grace time of a warning is over.

        Returns:
            0 after a SIGTERM; infinity if there was no warning.
        """
        if self.signalled:
            return 0.0
        return self._give_up_at - time.monotonic()

    def end_helpers(self) -> None:
        """End the guard and the canary."""
        if self.guard:
            self.guard.end()
            self.guard = None
        self.canary.end()

    def renew_canary(self) -> None:
        """Start a canary for all that this process starts from now on."""
        tree = name_tree(of_job=True)
        self._tree = tree
        self.canary = Canary(lambda _: sweep(tree, RANKS_S), closes=True)

    def sweep_node(self) -> None:
        """Kill what the job has started on this node, after it has gone on without this node."""
        sweep(self._tree, every_step=True)

    def watch_attempt(self, nodes: list[str]) -> None:
        """Watch a new attempt: the heartbeats of these nodes, and no GPUs until ``watch_gpus``."""
        self.heartbeats = Heartbeats(nodes)
        self._idle = IdleWatch(0, self._options.sample_s, [])

    def watch_gpus(self, hosts: list[str]) -> None:
        """Watch the GPUs of the ranks from now on."""
        self._idle = IdleWatch(self._options.cancel_idle, self._options.sample_s, hosts)

    def run_check(self, command: list[str], hosts: list[str], log: str, limit_s: float) -> None:
        """Run a command on each node, all to their end, for a limited time."""
        self._limit_s = limit_s
        self.step.run_other(command, hosts, log, one_fails_all=False)
        self._limit_s = NEVER

    def forget_dead_nodes(self) -> None:
        """End no further step because of the nodes that were dead in this one."""
        self._kill_at = NEVER

    def _on_signal(self, info: Any) -> None:
        if info.si_signo == signal.SIGUSR1:
            self._warn()
        elif info.si_signo in (signal.SIGTERM, signal.SIGINT) and not self.signalled:
            self.signalled = True
            # SIGKILL may come before more is known
            write_exit(records.TERM_STATUS, signalled=True, within_s=0)
            self.step.tell(signal.SIGTERM)

    def _warn(self) -> None:
        """Ask the ranks to stop before the time limit, once, and begin their grace time."""
        if self._options.grace is not None and self._give_up_at == NEVER:
            records.ask_to_stop(records.TIME_LIMIT)  # the nodes watch for it
            self._give_up_at = time.monotonic() + self._options.grace

    def _tick(self) -> bool:
        """Do what is due; return whether the step is no longer waited for."""
        now = time.monotonic()
        self._write_heartbeat(now)
        self._messages.tick()
        self.canary.renew()
        if self.guard and not self.signalled:
            self.guard.renew(now)
        self._end_step_if_due(now)
        self.given_up = now > self._give_up_at
        was_pack_killed = self._pack_pid not in (0, os.getppid())
        if was_pack_killed:
            self.step.tell(signal.SIGKILL)
        elif self.given_up:
            self.step.tell(signal.SIGTERM)
        if not self.signalled or not self._options.in_slurm:
            return self.given_up
        if self._options.is_managed and not self._options.is_local:
            return True  # Slurm is about to end this process: so decide now
        if not self._has_recorded_reason:
            self._has_recorded_reason = True
            self._record_reason()
        return self.given_up and self._options.is_local

    def _write_heartbeat(self, now: float) -> None:
        """Write the heartbeat, which hpcrun status reads if Slurm does not know this job."""
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_S
            records.write("heartbeat", int(time.time()))

    def _end_step_if_due(self, now: float) -> None:
        """End the step if its time is over, a node is dead, or all GPUs are idle."""
        kill_at = min(self._kill_at, self.step.started_at + self._limit_s)
        if now > kill_at:  # srun waits without limit for a node that does not respond
            number = signal.SIGTERM if now < kill_at + KILL_S else signal.SIGKILL
            self.step.tell(number, to_srun=True)
            return
        if self.signalled:
            return
        if self.heartbeats.check():
            dead = ",".join(self.heartbeats.dead)
            records.say(f"no heartbeat from {dead}: the step is ended")
            self._kill_at = now
        elif self.guard and not self._idle.message and self.guard.has_acted(now):
            records.say(
                "this node had no network, and the job goes on elsewhere: the step is ended"
            )
            self._kill_at = now
        elif self._idle.check():
            self._end_idle_step(now)

    def _end_idle_step(self, now: float) -> None:
        """Ask the ranks to end; as after a warning, the ranks have some time to end."""
        message = self._idle.message
        records.say(f"{message}; --cancel-idle or the profile's cancel_idle sets the limit")
        # SIGKILL may come first
        write_exit(records.TERM_STATUS, signalled=False, why=IDLE, message=message, within_s=0)
        if self.step.by_srun:
            problem = slurm_requests.end_steps()
            if problem:
                records.say(problem)
        else:
            self.step.tell(signal.SIGTERM, to_srun=True)
        self._give_up_at = min(self._give_up_at, now + IDLE_S)
