"""What the roles of a job are doing: waiting, starting, running, ready, or how they ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.units import host_list, joined
from hpcrun.runs.attempt import (
    IGNORED,
    RankExit,
    hosts,
    last_attempt,
    node_ranks,
    rank_exits,
    ranks,
)
from hpcrun.runs.record import Run
from hpcrun.runs.silence import written_s


@dataclass(frozen=True, slots=True)
class RoleState:
    """What a role is doing."""

    role: RoleRanks
    # ``waiting``, ``starting``, ``running``, ``ready``, ``ended`` or ``terminated``; ``not
    # started``
    state: str
    nodes: tuple[str, ...]
    since_s: float | None = None  # when it became ready, or ended, in seconds since the epoch
    # of its rank that failed first; 0 if none did; None while a rank runs
    exit_status: int | None = None

    @property
    def line(self) -> str:
        """The role, its state and its nodes: ``server: ready since 12:31:05, on node-1``."""
        text = self.state
        if self.exit_status is not None:
            text += f" with exit status {self.exit_status}"
        elif self.since_s is not None:
            text += time.strftime(" since %T", time.localtime(self.since_s))
        elif self.state == "waiting":
            text += f" for {joined(self.role.after)}"
        if self.nodes:
            text += f", on {host_list(self.nodes)}"
        return f"{self.role.name}: {text}"


def role_states(run: Run, run_folder: Path, element: int = 0) -> Iterator[RoleState]:
    """Yield what each role of a run, or of an element of a sweep, is doing.

    There are none before the run starts, or without roles.
    """
    roles = run.roles
    attempt = last_attempt(run_folder, element) if roles else None
    if attempt is None:
        return
    nodes = hosts(attempt.folder)
    ready_s = {role.name: written_s(attempt.folder.ready(role.name)) for role in roles}
    for role in roles:
        folder = replace(attempt.folder, role=role)
        on = tuple(sorted(node_ranks(folder)))
        if not on:
            on = tuple(nodes[role.first_node : role.first_node + role.nodes])
        ends = rank_exits(folder)
        since_s = ready_s[role.name]
        if len(ends) >= role.ranks:
            yield _ended(role, on, ends)
        elif attempt.exit is not None:
            yield RoleState(role, "no record of its end" if ranks(folder) else "not started", on)
        elif since_s is not None:
            yield RoleState(role, "ready" if role.ready else "running", on, since_s)
        else:
            not_ready = [name for name in role.after if ready_s.get(name, 0.0) is None]
            waits = not_ready and not ranks(folder)
            yield RoleState(role, "waiting" if waits else "starting", on)


def _ended(role: RoleRanks, nodes: tuple[str, ...], ends: Sequence[RankExit]) -> RoleState:
    """Return the state of a role whose ranks have all ended."""
    first = min(ends, key=lambda end: (end.status == 0, end.is_consequence, end.ended_s))
    state = "ended"
    if first.is_consequence and first.signalled != IGNORED:
        state = "terminated"
    return RoleState(role, state, nodes, max(end.ended_s for end in ends), first.status)
