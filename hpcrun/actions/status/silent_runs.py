"""Running runs that have been silent for long; explain says more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcrun.actions.hooks import HOOKS
from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.job import job_states as state
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.silence import MUCH_LONGER, last_write_s, last_writes, usual_pause_s

SILENT_S = 600.0
SILENT_WITHOUT_PACE_S = 1800.0
"""The shortest silence that is shown, and that of a run with too few lines to know its pace."""


def with_silence(result: StatusResult, now_s: float) -> StatusResult:
    """Return the runs, with the length of their silence.

    Only a run that runs and has been silent for long has a length.
    """
    runs = [replace(item, silent_s=_silent_s(item, now_s)) for item in result.runs]
    return replace(result, runs=tuple(runs))


def _silent_s(item: RunStatus, now_s: float) -> float | None:
    """Return the seconds since any rank has written.

    Returns:
        The seconds; None if this is not long, or if the ranks write nothing.
    """
    if not _may_be_silent(item):
        return None  # before any file is opened
    # a server may wait for requests
    attempt = last_attempt(item.folder, item.element or 0, item.run.deciding_role)
    if attempt is None or attempt.exit is not None or now_s - attempt.started_s < SILENT_S:
        return None
    first_s = last_write_s(attempt.folder, 0)
    if first_s is not None and now_s - first_s < SILENT_S:
        return None  # most runs: rank 0 writes, and the files of the others are not needed
    writes = last_writes(attempt.folder).ranks
    written = {rank: at_s for rank, at_s in writes.items() if at_s is not None}
    latest = max(written, key=lambda rank: written[rank], default=None)
    if latest is None:
        return None
    silent_s = now_s - written[latest]
    if silent_s < SILENT_S:
        return None
    usual_s = usual_pause_s(attempt, latest)
    if usual_s is None:
        least_s = SILENT_WITHOUT_PACE_S
    else:
        least_s = MUCH_LONGER * usual_s
    return silent_s if silent_s >= least_s else None


def _may_be_silent(item: RunStatus) -> bool:
    """Return whether a run has run for long, as far as its status tells."""
    status = item.status
    if status.state != state.RUNNING or status.final:
        return False
    if item.stale or item.elsewhere or item.elements:
        return False
    if status.elapsed_s is not None and status.elapsed_s < SILENT_S:
        return False
    # the program of a feature has little to write
    return item.run.request.get("script") not in HOOKS


def first_silent(items: Sequence[RunStatus]) -> RunStatus | None:
    """Return the run that has been silent for the longest time; None if there is none."""
    silent = [item for item in items if item.silent_s is not None]
    return max(silent, key=lambda item: item.silent_s or 0.0, default=None)
