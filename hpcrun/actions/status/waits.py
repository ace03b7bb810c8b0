"""Which runs a run waits for, and whether it can still start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hpcrun.actions.runs.find import run_name
from hpcrun.errors import HpcrunError
from hpcrun.job import state
from hpcrun.job.after import Condition, fulfils
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore

NEVER = "DependencyNeverSatisfied"
"""Slurm's reason for a job whose dependency cannot be fulfilled any more; --kill-on-invalid-dep has it cancelled."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A run that another waits for, or because of which it never started."""

    run_id: str
    name: str
    job_id: str | None
    condition: Condition  # how it must end: ``ok``, ``any`` or ``fail``
    state: str  # as it is now
    over: bool  # it will not change any more


def waits_of(run: Run, status: LastStatus, status_of: Callable[[str], LastStatus | None]) -> tuple[Wait, ...]:
    """Return the runs that one which has not started waits for, or those because of which it never will."""
    if status.state not in (state.PENDING, state.UNKNOWN, state.CANCELLED):
        return ()
    waits = [_wait(said, status_of(said["run_id"])) for said in run.after]
    if status.state == state.PENDING:
        return tuple(wait for wait in waits if not (wait.over and fulfils(wait.state, wait.condition)))
    return tuple(wait for wait in waits if wait.over and not fulfils(wait.state, wait.condition))


def left_waiting(run_ids: Collection[str], store: RunStore) -> list[Run]:
    """Return the runs that wait for one of these and are none of them: cancelling a run lets another start."""
    found = []
    for run_id in store.active_ids():
        if run_id in run_ids:
            continue
        with suppress(HpcrunError):
            run = store.load(run_id)
            if any(said["run_id"] in run_ids for said in run.after):
                found.append(run)
    return found


def _wait(said: dict[str, Any], status: LastStatus | None) -> Wait:
    word, over = (status.state, status.final) if status else (state.UNKNOWN, False)
    return Wait(said["run_id"], run_name(said["run_id"]), said["job_id"], said["condition"], word, over)


def never_started(status: LastStatus, waits: Sequence[Wait]) -> LastStatus:
    """Return CANCELLED for an UNKNOWN run whose dependency could never be met, else the status as it is."""
    if status.state != state.UNKNOWN or status.final or not waits:
        return status
    return replace(status, state=state.CANCELLED, final=True, reason=NEVER)
