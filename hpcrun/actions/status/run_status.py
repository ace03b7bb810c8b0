"""The status of a run, of its elements and of the runs it waits for; and the result of a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.errors import SchedulerError, UsageError
from hpcrun.job import job_states as state
from hpcrun.job.request.after import Condition, fulfils
from hpcrun.job.request.parameters import Parameters, parameters_text
from hpcrun.job.run_paths import run_name
from hpcrun.job.text.units import count, index_ranges
from hpcrun.runs.attempt import with_granted_nodes
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import LastStatus, Run

NEVER = "DependencyNeverSatisfied"
"""Slurm's reason for a job whose dependency cannot be fulfilled any more; --kill-on-invalid-dep has
it cancelled.
"""
_WORST = (
    state.NODE_FAIL,
    state.FAILED,
    "OUT_OF_MEMORY",
    state.TIMEOUT,
    "DEADLINE",
    "BOOT_FAIL",
    state.PREEMPTED,
    "REVOKED",
    state.NOT_SUBMITTED,
    state.CANCELLED,
    state.COMPLETED,
)
"""The state of a whole sweep is the first of these that one of its elements has, once all are over.
"""
_ORDER = ("RUNNING", "COMPLETING", "PENDING", "COMPLETED")


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run and its status."""

    run: Run
    folder: Path
    status: LastStatus
    # no answer, or one without the job; ``status`` is the last known one, from its ``asked_s``
    stale: bool = False
    # of a sweep, whose ``status`` is that of all of them together
    elements: Sequence[ElementStatus] = ()
    element: int | None = None  # the element of a sweep that this row is for; None for a whole run
    # what distinguishes this row from others of its run, such as an element's parameters
    about: str = ""
    # the runs it waits for; of a run that never started, those because of which it did not
    waits: tuple[Wait, ...] = ()
    # it belongs to another cluster or host, which cannot be queried from here
    elsewhere: bool = False
    lost: bool = False  # its end is unknown, and it has sent no heartbeat for a day
    # the scheduler has just listed its job, or an element's, as unfinished; else another job may
    # have this id by now
    live: bool = False
    # it has ended, and Slurm, which could have requeued it since, was not asked or did not answer
    unconfirmed: bool = False
    # it runs, and no rank has written for so many seconds, which is long for it; else None
    silent_s: float | None = None
    # the limit that its pending job, or each pending element, alone is over
    over_limit: state.OverLimit | None = None

    @property
    def label(self) -> str:
        """The name by which commands find the run or the element.

        The name is the job id, ``123/4`` of an element of a pack, or the run id.
        """
        if self.run.job_id and self.element is not None and all_elements(self.run).packed:
            return f"{self.run.job_id.partition('_')[0]}/{self.element}"
        return self.run.job_id or self.run.run_id

    @property
    def known_reason(self) -> state.Reason | None:
        """The meaning of the scheduler's reason, None if it has none."""
        return self._meaning(self.status)

    def _meaning(self, status: LastStatus) -> state.Reason | None:
        reason = status.reason or ""
        if self.over_limit and status.state == state.PENDING and state.is_limit(reason):
            return self.over_limit.reason
        return state.explain_reason(reason)

    @property
    def never_starts(self) -> state.Reason | None:
        """Why the pending job never starts as it is, None if it may."""
        if self.status.final:
            return None
        statuses = [element.status for element in self.elements] or [self.status]
        going = [status for status in statuses if not status.final]
        reasons = []
        for status in going:
            if status.state != state.PENDING:
                return None
            reason = self._meaning(status)
            if reason is None or not reason.is_final:
                return None
            reasons.append(reason)
        return reasons[0] if reasons else None


def limit_reason(item: RunStatus) -> str | None:
    """Return the limit because of which a run, or one of its elements, is pending; None if none."""
    if item.status.final:
        return None  # no element is read
    statuses = [element.status for element in item.elements] or [item.status]
    for status in statuses:
        if status.state == state.PENDING and state.is_limit(status.reason or ""):
            return status.reason
    return None


def unconfirmed_text(item: RunStatus) -> str:
    """Return what is known of a run with an unconfirmed end."""
    return f"it ended as {item.status.state}, but may have been requeued since"


