"""Why there is nothing to explain of a job: it has not ended, ended well, or never started."""

from __future__ import annotations

from hpcrun.actions.hooks import about_run
from hpcrun.actions.status.decide_status import BEFORE_START
from hpcrun.actions.status.run_status import NEVER, RunStatus
from hpcrun.job import job_states
from hpcrun.job.request.after import Condition

_NOT_RUNNING = frozenset(
    "PENDING CONFIGURING SUBMITTING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT".split()
)
"""States of a job that has no allocation, or none yet."""
_CONDITIONS: dict[Condition, str] = {"ok": "completed", "any": "ended", "fail": "did not complete"}


def nothing_failed(item: RunStatus) -> str | None:
    """Return why there is nothing to explain; None if the job failed.

    The job has not ended, or ended well.
    """
    status = item.status
    reason = f" ({status.reason})" if status.reason else ""
    if status.state == job_states.COMPLETED and status.final:
        return about_run(item)[1] or "the job completed with exit status 0"
    if status.final:
        return _never_started(item)
    if status.state == job_states.RUNNING:
        return f"the job is running{reason}: it has not ended"
    if status.state == job_states.UNKNOWN:
        return f"the state of the job is unknown{reason}"
    if status.state not in _NOT_RUNNING:
        return f"the job is {status.state.lower().replace('_', ' ')}{reason}: it has not ended"
    if status.reason and status.state == job_states.PENDING:
        known = item.known_reason
    else:
        known = None
    if item.never_starts:
        return f"the job never starts: {item.never_starts.short}{reason}"
    now = "waits again" if status.attempt else "has not started"
    return f"the job {now}: {known.short if known else status.state}{reason}"


def _never_started(item: RunStatus) -> str | None:
    """Return why a job that has ended never started; None if it did."""
    if item.waits and item.status.reason in (BEFORE_START, NEVER, "Dependency"):
        other = item.waits[0]
        condition = f"{other.name} ({other.job_id}) {_CONDITIONS[other.condition]}"
        return f"the job was not needed: it was to run only if {condition}, which is {other.state}"
    if item.run.chain and (item.status.reason or "").startswith("because "):
        return f"the job was {BEFORE_START}, {item.status.reason}"
    if item.status.reason == BEFORE_START:
        return f"the job was {BEFORE_START}"
    return None
