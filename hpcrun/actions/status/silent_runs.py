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
    return replace(
        result, runs=tuple(replace(item, silent_s=_silent_s(item, now_s)) for item in result.runs)
    )


def _silent_s(item: RunStatus, now_s: float) -> float | None:
    """Return the seconds since any rank has written.

    Returns:
        The seconds; None if this is not long, or if the ranks write nothing.
    """
    status = item.status
    if (
        status.state != state.RUNNING
        or status.final
        or item.stale
        or item.elsewhere
        or item.elements
    ):
        return None
    is_young = status.elapsed_s is not None and status.elapsed_s < SILENT_S
    # the program of a feature has little to write
    if is_young or item.run.request.get("script") in HOOKS:
        return None  # before any file is opened
    # a server may wait for requests
    attempt = last_attempt(item.folder, item.element or 0, item.run.deciding_role)
    if attempt is None or attempt.exit is not None or now_s - attempt.started_s < SILENT_S:
        return None
    if (first_s := last_write_s(attempt.folder, 0)) is not None and now_s - first_s < SILENT_S:
        return None  # most runs: rank 0 writes, and the files of the others are not needed
    written = {
        rank: at_s for rank, at_s in last_writes(attempt.folder).ranks.items() if at_s is not None
    }
    latest = max(written, key=lambda rank: written[rank], default=None)
    if latest is None or (silent_s := now_s - written[latest]) < SILENT_S:
        return None
    usual_s = usual_pause_s(attempt, latest)
    if usual_s is None:
        least_s = SILENT_WITHOUT_PACE_S
    else:
        least_s = MUCH_LONGER * usual_s
    return silent_s if silent_s >= least_s else None


def first_silent(items: Sequence[RunStatus]) -> RunStatus | None:
    """Return the run that has been silent for the longest time; None if there is none."""
    return max(
        (one for one in items if one.silent_s is not None),
        key=lambda one: one.silent_s or 0.0,
        default=None,
    )
