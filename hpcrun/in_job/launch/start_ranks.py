"""``launch node [--torchrun | --as-is] -- COMMAND ...``: one node.

It starts torchrun, or the command that runs once on each node, with the rendezvous of this job. It
watches for requests to stop for all of its ranks, and records how the node ended. torchrun's agent
gets no signal: it would end itself or its ranks, even while they save a checkpoint. It ends
together with its ranks.
"""

from __future__ import annotations

import os
import time

from . import rank_environment, records
from .head_address import find_head, options_of_torchrun
from .node_folder import FOLDER, make
from .node_watch import StopRequests
from .processes import (
    HEARD,
    Canary,
    block_signals,
    name_tree,
    reap,
    send,
    signal,
    sweep,
    try_start,
    wait,
)

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each node to import
if TYPE_CHECKING:
    from typing import Any

    from .compiled.node import CompiledFolder

RANKS_S = 3.0
"""How long a node waits for its last ranks, after their launcher."""


def main(arguments: list[str]) -> int:
    """Run one node; return the exit status of its command."""
    end = arguments.index("--")
    options = arguments[:end]
    command = arguments[end + 1 :]
    rank_environment.be_node()
    if "--as-is" in options:  # a script has set the rendezvous
        return Node().run(command)
    command = with_rendezvous(command, by_torchrun="--torchrun" in options)
    return Node().run(command) if command else _record_end(1)


def with_rendezvous(command: list[str], *, by_torchrun: bool) -> list[str]:
    """Set the rendezvous, and return the command with the rendezvous.

    The result is empty if this node does not find the head node.
    """
    if not by_torchrun:
        env = os.environ
        find_head(is_needed=False)
        env["NODE_RANK"] = env["HPCRUN_NODE_RANK"]
        env.setdefault("MASTER_ADDR", env["HPCRUN_HEAD_ADDR"])
        env.setdefault("MASTER_PORT", env["HPCRUN_PORT"])
        return command
    torchrun = command
    if "--no-python" in command:
        torchrun = command[: command.index("--no-python")]
    if "--standalone" in torchrun:  # on a single node it does not need this job's port
        return command
    if not find_head():
        return []
    return options_of_torchrun(torchrun) + command[len(torchrun) :]


def _record_end(status: int) -> int:
    node = os.environ["HPCRUN_NODE"]
    role = os.environ.get("HPCRUN_ROLE")
    name = f"node-{node}.{role}.exit" if role else f"node-{node}.exit"  # roles may share a node
    records.write(name, {"node": node, "status": status, "ended": time.time()})
    return status


class Node:
    """The process of one node."""

    def __init__(self) -> None:
        self._folder = make()
        os.environ[FOLDER] = self._folder.path
        self._compiled: CompiledFolder | None = None
        if rank_environment.COMPILED in os.environ:
            from .compiled import node  # slow to import, and most jobs keep no compiled files

            self._compiled = node.use()
        rank_environment.warn_of_foreign_folder()
        block_signals()
        self._tree = name_tree()
        self._canary = Canary(self._after_kill)
        self._watch = StopRequests(self._folder, self._canary)
        self._pid = 0
        self._ended_early = False

    def run(self, command: list[str]) -> int:
        """Start the command, wait for it, and record how it ended."""
        self._pid, status = try_start(command, os.environ, blocked=HEARD)
        if self._pid:
            self._canary.guard(self._pid)
            ended = wait([self._pid], self._on_signal, self._tick)
            status = ended[1] if ended else records.KILL_STATUS
            if self._ended_early:
                status = records.TERM_STATUS
            reap(self._pid)
        return self._close(status)

    def _close(self, status: int) -> int:
        """Record how the node ended, and leave it."""
        _record_end(status)
        self._canary.end()
        self._watch.end()
        self._leave(status)
        return status

    def _after_kill(self, pid: int) -> None:
        """End the command in the canary after this process was killed.

        The ranks end when their parent process has ended.
        """
        if pid:
            send(pid, signal.SIGKILL)
            _record_end(records.KILL_STATUS)
        self._leave(records.KILL_STATUS)

    def _leave(self, status: int) -> None:
        """Leave no process behind.

        A rank whose launcher was killed notices this within a second, and records its end.
        """
        until = time.monotonic() + RANKS_S
        while self._programs() and time.monotonic() < until:
            time.sleep(0.05)
        note_writers = self._compiled.note_writers if self._compiled else None
        sweep(self._tree, before_kill=note_writers)
        if self._compiled:
            is_killed = status == records.KILL_STATUS or self._folder.is_stopping()
            self._compiled.leave(ended_well=status == 0, may_save=not is_killed)
        self._folder.leave()

    def _programs(self) -> dict[int, int]:
        return self._folder.programs()

    def _tick(self) -> bool:
        if self._pid and self._canary.is_orphan():
            send(self._pid, signal.SIGKILL)
        self._canary.renew()
        if self._folder.leads():  # roles may share a node
            self._watch.tick()
            if self._compiled:
                self._compiled.tick()
        return False

    def _has_begun(self) -> bool:
        name = f"node-{os.environ['HPCRUN_NODE']}.start"
        return os.path.exists(os.path.join(records.attempt_dir(), name))

    def _on_signal(self, info: Any) -> None:
        programs = self._programs()
        if self._watch.on_signal(info.si_signo) and not programs and not self._has_begun():
            # kill it only before it has ranks: after their end it waits for other nodes, whose
            # ranks may still save
            self._ended_early = bool(self._pid) and send(self._pid, signal.SIGKILL)
