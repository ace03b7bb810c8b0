"""How a run ended, or why it has not, as JSON: for wait, and for submit --wait."""

from __future__ import annotations

from typing import Any

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.first_line import Ending
from hpcrun.job.job_states import PENDING
from hpcrun.views.text import fields_of


def end_json(item: RunStatus, end: Ending) -> dict[str, Any]:
    """Return the state of a run, and the cause and the rank of a failure."""
    return {
        **fields_of(item.status, "state final reason exit_status"),
        "cause": end.line or None,
        "rank": end.rank,
        "role": end.role.name if end.role else None,
        "rank_exit_status": end.exit_status,
        "elapsed_s": item.status.ran_s,
        "silent_s": None if item.silent_s is None else int(item.silent_s),
        **waiting_json(item),
    }


def waiting_json(item: RunStatus) -> dict[str, Any]:
    """Return whether a pending run ever starts, and what to do; nothing to do for others."""
    known = None
    if item.status.state == PENDING:
        known = item.known_reason
    advice = None
    if known is not None:
        advice = known.advice.replace("JOB", item.label)
    return {"never_starts": item.never_starts is not None, "advice": advice}
