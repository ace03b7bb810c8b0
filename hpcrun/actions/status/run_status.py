"""A run and what is known of it; the runs that a question was about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.status.elements import ElementStatus
from hpcrun.actions.status.waits import Wait
from hpcrun.errors import SchedulerError
from hpcrun.job import state
from hpcrun.job.parameters import parameters_text
from hpcrun.runs.record import LastStatus, Run


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run and its status."""

    run: Run
    folder: Path
    status: LastStatus
    # nobody answered, or the answer left it out; ``status`` is the last that was known, learned at its ``asked_s``
    stale: bool = False
    elements: tuple[ElementStatus, ...] = ()  # of a sweep, whose ``status`` is that of all of them together
    element: int | None = None  # which one of a sweep this row of a table is for; None for a run as a whole
    about: str = ""  # what tells this row from others of its run, such as an element's parameters
    # the runs it waits for; of a run that never started, those because of which it did not
    waits: tuple[Wait, ...] = ()
    elsewhere: bool = False  # it belongs to another cluster or host, which cannot be asked from here
    lost: bool = False  # nobody knows its end, and it has sent no heartbeat for a day
    # the scheduler has just listed its job, or an element's, as one that is not over. Only then is the job id known to
    # be this run's: ids are used again
    live: bool = False
    # it runs, and no rank has written for so many seconds, which is long for it; else None
    silent_s: float | None = None

    @property
    def never_starts(self) -> state.Reason | None:
        """Why the pending job never starts as it is, None if it may."""
        reason = self.status.reason if self.status.state == state.PENDING else None
        known = state.explain_reason(reason) if reason else None
        return known if known and known.is_final else None


def element_row(item: RunStatus, element: ElementStatus) -> RunStatus:
    """Return an element of a sweep as a run of its own: ``train/3``, job ``123_3``."""
    run = replace(item.run, name=f"{item.run.name}/{element.index}", job_id=element.job_id)
    return replace(
        item,
        run=run,
        status=element.status,
        stale=element.stale,
        elements=(),
        element=element.index,
        about=parameters_text(element.parameters),
        live=element.live,
    )


def element_of(item: RunStatus, index: int) -> RunStatus:
    """Return the element of a sweep with an index, as a run of its own."""
    return next(element_row(item, each) for each in item.elements if each.index == index)


@dataclass(frozen=True, slots=True)
class StatusResult:
    """The runs asked for, oldest first."""

    runs: tuple[RunStatus, ...]
    away: SchedulerError | None = None  # the scheduler's own words where it did not answer
    damaged: tuple[str, ...] = ()  # messages about runs that cannot be read


def is_in(item: RunStatus, states: Collection[str]) -> bool:
    """Whether a run is in one of these states. A lost one counts as UNKNOWN, whatever it was when last heard of."""
    return item.status.state in states or (item.lost and state.UNKNOWN in states)


def without_lost(result: StatusResult) -> tuple[StatusResult, int]:
    """Return the result without the runs that are lost, and how many those are."""
    kept = tuple(item for item in result.runs if not item.lost)
    return replace(result, runs=kept), len(result.runs) - len(kept)
