"""Watching many jobs of this process: one question to the scheduler for all of them, and not often."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hpcrun.actions.status.resolve import judge
from hpcrun.errors import SchedulerError
from hpcrun.job.layout import JobFolder, RunFolder
from hpcrun.job.state import UNKNOWN, JobInfo, is_live, is_terminal
from hpcrun.runs.attempt import Attempt, last_attempt
from hpcrun.runs.record import LastStatus, Run
from hpcrun.schedulers.protocol import JobRef, Scheduler

ASK_EVERY_S = 10.0
"""How often Slurm is asked at most, for all jobs together."""
LOOK_EVERY_S = 0.5
"""The same for this machine, where asking is reading a file."""
LOST_AFTER_S = 60.0
"""A job that nobody knows for so long, and that left no word, is given up."""


@dataclass(frozen=True, slots=True)
class Element:
    """A job of a run: its only one, or one element of its array.

    Attributes:
        run_folder: the folder of the run.
        index: number of the element, 0 for the only one.
        job_id: as the scheduler lists it: ``7``, or ``7_4`` of an array.
    """

    run_folder: Path
    index: int
    job_id: str

    @property
    def folder(self) -> Path:
        """The folder that stands for this job alone."""
        return RunFolder(self.run_folder).element(self.index).path if "_" in self.job_id else self.run_folder

    def ref(self) -> JobRef:
        """Return the job as schedulers are asked for it."""
        return JobRef(self.folder, self.job_id)

    def attempt(self) -> Attempt | None:
        """Return its newest attempt, None where it has not started."""
        return last_attempt(self.run_folder, self.index)


@dataclass(slots=True)
class Poller:
    """What is known of some jobs of one scheduler.

    Attributes:
        cluster, host: where this process is; a run of elsewhere is not asked about.
        clock: seconds, from any beginning.
    """

    scheduler: Scheduler
    cluster: str | None
    host: str
    clock: Callable[[], float] = time.monotonic
    _open: dict[Element, Run] = field(default_factory=dict)
    _last: dict[Element, LastStatus] = field(default_factory=dict)
    _answers: dict[Path, JobInfo] | None = None
    _asked: frozenset[Element] = frozenset()
    _asked_at: float = float("-inf")
    _unknown_since: dict[Element, float] = field(default_factory=dict)

    def knows(self, element: Element) -> bool:
        """Return whether a job is being watched, or is over."""
        return element in self._open or element in self._last

    def add(self, element: Element, run: Run) -> None:
        """Watch a job too."""
        self._open[element] = run

    def status(self, element: Element) -> LastStatus:
        """Return what is known of a job, asking the scheduler where that was not done lately."""
        last = self._last.get(element)
        if last is not None and last.final:
            return last
        run = self._open[element]
        self._ask()
        # an answer that was given before the job was there says nothing of it
        attempt, answered = element.attempt(), self._answers is not None and element in self._asked
        info = (self._answers or {}).get(element.folder)
        cancelled = _is_cancelled(element)
        if _left_word(attempt, cancelled=cancelled) and not (info and is_terminal(info.state)):
            info, answered = None, True  # the answer is older than the script's own word
        found = judge(run, info, attempt, last, answered=answered, cancelled=cancelled, now_s=time.time())
        self._last[element] = found
        if found.final:
            self._open.pop(element, None)
        return found

    def over(self, element: Element) -> bool:
        """Return whether a job is over, or has been lost for so long that nothing more will be heard of it."""
        if _left_word(element.attempt(), cancelled=_is_cancelled(element)):
            return True
        found = self.status(element)
        if found.state != UNKNOWN:
            self._unknown_since.pop(element, None)
            return found.final
        return self.clock() - self._unknown_since.setdefault(element, self.clock()) > LOST_AFTER_S

    def cancel(self, element: Element) -> None:
        """End a job, where the scheduler lists it as this run's.

        Raises:
            SchedulerError: the scheduler refused or is away, or does not list the job.
        """
        info = (self._answers or {}).get(element.folder)
        if info is None and self._is_here(self._open[element]):  # the last answer may be older than the job
            info = self.scheduler.poll([element.ref()]).get(element.folder)
        if not is_live(info):
            raise SchedulerError(f"Slurm does not know job {element.job_id}: nothing was cancelled")
        mark = JobFolder(element.folder).cancelled
        with suppress(OSError):  # a note for later, when the scheduler has forgotten why the job ended
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch()
        self.scheduler.cancel([element.ref()])

    def _ask(self) -> None:
        every_s = LOOK_EVERY_S if self.scheduler.name == "local" else ASK_EVERY_S
        if self.clock() - self._asked_at < every_s:
            return
        self._asked_at = self.clock()
        self._asked = frozenset(element for element, run in self._open.items() if self._is_here(run))
        try:
            self._answers = self.scheduler.poll([element.ref() for element in self._asked])
        except SchedulerError:
            self._answers = None  # away: what was known stands until it is back

    def _is_here(self, run: Run) -> bool:
        if run.scheduler == "local":
            return run.host == self.host
        return self.cluster is None or run.cluster in (None, self.cluster)


def _is_cancelled(element: Element) -> bool:
    return JobFolder(element.folder).cancelled.exists()


def _left_word(attempt: Attempt | None, *, cancelled: bool) -> bool:
    """Whether the script has said how its job ended, once and for all.

    One that was told to end does not know by whom: only a cancelled one is over for certain.
    """
    if attempt is None or attempt.exit is None or attempt.exit.again:
        return False
    return cancelled or not attempt.exit.signal
