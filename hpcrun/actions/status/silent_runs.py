"""Running runs that have written nothing for long: a word in status. explain says more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.job import state
from hpcrun.runs.attempt import Attempt, last_attempt
from hpcrun.runs.silence import last_write_s, last_writes, usual_pause_s

SILENT_S = 600.0
"""A silence that is shorter is not worth a word ..."""
TIMES_USUAL = 3.0
"""... nor one that is shorter than so many times the usual pause between two lines of the run ..."""
SILENT_WITHOUT_PACE_S = 1800.0
"""... and of a run with too few lines to know its pace, a silence that is shorter than this."""


def with_silence(result: StatusResult, now_s: float) -> StatusResult:
    """Return the runs, those that run and have been silent for long with the length of their silence."""
    return replace(result, runs=tuple(replace(item, silent_s=_silent_s(item, now_s)) for item in result.runs))


def _silent_s(item: RunStatus, now_s: float) -> float | None:
    status = item.status
    if status.state != state.RUNNING or status.final or item.stale or item.elsewhere or item.elements:
        return None
    if status.elapsed_s is not None and status.elapsed_s < SILENT_S:
        return None  # before any file is opened
    attempt = last_attempt(item.folder, item.element or 0)
    return silence_s(attempt, now_s) if attempt else None


def silence_s(attempt: Attempt, now_s: float) -> float | None:
    """Return for how many seconds no rank has written; None if this is not long, or if the ranks write nothing."""
    if attempt.exit is not None or now_s - attempt.started_s < SILENT_S:
        return None
    first_s = last_write_s(attempt.folder, 0)
    if first_s is not None and now_s - first_s < SILENT_S:
        return None  # most runs: rank 0 writes, and the files of the others are not needed
    written = {rank: at_s for rank, at_s in last_writes(attempt.folder).ranks.items() if at_s is not None}
    if not written:
        return None
    latest = max(written, key=lambda rank: written[rank])
    silent_s = now_s - written[latest]
    if silent_s < SILENT_S:
        return None
    usual_s = usual_pause_s(attempt, latest)
    least_s = SILENT_WITHOUT_PACE_S if usual_s is None else TIMES_USUAL * usual_s
    return silent_s if silent_s >= least_s else None


def first_silent(items: Sequence[RunStatus]) -> RunStatus | None:
    """Return the run that has been silent for the longest time; None if there is none."""
    silent = [item for item in items if item.silent_s is not None]
    return max(silent, key=lambda item: item.silent_s or 0.0, default=None)
