"""Nodes that give no sign of life any more, found before Slurm finds them: it may wait for five minutes.

Every node touches its start record about every ten seconds (stop_requests.py). What counts is when this process has
seen a record change, by its own clock: not what a clock of another host says. A file system that is slow is no node
that is dead: others must be heard meanwhile, and Slurm must say that the node is down, or the node itself must not
answer, though it did before. To an address that lives a connection is made or refused at once, whatever listens
there.
"""

from __future__ import annotations

import os
import socket
import time

from . import records, slurm
from .rendezvous import FIRST

SILENT_S, FRESH_S = 25.0, 15.0
LOOK_S, ASK_AGAIN_S, ANSWER_S = 5.0, 30.0, 2.0


class Silence:
    """The signs of life of the nodes of one attempt; of no nodes it looks at nothing.

    Attributes:
        dead: those that were found dead.
    """

    def __init__(self, nodes: list[str]) -> None:
        self.dead: list[str] = []
        self._nodes = nodes
        self._seen: dict[str, tuple[int, float]] = {}  # time of the record, and when it was seen to change
        self._answered: set[str] = set()
        self._can_tell = True
        self._look_at = self._ask_at = 0.0

    def look(self) -> list[str]:
        """Look now and then; returns the nodes that are dead, and were not before."""
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
        """Return which of all nodes are dead now that the step has ended, in which some are late with their signs."""
        late = [node for node, age_s in self._ages(time.monotonic()).items() if age_s > FRESH_S]
        return sorted({*self.dead, *self._dead(nodes, late)})

    def _dead(self, nodes: list[str], late: list[str]) -> list[str]:
        said = slurm.nodes_dead(nodes)  # nothing where it is this node that was cut off
        return [node for node, dead in said.items() if dead or (node in late and self._is_gone(node))]

    def _ages(self, now: float) -> dict[str, float]:
        return {node: now - changed for node, (_, changed) in self._seen.items()}

    def _update(self, now: float) -> None:
        for node in self._nodes:
            try:  # opened: NFS then asks the server, and does not go by what it knew
                with open(os.path.join(records.attempt_dir(), f"node-{node}.start"), "rb") as file:
                    changed = os.fstat(file.fileno()).st_mtime_ns
            except OSError:
                continue
            if self._seen.get(node, (None,))[0] != changed:
                self._seen[node] = (changed, now)
                if node not in self._answered and self._can_tell:
                    self._can_tell = answers(node)  # a firewall drops what it does not know
                    self._answered |= {node} if self._can_tell else set()

    def _is_gone(self, node: str) -> bool:
        """Whether a node that has answered before does not answer, twice."""
        return node in self._answered and self._can_tell and not answers(node) and not answers(node)


def silent_nodes(ages: dict[str, float]) -> list[str]:
    """Return the nodes that are silent by the seconds since their last sign of life, none where nobody is heard."""
    silent = [node for node, age_s in ages.items() if age_s > SILENT_S]
    return silent if any(age_s <= FRESH_S for age_s in ages.values()) else []


def answers(node: str) -> bool:
    """Whether a host makes or refuses a connection, soon."""
    try:
        socket.create_connection((node, FIRST - 1), ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
