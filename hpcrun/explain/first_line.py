"""The first line of an explanation, for status and --wait.

The line is worked out once for each run that failed, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcrun.actions.status.run_status import RunStatus, StatusResult, element_row
from hpcrun.errors import HpcrunError
from hpcrun.job import job_states
from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.units import cut_at_word
from hpcrun.runs.attempt import RESTART_BEGINS, last_attempt, rank_exits
from hpcrun.runs.elements import load_statuses, save_statuses
from hpcrun.runs.log_files import rank_log, tail
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore

if TYPE_CHECKING:  # status imports what explain needs only where a run has failed
    from hpcrun.explain.diagnosis.rules import Rule
    from hpcrun.explain.ended import Explanation

EXPLAINED = (job_states.FAILED, "OUT_OF_MEMORY")
"""The states of which the name alone does not say what happened."""
_WITH_RANK = (job_states.TIMEOUT,)
"""The states that say something more where a rank ended before the others."""
MOST_AT_ONCE = 20
"""How many runs one status explains; the others come next time."""
LONGEST = 240
_KEPT_END = 40
"""Characters of the end of a line that is shortened: where the exception was raised."""
_LAST_LINES = 20
Rules = Callable[[], "Sequence[Rule]"]


def with_first_lines(result: StatusResult, store: RunStore, rules: Rules) -> StatusResult:
    """Return the runs, with the first line of their explanation for those that failed.

    The newest runs are explained first.
    """
    wanted = [item for item in result.runs if lacks_line(item)][-MOST_AT_ONCE:]
    run_ids = [item.run.run_id for item in wanted]
    judged = dict(zip(run_ids, _judged(wanted, rules), strict=False))
    for run_id, status in judged.items():
        store.save_status(run_id, status)
    runs = []
    for item in result.runs:
        runs.append(replace(item, status=judged.get(item.run.run_id, item.status)))
    return replace(result, runs=tuple(runs))


def with_element_lines(
    item: RunStatus, indices: Collection[int], store: RunStore, rules: Rules
) -> RunStatus:
    """Return a sweep, with the first line of the explanation for elements that failed.

    Only the first of the named elements that failed get the line.
    """
    wanted = []
    for element in item.elements:
        if element.index in indices:
            row = element_row(item, element)
            if lacks_line(row):
                wanted.append(row)
    wanted = wanted[:MOST_AT_ONCE]
    numbers = [row.element or 0 for row in wanted]
    judged = dict(zip(numbers, _judged(wanted, rules), strict=False))
    with suppress(OSError, HpcrunError):
        if judged and not store.is_read_only:
            folder = store.folder(item.run.run_id)
            save_statuses(folder, {**load_statuses(folder), **judged})
    elements = []
    for element in item.elements:
        elements.append(replace(element, status=judged.get(element.index, element.status)))
    return replace(item, elements=tuple(elements))


def _judged(wanted: Sequence[RunStatus], rules: Rules) -> list[LastStatus]:
    """Return the explained statuses; none if a file of rules is broken.

    explain says so, and status is not about rules.
    """
    try:
        known = rules() if wanted else ()
    except HpcrunError:
        return []
    return [explained_status(item, known) for item in wanted]


@dataclass(frozen=True, slots=True)
class Ending:
    """What is said of a run at once when it is over.

    Attributes:
        line: what happened, in one line; empty where nobody knows.
        rank: the rank that is named in it, as its role counts it; None where none is.
        role: the rank's role; None without roles.
        exit_status: of that rank.
        last_lines: the end of its stderr.
    """

    line: str
    rank: int | None = None
    role: RoleRanks | None = None
    exit_status: int | None = None
    last_lines: str = ""


def explained_status(item: RunStatus, rules: Sequence[Rule]) -> LastStatus:
    """Return the status of a run with what happened in one line, and the rule for the cause.

    The rule is the one that knows the cause. Both are empty where nobody knows, or the logs cannot
    be read.
    """
    explanation = _quickly(item, rules)
    if explanation is None:
        return replace(item.status, cause="", rule="")
    return replace(item.status, cause=_line(explanation), rule=explanation.rule or "")


def ending(item: RunStatus, rules: Rules) -> Ending:
    """Return what happened in one line, and the last words of the rank that ended the run."""
    try:
        known: Sequence[Rule] = rules()
    except HpcrunError:  # a broken file of rules: the run has failed all the same
        known = ()
    explanation = _quickly(item, known)
    if explanation is None:
        return Ending("")
    item = explanation.item
    rank = explanation.rank
    role = explanation.role
    attempt = last_attempt(item.folder, item.element or 0, role)
    if rank is None or attempt is None:
        return Ending(_line(explanation), role=role)
    status = next((end.status for end in rank_exits(attempt.folder) if end.rank == rank), None)
    last_lines = ""
    with suppress(OSError):
        text = tail(rank_log(attempt.folder, rank, "err").path, _LAST_LINES)
        before, restart, last = text.rpartition(RESTART_BEGINS)
        if restart and before[-1:] in ("", "\n"):
            text = last.partition("\n")[2]
        last_lines = text.strip("\n")
    return Ending(_line(explanation), rank, role, status, last_lines)


def _quickly(item: RunStatus, rules: Sequence[Rule]) -> Explanation | None:
    """Return the explanation of a run from the ends of its logs; None if they cannot be read."""
    from hpcrun.explain.ended import explain

    try:
        return explain(item, rules, quick=True)
    except OSError:
        return None


def _line(explanation: Explanation) -> str:
    """Return the summary in one line, shortened; empty if the run's state says as much."""
    if explanation.rank is None:
        is_known = bool(explanation.rule or explanation.role or explanation.fix)
        if not is_known or explanation.item.status.state not in EXPLAINED:
            return ""
    text = explanation.summary
    # the exception's message is cut already, and its place is at the end
    if len(text) <= LONGEST or "…" in text:
        return text
    end = text[-_KEPT_END:].partition(" ")[2] or text[-_KEPT_END:]
    return f"{cut_at_word(text, LONGEST - _KEPT_END - 1)} {end}"


def lacks_line(item: RunStatus) -> bool:
    """Whether a run failed and its explanation is not worked out yet."""
    return has_failed(item.status) and not item.stale and item.status.cause is None


def has_failed(status: LastStatus) -> bool:
    """Return whether a run ended in a way that explain explains.

    A completed run with a reason hides a failure.
    """
    completed = status.state == job_states.COMPLETED and bool(status.reason)
    return status.final and (completed or status.state in (*EXPLAINED, *_WITH_RANK))
