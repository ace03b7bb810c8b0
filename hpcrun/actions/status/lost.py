"""Lost runs: they are not known to be over, and nothing has been heard of them for a day."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpcrun.job import state
from hpcrun.job.layout import RunFolder, parse_numbers
from hpcrun.runs.attempt import Attempt, last_attempt
from hpcrun.runs.record import LastStatus, Run

LOST_AFTER_S = 86400.0
"""So long after its last sign of life a run of unknown end is lost. A running script gives one every 30 s."""
SURELY_OVER_AFTER_S = 30 * 86400.0
"""So long after its last sign of life a run that has started is over, also on a cluster that cannot be asked."""


def last_sign_s(run: Run, folder: Path, status: LastStatus) -> float:
    """Return when a run ended, or last gave a sign of life, in seconds since the epoch: of a sweep its last element."""
    signs = [_sign_s(attempt, status) for attempt in _newest_attempts(folder)]
    return max(signs, default=run.created_s + (status.elapsed_s or 0))


def has_started(folder: Path) -> bool:
    """Whether the script of a run, or of an element of it, has started at least once."""
    return bool(_newest_attempts(folder))


def is_lost(run: Run, folder: Path, status: LastStatus, *, elsewhere: bool, now_s: float) -> bool:
    """Whether nobody knows the end of a run, for a day.

    Args:
        status: UNKNOWN since its ``asked_s`` where this cluster or host does not know the run; of a run elsewhere what
            was last known at its ``asked_s``.
        elsewhere: it belongs to a cluster or host that cannot be asked from here.
    """
    if status.final or not (elsewhere or status.state == state.UNKNOWN):
        return False
    if now_s - status.asked_s <= LOST_AFTER_S:
        return False  # before any file is opened
    return now_s - last_sign_s(run, folder, status) > LOST_AFTER_S


def keep_since(status: LastStatus, last: LastStatus | None) -> LastStatus:
    """Return the status of a run that is still UNKNOWN with the time since when it is."""
    if last is None or status.final or not status.state == last.state == state.UNKNOWN:
        return status
    return replace(status, asked_s=min(status.asked_s, last.asked_s))


def _newest_attempts(folder: Path) -> list[Attempt]:
    elements: list[int] = []
    with suppress(OSError):
        elements = parse_numbers(os.listdir(RunFolder(folder).elements))
    found = [last_attempt(folder, index) for index in elements]
    return [attempt for attempt in found if attempt is not None]


def _sign_s(attempt: Attempt, status: LastStatus) -> float:
    if attempt.exit is not None:
        return attempt.exit.ended_s
    return max(attempt.alive_s, attempt.started_s + (status.elapsed_s or 0))
