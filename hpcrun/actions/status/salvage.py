"""What can still be said of a run whose record cannot be read."""

from __future__ import annotations

from hpcrun.actions.runs.find import run_name
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.store import DamagedRunError, NewerRunError, RunStore, UnsafeRunError

_SHOWN = ("profile", "cluster")


def damage_words(run_id: str, error: DamagedRunError, store: RunStore) -> str:
    """Return what is wrong with a run and what is known of it all the same: from what is left of its record, from
    what its script wrote, and from what was last known."""
    if isinstance(error, UnsafeRunError):
        return error.message
    folder, left = store.folder(run_id), error.legible
    attempt, last = last_attempt(folder), store.last_status(run_id)
    job_id = left.get("job_id") or (attempt.job_id if attempt else None)
    known = [
        f"run {run_name(run_id)}",
        *([f"job {job_id}"] if job_id else []),
        *(f"{name} {left[name]}" for name in _SHOWN if name in left),
        *([f"last known {last.state}"] if last else []),
        *([f"exit status {attempt.exit.status}"] if attempt and attempt.exit else []),
    ]
    how = "needs a newer hpcrun" if isinstance(error, NewerRunError) else "is damaged"
    return f"{run_id} {how}: {error.message}; what can be read: {', '.join(known)}; its logs are in {folder}"
