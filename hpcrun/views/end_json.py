"""How a run ended, or why it has not, as JSON: for wait, submit --wait, status and explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.job.job_states import PENDING
from hpcrun.views.text import fields_of

if TYPE_CHECKING:
    from hpcrun.explain.first_line import Ending


def end_json(item: RunStatus, end: Ending) -> dict[str, Any]:
    """Return the state of a run, and the cause and the rank of a failure."""
    silent_s = None
    if item.silent_s is not None:
        silent_s = int(item.silent_s)
    return {
        **fields_of(item.status, "state final reason exit_status"),
        "cause": end.line or None,
        "rank": end.rank,
        "role": end.role.name if end.role else None,
        "rank_exit_status": end.exit_status,
        "elapsed_s": item.status.ran_s,
        "silent_s": silent_s,
        **waiting_json(item),
    }


def waiting_json(item: RunStatus) -> dict[str, Any]:
    """Return whether a pending run ever starts, what to do, and the limit that it alone is over.

    There is nothing to do about other runs.
    """
    advice = None
    if item.status.state == PENDING and item.known_reason is not None:
        advice = item.known_reason.advice.replace("JOB", item.label)
    never = item.never_starts
    if never is not None:
        advice = never.advice.replace("JOB", item.label)
    limit = None
    if item.over_limit is not None:
        limit = fields_of(item.over_limit, "holder what requested allowed whose")
    return {"never_starts": never is not None, "advice": advice, "limit": limit}
