"""The first line of an explanation, for status and --wait: worked out once for each run that failed, and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.actions.status import RunStatus, StatusResult
from hpcrun.errors import HpcrunError
from hpcrun.job import state
from hpcrun.runs.store import RunStore

if TYPE_CHECKING:  # status imports what explain needs only where a run has failed
    from hpcrun.diagnosis.rules import Rule

EXPLAINED = (state.FAILED, "OUT_OF_MEMORY")
"""The states of which the name alone does not say what happened."""
MOST_AT_ONCE = 20
"""How many runs one status explains; the others come next time."""
LONGEST = 160
Rules = Callable[[], "Sequence[Rule]"]


def with_first_lines(result: StatusResult, store: RunStore, rules: Rules) -> StatusResult:
    """Return the runs, those that failed with the first line of their explanation, the newest first to be explained."""
    wanted = [item for item in result.runs if _is_wanted(item)][-MOST_AT_ONCE:]
    if not wanted:
        return result
    try:
        known = rules()
    except HpcrunError:  # a broken file of rules: explain says so, and status is not about it
        return result
    lines = {item.run.run_id: first_line(item, known) for item in wanted}
    runs = []
    for item in result.runs:
        if item.run.run_id in lines:
            item = replace(item, status=replace(item.status, cause=lines[item.run.run_id]))
            store.save_status(item.run.run_id, item.status)
        runs.append(item)
    return replace(result, runs=tuple(runs))


def first_line(item: RunStatus, rules: Sequence[Rule], *, known: bool = False) -> str:
    """Return what happened, in one line; empty where nobody knows, or the logs cannot be read.

    Args:
        known: only what a rule knows, and not which rank failed first.
    """
    from hpcrun.actions.explain import explain
    from hpcrun.actions.explain_words import UNKNOWN

    try:
        said = explain(item, rules, quick=True)
    except OSError:
        return ""
    text = said.summary.removesuffix(UNKNOWN) if said.rule or (said.rank is not None and not known) else ""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_wanted(item: RunStatus) -> bool:
    status = item.status
    return status.final and not item.stale and status.state in EXPLAINED and status.cause is None