@dataclass(frozen=True, slots=True)
class StatusResult:
    """The runs asked for, oldest first."""

    runs: tuple[RunStatus, ...]
    away: SchedulerError | None = None  # the scheduler's error if it did not answer
    damaged: tuple[str, ...] = ()  # messages about runs that cannot be read


def is_in(item: RunStatus, states: Collection[str]) -> bool:
    """Whether a run is in one of these states.

    A lost run counts as UNKNOWN, whatever its last known state.
    """
    return item.status.state in states or (item.lost and state.UNKNOWN in states)


def without_lost(result: StatusResult) -> tuple[StatusResult, int]:
    """Return the result without lost runs, and their number."""
    kept = tuple(item for item in result.runs if not item.lost)
    return replace(result, runs=kept), len(result.runs) - len(kept)


# --- the elements of a sweep ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElementStatus:
    """An element of a run and its status."""

    index: int
    job_id: str | None
    parameters: Parameters
    status: LastStatus
    live: bool = False  # the scheduler's latest answer lists its job as unfinished
    # there was no answer, or the answer left the job out: ``status`` is the last known one
    stale: bool = False


def element_row(item: RunStatus, element: ElementStatus) -> RunStatus:
    """Return an element of a sweep as a separate run: ``train/3``, job ``123_3``."""
    run = with_granted_nodes(item.run, item.folder, element.index)
    return replace(
        item,
        run=replace(run, name=f"{run.name}/{element.index}", job_id=element.job_id),
        status=element.status,
        stale=element.stale,
        elements=(),
        element=element.index,
        about=parameters_text(element.parameters),
        live=element.live,
    )


def element_of(item: RunStatus, index: int) -> RunStatus:
    """Return an element of a sweep by its number, as a separate run."""
    return next(element_row(item, each) for each in item.elements if each.index == index)


def one_element(item: RunStatus, element: int | None) -> tuple[RunStatus, str | None]:
    """Return a run, or one element of it as a separate run, and a note on the choice.

    Args:
        item: the run with its status.
        element: the element that the user named; if None, the only running element is used.

    Raises:
        UsageError: several elements run, and the user named none.
    """
    if not item.elements:
        return item, None
    if element is not None:
        return element_of(item, element), None
    running = [one for one in item.elements if one.status.state == "RUNNING"]
    if len(running) == 1:
        note = f"{item.run.name} is a sweep; showing element {running[0].index}"
        return element_row(item, running[0]), note
    if not running:
        return item, None
    named = index_ranges(one.index for one in running)
    raise UsageError(
        f"{item.run.name} is a sweep, and {len(running)} of its elements run: {named}",
        hint=f"name one: {item.run.job_id}/{running[0].index}",
    )


def combine(statuses: Sequence[LastStatus], walltime_s: int | None) -> LastStatus:
    """Return one status for many.

    The status is running while one runs, final when all have ended, and then the worst of them. Its
    time is that of the newest of them. It counts as missed only if every unfinished element is
    missed.
    """
    states = [status.state for status in statuses]
    going = [status for status in statuses if not status.final]
    shown = _combined_state(states, [status.state for status in going])
    ran_s = [status.ran_s for status in statuses if status.ran_s is not None]
    missed = [status.missed_s for status in going if status.missed_s is not None]
    all_missed = len(missed) == len(going)
    return LastStatus(
        shown,
        max(status.asked_s for status in statuses),
        final=not going,
        forgotten=all(status.forgotten for status in statuses),
        reason=counts_text(states),
        elapsed_s=max(ran_s, default=None),
        limit_s=walltime_s,
        exit_status=_exit_status(shown, statuses),
        missed_s=min(missed, default=None) if all_missed else None,
    )


def _combined_state(states: Sequence[str], going: Sequence[str]) -> str:
    """Return one state for many; ``going`` has those of the elements that have not ended."""
    if not going:
        return next((worst for worst in _WORST if worst in states), states[0])
    if set(going) == {state.UNKNOWN}:
        return state.UNKNOWN
    if state.RUNNING in states or len(going) < len(states):
        return state.RUNNING  # if some have ended and others wait, the run counts as running
    return going[0]


