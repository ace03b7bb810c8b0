"""Running runs that have been silent for long; explain says more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcrun.actions.hooks import HOOKS
from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.job import job_states as state
from hpcrun.runs.attempt import last_attempt, rank_exits
from hpcrun.runs.compiled_files import last_compiled_s
from hpcrun.runs.elements import records_of
from hpcrun.runs.silence import SILENT_S, long_silence_s


def with_silence(result: StatusResult, now_s: float) -> StatusResult:
    """Return the runs, with the length of the silence of each that has been silent for long."""
    runs = [replace(item, silent_s=_silent_s(item, now_s)) for item in result.runs]
    return replace(result, runs=tuple(runs))


def _silent_s(item: RunStatus, now_s: float) -> float | None:
    """Return the seconds since any rank has written.

    Returns:
        The seconds; None if this is not long, or if the ranks write nothing.
    """
    if not _may_be_silent(item):
        return None  # before any file is opened
    # The role that decides the end counts: a server without requests is silent, too.
    attempt = last_attempt(item.folder, item.element or 0, item.run.deciding_role)
    if attempt is None or attempt.exit is not None:
        return None
    silent_s = long_silence_s(attempt, now_s)
    if silent_s is None or records_of(item.folder, item.element or 0).cancelled:
        return None
    # the end of a rank is a sign of the job, too
    ended_s = max((end.ended_s for end in rank_exits(attempt.folder)), default=0.0)
    # so is a new file of a compiler
    compiled_s = last_compiled_s(attempt.folder)
    silent_s = min(silent_s, now_s - ended_s, now_s - compiled_s)
    return silent_s if silent_s >= SILENT_S else None


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
