"""Waiting for the end of a run with few queries to the scheduler, and for a slow call.

The call may never return.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.actions.status.status_query import one_status
from hpcrun.errors import PlanError
from hpcrun.job.job_states import PENDING, RUNNING
from hpcrun.job.run_paths import RunFolder, parse_numbers
from hpcrun.runs.attempt import names_in
from hpcrun.runs.elements import all_elements, records_of
from hpcrun.runs.store import RunStore

LOOK_EVERY_S = 0.5
"""How often the run folder is looked at, which costs the controller nothing."""
ASK_EVERY_S = 30.0
"""How often the scheduler is asked whether a job still lives, from the second minute on."""
ASK_FIRST_S = 1.0  # the first pause: mistakes show soon
FIRST_S = 60.0  # how long the pauses grow
MOST_WATCHED = 10
"""At how many runs' own records ``status --watch`` looks every second."""
SETTLES_S = 1.0
"""How long Slurm mostly needs to report the end of a job whose script has ended."""
SETTLES_WITHIN_S = 60.0
"""How long a job whose script has ended may take to leave the scheduler's hands (COMPLETING)."""

REQUEUED_S = 5.0
"""How often a run is looked at that has been requeued although its script had ended."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """Waits for one run."""

    folder: Path
    # returns the run's status, from its records and an answer of the scheduler that all pollers
    # share
    poll: Callable[[], RunStatus]
    element: int | None = None  # the element of a sweep to wait for, None for the whole run
    elements: Sequence[int] = (0,)  # the numbers of all elements of the run
    # is called with each answer of the scheduler until the run ends
    tell: Callable[[RunStatus], None] = lambda _: None

    def current(self) -> RunStatus:
        """Return the status of the run, or of the element."""
        return self.part_of(self.poll())

    def part_of(self, item: RunStatus) -> RunStatus:
        """Return the status of what is waited for: the run, or the element."""
        for element in item.elements:
            if element.index == self.element:
                return element_row(item, element)
        return item

    def over(self) -> Callable[[], bool]:
        """Return a cheap check: has the run ended, or is it pending for a reason that never passes?

        The script's exit record is enough; the scheduler is queried now and then, for a job that
        was killed before it could write one.
        """
        if self.element is not None:
            running = [self.element]
        else:
            # the first one last: each check reads one element's folder
            running = list(reversed(self.elements))
        mark = None
        pauses = Pauses()

        def is_over() -> bool:
            nonlocal mark
            before = mark
            mark = records_mark(self.folder, running[-1]) if running else None
            if mark != before:
                while running and records_of(self.folder, running[-1]).ended:
                    running.pop()
                if before is not None:
                    pauses.begin()
            if not running:
                return True
            # it was removed: the query reports it
            if not pauses.are_over() and self.folder.exists():
                return False
            pauses.next()
            item = self.part_of(self.poll())
            if not item.status.final:
                self.tell(item)
            return item.status.final or item.never_starts is not None

        return is_over

    def wait(self) -> RunStatus:
        """Wait until the run has ended and the scheduler says how the run ended.

        The wait also ends if the scheduler says that the job never starts. It goes on if Slurm has
        requeued a job whose script had ended.
        """
        watch = EndWatch(self)
        while True:
            item = watch.ended_status()
            if item is not None:
                return item
            time.sleep(LOOK_EVERY_S)


class EndWatch:
    """Looks whether a run has ended, then a minute at most for what Slurm says of the end."""

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self._begin()

    def _begin(self) -> None:
        self._is_over = self.waiter.over()
        self._until: float | None = None  # None as long as the script has not ended
        self._next = 0.0

    def ended_status(self) -> RunStatus | None:
        """Return the status of a run that has ended or never starts; None of one that goes on."""
        if self._until is None:
            if not self._is_over():
                return None
            now = time.monotonic()
            self._until = now + SETTLES_WITHIN_S
            if self._has_failed():
                # Slurm's answer decides, and the next squeue comes ten seconds after this one
                self._next = now + SETTLES_S
        now = time.monotonic()
        if now < self._next:
            return None
        item = self.waiter.poll()
        waited_for = self.waiter.part_of(item)
        if waited_for.status.final or waited_for.never_starts:
            return item
        state = waited_for.status.state
        if now < self._until:
            self._next = now + (REQUEUED_S if state == PENDING else LOOK_EVERY_S)
            return None
        if state in (PENDING, RUNNING):  # Slurm has requeued it
            self._begin()
            return None
        return item

    def _has_failed(self) -> bool:
        folder = self.waiter.folder
        attempts = (records_of(folder, index).attempt for index in self.waiter.elements)
        return any(attempt.exit.status for attempt in attempts if attempt and attempt.exit)


def ends_of(
    waiters: Sequence[Waiter], *, within_s: float | None, first: bool
) -> Iterator[tuple[int, RunStatus]]:
    """Wait for several runs, and yield the place and the status of each one that ends.

    Args:
        waiters: one for each run or element.
        within_s: so many seconds at most; None for any time.
        first: wait for one of them only.
    """
    watches = {place: EndWatch(waiter) for place, waiter in enumerate(waiters)}
    until = math.inf
    if within_s is not None:
        until = time.monotonic() + within_s
    while watches:
        for place, watch in list(watches.items()):
            item = watch.ended_status()
            if item is not None:
                del watches[place]
                yield place, watch.waiter.part_of(item)
        has_first = first and len(watches) < len(waiters)
        left_s = until - time.monotonic()
        if has_first or left_s <= 0:
            return
        if watches:
            time.sleep(min(LOOK_EVERY_S, left_s))


class Pauses:
    """When to query the scheduler next: soon at first, then every half minute, at random times."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + ASK_FIRST_S

    def begin(self) -> None:
        """Query at once, and soon again: something has changed."""
        self._began = self._next = time.monotonic()

    def are_over(self) -> bool:
        """Whether it is time for the next query."""
        return time.monotonic() >= self._next

    def next(self) -> None:
        """Begin the pause before the next query."""
        now = time.monotonic()
        age_s = now - self._began
        if age_s >= FIRST_S:
            pause_s = ASK_EVERY_S
        else:
            pause_s = max(ASK_FIRST_S, age_s / 2)
        self._next = now + pause_s * random.uniform(0.75, 1.25)


