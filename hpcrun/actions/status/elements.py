"""The status of the elements of a run, and of the run as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hpcrun.job import state
from hpcrun.job.parameters import Parameters
from hpcrun.runs.record import LastStatus

# How the state of a whole sweep is chosen among those of its elements once all are over: the first that is there.
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
_ORDER = ("RUNNING", "COMPLETING", "PENDING", "COMPLETED")


@dataclass(frozen=True, slots=True)
class ElementStatus:
    """An element of a run and its status."""

    index: int
    job_id: str | None
    parameters: Parameters
    status: LastStatus
    live: bool = False  # the scheduler's latest answer lists its job as unfinished
    stale: bool = False  # there was no answer, or the answer left the job out: ``status`` is the last known one


def combine(statuses: Sequence[LastStatus], walltime_s: int | None) -> LastStatus:
    """Return one status for many: running while one runs, final when all are, and then the worst of them.

    Its time is that of the newest of them. It counts as missed only if every unfinished element is missed.
    """
    words, going = [status.state for status in statuses], [status for status in statuses if not status.final]
    if not going:
        word = next((worst for worst in _WORST if worst in words), words[0])
    elif all(status.state == state.UNKNOWN for status in going):
        word = state.UNKNOWN
    elif state.RUNNING in words or len(going) < len(words):
        word = state.RUNNING  # where some are over and others wait it is under way
    else:
        word = going[0].state
    failed = next((status for status in statuses if status.state == word and status.exit_status), None)
    missed = [status.missed_s for status in going if status.missed_s is not None]
    return LastStatus(
        word,
        max(status.asked_s for status in statuses),
        final=not going,
        reason=counts_text(words),
        elapsed_s=max((status.ran_s for status in statuses if status.ran_s is not None), default=None),
        limit_s=walltime_s,
        exit_status=failed.exit_status if failed else 0 if word == state.COMPLETED else None,
        missed_s=min(missed) if going and len(missed) == len(going) else None,
    )


def counts_text(words: list[str]) -> str:
    """Return how many elements are in which state: ``8 elements: 2 running, 5 completed, 1 failed``."""
    order = [*(word for word in _ORDER if word in words), *sorted(set(words) - set(_ORDER))]
    elements = "1 element" if len(words) == 1 else f"{len(words)} elements"
    return f"{elements}: " + ", ".join(f"{words.count(word)} {word.lower().replace('_', ' ')}" for word in order)


def failed_elements(elements: Iterable[ElementStatus]) -> list[int]:
    """Return the elements that are over and did not complete, such as those to submit again with ``--elements``."""
    return [item.index for item in elements if item.status.final and item.status.state != state.COMPLETED]


def interesting_element(elements: Iterable[ElementStatus]) -> int:
    """Return the element whose log a person most likely wants: the first that failed, that runs, that ended, or any."""
    listed = list(elements)
    tests: tuple[Callable[[ElementStatus], bool], ...] = (
        lambda item: item.status.final and item.status.state not in (state.COMPLETED, state.CANCELLED),
        lambda item: item.status.state == state.RUNNING,
        lambda item: item.status.final and item.status.elapsed_s is not None,
    )
    return next((item.index for test in tests for item in listed if test(item)), listed[0].index)
