"""What the roles of a job are doing: waiting, starting, running, ready, or how they ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.units import host_list, joined
from hpcrun.runs.attempt import IGNORED, hosts, last_attempt, node_ranks, rank_exits, ranks
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
        return f"{self.role.name}: {text}" + (f", on {host_list(self.nodes)}" if self.nodes else "")


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
        ends = rank_exits(folder)
        on = tuple(sorted(node_ranks(folder)))
        on = on or tuple(nodes[role.first_node : role.first_node + role.nodes])
        if len(ends) >= role.ranks:
            first = min(ends, key=lambda end: (end.status == 0, end.is_consequence, end.ended_s))
            if first.is_consequence and first.signalled != IGNORED:
                state = "terminated"
            else:
                state = "ended"
            yield RoleState(role, state, on, max(end.ended_s for end in ends), first.status)
        elif attempt.exit is not None:
            yield RoleState(role, "no record of its end" if ranks(folder) else "not started", on)
        elif (since_s := ready_s[role.name]) is not None:
            yield RoleState(role, "ready" if role.ready else "running", on, since_s)
        else:
            waits = not ranks(folder) and any(ready_s.get(name, 0.0) is None for name in role.after)
            yield RoleState(role, "waiting" if waits else "starting", on)
