"""Detects nodes without a heartbeat before Slurm does, which may take five minutes.

Every node touches its start record about every ten seconds (node_watch.py). This process
measures by its own clock when it has seen a record change, and ignores the clocks of other hosts. A
slow file system must not look like a dead
node: so other nodes must have a heartbeat meanwhile, and either Slurm must report the node down, or
the node itself must not respond although it did before. A running host accepts or refuses a
connection at once, whatever listens there.
"""

from __future__ import annotations

import os
import socket
import time

from .. import records, slurm_requests
from ..rendezvous import FIRST

LATE_S = 25.0
FRESH_S = 15.0
LOOK_S = 5.0
ASK_AGAIN_S = 30.0
ANSWER_S = 2.0


class Heartbeats:
    """The heartbeats of the nodes of one attempt; without nodes it reads nothing.

    Attributes:
        dead: the nodes that were found dead.
    """

    def __init__(self, nodes: list[str]) -> None:
        self.dead: list[str] = []
        self._nodes = nodes
        # time of the record, and when this process saw it change
        self._seen: dict[str, tuple[int, float]] = {}
        self._answered: set[str] = set()
        self._can_tell = True
        self._closer: list[str] | None = None
        self._look_at = 0.0
        self._ask_at = 0.0

    def check(self) -> list[str]:
        """Check from time to time; return the nodes that have become dead."""
        now = time.monotonic()
        if now < self._look_at or len(self._nodes) < 2:
            return []
        self._look_at = now + LOOK_S
        self._update(now)
        silent = silent_nodes(self._ages(now))
        if not silent or now < self._ask_at:
            return []
        self._ask_at = now + ASK_AGAIN_S
        self.dead = self._dead(silent, silent)
        return self.dead

    def look_closer(self, nodes: list[str]) -> list[str]:
        """Return the dead nodes after the end of the step.

        A node with a late heartbeat counts, too, if the node does not respond, and one that Slurm
        has removed from the job. Slurm is asked once.
        """
        if self._closer is None:
            ages = self._ages(time.monotonic())
            late = [node for node, age_s in ages.items() if age_s > FRESH_S]
            dead = {*self.dead, *self._dead(nodes, late)}
            if len(nodes) > 1:
                dead.update(slurm_requests.removed_nodes(nodes))
            self._closer = sorted(dead)
        return self._closer

    def _dead(self, nodes: list[str], late: list[str]) -> list[str]:
        dead = []
        # empty if this node itself has no network
        for node, is_dead in slurm_requests.nodes_dead(nodes).items():
            if is_dead or (node in late and self._is_gone(node)):
                dead.append(node)
        return dead

    def _ages(self, now: float) -> dict[str, float]:
        return {node: now - changed for node, (_, changed) in self._seen.items()}

    def _update(self, now: float) -> None:
        for node in self._nodes:
            path = os.path.join(records.attempt_dir(), f"node-{node}.start")
            try:  # open it: then NFS asks the server, and does not use its cache
                with open(path, "rb") as file:
                    changed = os.fstat(file.fileno()).st_mtime_ns
            except OSError:
                continue
            if node in self._seen and self._seen[node][0] == changed:
                continue
            self._seen[node] = (changed, now)
            if node not in self._answered and self._can_tell:
                self._can_tell = answers(node)  # a firewall may drop unknown connections
                if self._can_tell:
                    self._answered.add(node)

    def _is_gone(self, node: str) -> bool:
        """Whether a node that has responded before does not respond, twice."""
        if node not in self._answered or not self._can_tell:
            return False
        return not answers(node) and not answers(node)


def silent_nodes(ages: dict[str, float]) -> list[str]:
    """Return the silent nodes by the seconds since their last heartbeat.

    The result is empty if no node has a recent heartbeat.
    """
    silent = [node for node, age_s in ages.items() if age_s > LATE_S]
    if any(age_s <= FRESH_S for age_s in ages.values()):
        return silent
    return []


def answers(node: str) -> bool:
    """Whether a host soon accepts or refuses a connection."""
    try:
        socket.create_connection((node, FIRST - 1), ANSWER_S).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return True


def note_dead_before() -> None:
    """Note the dead nodes of the attempt before, if it has started and left no record of its end.

    A full disk or ``scontrol requeue`` leaves no record either: only the state of the nodes tells
    whether one failed, and soon they may have returned.
    """
    before = records.folder_before()
    hosts = records.read_text("hosts", before).split() if before else []
    if not hosts or records.read_text("exit", before):
        return
    dead = [node for node, is_dead in slurm_requests.nodes_dead(hosts).items() if is_dead]
    if dead:
        records.write("dead-nodes", {"nodes": dead, "asked": time.time()}, before)


def next_nodes(nodes: list[str], before: list[str], left_out: list[str]) -> list[str]:
    """Return the nodes for a restart, fewer than before if there are not enough nodes.

    A spare node is used only if it starts a step.

    Args:
        nodes: those that Slurm counts to the job now.
        before: those of the last attempt.
        left_out: those that are not used any more; nodes that start no step are added.
    """
    dead = slurm_requests.nodes_dead(nodes) if nodes else {}
    usable = [node for node in nodes if node not in left_out and not dead.get(node)]
    chosen = {node for node in usable if node in before}
    for node in usable:
        if node in chosen or len(chosen) >= len(before):
            continue
        if slurm_requests.starts_step(node):
            chosen.add(node)
        else:
            left_out.append(node)
            records.say(f"{node} starts no step: it is left out")
    return [node for node in usable if node in chosen]