def _exit_status(shown: str, statuses: Sequence[LastStatus]) -> int | None:
    """Return the exit status of a sweep in a state: that of its first element that failed so."""
    for status in statuses:
        if status.state == shown and status.exit_status:
            return status.exit_status
    return 0 if shown == state.COMPLETED else None


def counts_text(states: list[str]) -> str:
    """Return the number of elements in each state, as text.

    An example is ``8 elements: 2 running, 5 completed, 1 failed``.
    """
    order = [name for name in _ORDER if name in states]
    order += sorted(set(states) - set(_ORDER))
    counts = []
    for name in order:
        words = name.lower().replace("_", " ")
        counts.append(f"{states.count(name)} {words}")
    return f"{count(len(states), 'element')}: {', '.join(counts)}"


def counts_in(text: str) -> dict[str, int]:
    """Return the number of elements in each state, from a text of :func:`counts_text`.

    Returns:
        The numbers by the states' words in the text; nothing from another text.
    """
    counts = text.partition(" elements: ")[2].split(", ")
    matches = [re.fullmatch(r"(\d{1,7}) ([a-z ]+)", part) for part in counts]
    return {match[2]: int(match[1]) for match in matches if match}


def number_failed(item: RunStatus) -> int:
    """Return how many elements of a sweep ended, and neither completed nor were cancelled."""
    if item.status.final:
        counts = counts_in(item.status.reason or "")  # so that no element is read
        if sum(counts.values()) == len(item.elements):
            return len(item.elements) - counts.get("completed", 0) - counts.get("cancelled", 0)
    ended = [element.status.state for element in item.elements if element.status.final]
    return len(ended) - ended.count(state.COMPLETED) - ended.count(state.CANCELLED)


def failed_elements(elements: Iterable[ElementStatus]) -> list[int]:
    """Return the elements that ended without completing, such as for ``resubmit --elements``."""
    ended = [item for item in elements if item.status.final]
    return [item.index for item in ended if item.status.state != state.COMPLETED]


def interesting_element(elements: Iterable[ElementStatus]) -> int:
    """Return the element with the most interesting log.

    The first that failed comes first, else the first that runs, else the first that ended.
    """
    listed = list(elements)
    ended = [item for item in listed if item.status.final]
    for item in ended:
        if item.status.state not in (state.COMPLETED, state.CANCELLED):
            return item.index
    for item in listed:
        if item.status.state == state.RUNNING:
            return item.index
    for item in ended:
        if item.status.elapsed_s is not None:
            return item.index
    return listed[0].index


# --- the runs that a run waits for ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """A run on which another run depends."""

    run_id: str
    name: str
    job_id: str | None
    condition: Condition  # how it must end: ``ok``, ``any`` or ``fail``
    state: str  # its present state
    over: bool  # its last attempt has ended
    settled: bool = False  # and nothing can requeue it any more


def waits_of(
    run: Run, status: LastStatus, status_of: Callable[[str], LastStatus | None]
) -> tuple[Wait, ...]:
    """Return the dependencies of a run that has not started.

    These are the dependencies that are not yet fulfilled, and those that never will be.
    """
    if status.state not in (state.PENDING, state.UNKNOWN, state.CANCELLED):
        return ()
    waits = []
    for after in run.after:
        run_id = after["run_id"]
        other = status_of(run_id)
        shown = other.state if other else state.UNKNOWN
        over = other is not None and other.final
        settled = other is not None and other.forgotten
        wait = Wait(
            run_id, run_name(run_id), after["job_id"], after["condition"], shown, over, settled
        )
        is_met = over and fulfils(shown, wait.condition)
        if not is_met and (over or status.state == state.PENDING):
            waits.append(wait)
    return tuple(waits)


def never_started(status: LastStatus, waits: Sequence[Wait]) -> LastStatus:
    """Return CANCELLED for an UNKNOWN run whose dependency can never be met.

    Any other status is returned as it is: a run that may be requeued may still meet it.
    """
    if status.state != state.UNKNOWN or status.final:
        return status
    if not any(wait.settled for wait in waits):
        return status
    return replace(status, state=state.CANCELLED, final=True, reason=NEVER)