def records_mark(folder: Path, element: int = 0) -> tuple[object, ...]:
    """Return a value that changes when an attempt of an element begins, ends or is cancelled.

    It costs some ten system calls and reads no file. The folders are opened because of network file
    systems: they report for half a minute that a new file does not exist, unless its folder is
    opened.
    """
    job = RunFolder(folder).element(element)
    numbers = parse_numbers(names_in(job.attempts))
    paths = [RunFolder(folder).cancelled, job.cancelled]
    if numbers:
        newest = job.attempt(numbers[-1])
        with suppress(OSError):
            os.close(os.open(newest.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        paths.append(newest.exit)
    return (*numbers[-1:], *map(_stamp, paths))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@dataclass(slots=True)
class Changes:
    """When to check all runs again.

    This is after some seconds, or at once if the records of one run have changed.
    """

    store: RunStore
    interval_s: float  # between two checks; after the first minute at least half a minute
    # waits for so many seconds; returns true, possibly earlier, if the user wants a check now
    pause: Callable[[float], bool | None] = lambda seconds: time.sleep(seconds)
    _began: float = field(default_factory=lambda: time.monotonic())
    _marks: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def wait(self) -> bool:
        """Wait until it is time to check again; return whether the user wants it."""
        now = time.monotonic()
        if now - self._began < FIRST_S:
            pause_s = self.interval_s
        else:
            pause_s = max(self.interval_s, ASK_EVERY_S)
        until = now + pause_s * random.uniform(0.9, 1.1)
        while time.monotonic() < until and not self._have_come():
            if self.pause(2 * LOOK_EVERY_S):
                return True
        return False

    def _have_come(self) -> bool:
        before = self._marks
        try:
            active = self.store.active_ids()
        except PlanError:
            return False  # the next check of all runs reports it
        # users wait for the newest runs; of hundreds not all are checked every second
        ids = sorted(active)[-MOST_WATCHED:]
        self._marks = {run_id: records_mark(self.store.folder(run_id)) for run_id in ids}
        if any(self._marks.get(run_id, mark) != mark for run_id, mark in before.items()):
            self._began = time.monotonic()
            return True
        return False


def waiter_for(run_id: str, ports: Ports) -> Waiter:
    """Return a waiter for one run."""
    return Waiter(
        ports.store.folder(run_id),
        lambda: one_status(run_id, ports.for_polling()).runs[0],
        elements=tuple(all_elements(ports.store.load(run_id)).parameters),
    )


Answer = TypeVar("Answer")


class BackgroundCall(threading.Thread, Generic[Answer]):
    """A call in its own thread.

    A thread pool would wait at its end for a file system that hangs.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._ended: tuple[Answer | None, BaseException | None] = (None, None)
        self.start()

    def run(self) -> None:
        """Do the call."""
        try:
            self._ended = self._call(), None
        except BaseException as error:
            self._ended = None, error

    def answer(self, within_s: float | None = None) -> Answer | None:
        """Return the answer, None if it does not come within that many seconds."""
        most_s = None if within_s is None else max(0.0, within_s)
        self.join(most_s)
        answer, failure = self._ended
        if failure is not None:
            raise failure
        return answer


def answers_of(call: Callable[[], Answer], after_s: float) -> Iterator[Answer | None]:
    """Yield the answer of a call; if it is late, first yield None after that many seconds."""
    background = BackgroundCall(call)
    background.join(after_s)
    if background.is_alive():
        yield None
    yield background.answer()
