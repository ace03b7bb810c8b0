"""Noting an action on runs in the runs folder: ``actions.jsonl``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hpcrun.actions.ports import Ports
from hpcrun.runs.action_log import ActionLog
from hpcrun.runs.record import Run


def note_action(
    ports: Ports, action: str, runs: Sequence[Run], secrets: Collection[str] = (), **more: Any
) -> None:
    """Note an action; this never fails, and without runs or a caller nothing is noted.

    Args:
        ports: give the runs folder, the caller and the time.
        action: the name of the command.
        runs: the runs that it changes.
        secrets: the names of variables whose values are masked in the command line.
        **more: further fields.
    """
    caller = ports.caller
    if runs and caller is not None:
        log = ActionLog(ports.store.actions, caller.by, caller.arguments, caller.warn)
        log.note(action, runs, ports.now_s(), secrets, **more)
