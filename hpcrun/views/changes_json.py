"""The JSON documents of cancel, hold and release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpcrun.actions.runs.cancel import Cancellation, Seen
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.runs.record import Run
from hpcrun.schedulers.protocol import Verb
from hpcrun.views.text import fields_of

CANCELLED_AS: dict[Seen, str] = {"gone": "cancelled", "ending": "being cancelled"}
"""What is said of a run by what the scheduler lists of its job afterwards."""


def cancel_json(cancellation: Cancellation, waiting: Sequence[Run]) -> dict[str, Any]:
    """Return the runs that were cancelled, the others, and those that may start because of it.

    The ``result`` of a run that goes on, or of which the scheduler says nothing, says so.
    """
    changed = []
    for cancelled in cancellation.runs:
        result = CANCELLED_AS.get(cancelled.seen, cancelled.seen)
        changed.append({**_run_json(cancelled.item), "result": result})
    return {
        "kind": "cancel",
        "changed": changed,
        "others": [_run_json(item) for item in cancellation.others],
        "may_start": [fields_of(run, "run_id name job_id") for run in waiting],
    }


def matches_json(verb: Verb, items: Sequence[RunStatus]) -> dict[str, Any]:
    """Return the runs of which some would be changed after a question."""
    return {"kind": verb, "changed": [], "matches": [_run_json(item) for item in items]}


def pending_json(
    verb: Verb, done: str, changed: Sequence[RunStatus], others: Sequence[RunStatus]
) -> dict[str, Any]:
    """Return the runs that were held or released, and the others."""
    return {
        "kind": verb,
        "changed": [{**_run_json(item), "result": done} for item in changed],
        "others": [_run_json(item) for item in others],
    }


def _run_json(item: RunStatus) -> dict[str, Any]:
    return {
        **fields_of(item.run, "run_id name job_id"),
        **fields_of(item, "element"),
        **fields_of(item.status, "state final reason"),
    }
