"""What became of each element of a sweep, and of the sweep as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hpcrun.actions.status.resolve import judge, with_attempts
from hpcrun.job import state
from hpcrun.job.layout import RunFolder
from hpcrun.job.parameters import Parameters
from hpcrun.job.state import JobInfo, is_live
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.elements import Elements, elements_of, load_statuses, save_statuses
from hpcrun.runs.record import LastStatus, Run
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.submitter import Sending

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
    """An element of a sweep and its status.

    Attributes:
        live: the scheduler has just listed its job as one that is not over.
    """

    index: int
    job_id: str | None
    parameters: Parameters
    status: LastStatus
    live: bool = False


@dataclass(frozen=True, slots=True)
class OpenSweep:
    """A sweep whose elements are asked about.

    Attributes:
        known: what was last known of its elements.
    """

    run: Run
    folder: Path
    elements: Elements
    known: Mapping[int, LastStatus]

    def open_indices(self) -> list[int]:
        """Return the elements that are not known to be over; the others are never asked about again."""
        return [
            index for index in self.elements.parameters if not ((last := self.known.get(index)) and last.final)
        ]  # fmt: skip

    def refs(self) -> list[JobRef]:
        """Return whom to ask the scheduler about: each open element."""
        return [
            JobRef(RunFolder(self.folder).element(index).path, self.elements.job_id(self.run, index))
            for index in self.open_indices()
        ]


def open_sweep(run: Run, folder: Path) -> OpenSweep | None:
    """Return what is known of a run's elements, None where it is no sweep."""
    elements = elements_of(run)
    return None if elements is None else OpenSweep(run, folder, elements, load_statuses(folder))


def judge_sweep(
    sweep: OpenSweep, answers: Mapping[Path, JobInfo] | None, now_s: float, sending: Sending | None = None
) -> tuple[LastStatus, tuple[ElementStatus, ...]]:
    """Decide what to say of a sweep and of each element.

    Args:
        answers: folder of an element → what the scheduler says of it; None where it did not answer.
        sending: how far its submission was before the scheduler was asked, for a sweep without a job.
    """
    statuses = dict(sweep.known)
    run_folder = RunFolder(sweep.folder)
    started = _names(run_folder.elements)
    cancelled = run_folder.cancelled.exists()
    for index in sweep.open_indices():
        folder = run_folder.element(index)
        touched = str(index) in started
        newest: list[Attempt] = list(islice(attempts(sweep.folder, index), 2)) if touched else []
        status = judge(
            sweep.run,
            answers.get(folder.path) if answers is not None else None,
            newest[0] if newest else None,
            sweep.known.get(index),
            answered=answers is not None,
            cancelled=cancelled or (touched and folder.cancelled.exists()),
            now_s=now_s,
            sending=sending,
        )
        statuses[index] = with_attempts(status, newest)
    if answers is not None and statuses != sweep.known:
        save_statuses(sweep.folder, statuses)
    return fold(statuses.values(), sweep.run, now_s), element_statuses(sweep, statuses, answers)


def known_elements(run: Run, folder: Path) -> tuple[ElementStatus, ...]:
    """Return what was last known of a run's elements, without asking anybody; empty where it is no sweep."""
    sweep = open_sweep(run, folder)
    return () if sweep is None else element_statuses(sweep, sweep.known)


def element_statuses(
    sweep: OpenSweep, statuses: Mapping[int, LastStatus], answers: Mapping[Path, JobInfo] | None = None
) -> tuple[ElementStatus, ...]:
    """Return the elements of a sweep with what is said of them, in their order."""
    live = {folder for folder, info in (answers or {}).items() if is_live(info)}
    unknown = LastStatus(state.UNKNOWN, sweep.run.created_s)
    return tuple(
        ElementStatus(
            index,
            sweep.elements.job_id(sweep.run, index),
            row,
            statuses.get(index, unknown),
            RunFolder(sweep.folder).element(index).path in live,
        )
        for index, row in sweep.elements.parameters.items()
    )


def fold(statuses: Iterable[LastStatus], run: Run, now_s: float) -> LastStatus:
    """Return one status for many: running while one runs, over when all are, and then the worst of them."""
    listed = list(statuses)
    words = [status.state for status in listed]
    final = all(status.final for status in listed)
    if final:
        word = next((worst for worst in _WORST if worst in words), words[0])
    elif all(status.final or status.state == state.UNKNOWN for status in listed):
        word = state.UNKNOWN
    elif state.RUNNING in words or any(status.final for status in listed):
        word = state.RUNNING  # where some are over and others wait it is under way
    else:
        word = next(status.state for status in listed if not status.final)
    failed = next((status for status in listed if status.state == word and status.exit_status), None)
    return LastStatus(
        word,
        now_s,
        final=final,
        reason=counts_text(words),
        elapsed_s=max((status.elapsed_s for status in listed if status.elapsed_s is not None), default=None),
        limit_s=run.walltime_s,
        exit_status=failed.exit_status if failed else 0 if word == state.COMPLETED else None,
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


def _names(folder: Path) -> set[str]:
    with suppress(OSError):
        return set(os.listdir(folder))
    return set()
