"""The statuses of this process's jobs: one question to the scheduler for all of them, and not often."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcrun.actions.runs.cancel import cancel_jobs
from hpcrun.actions.status.poll import Answers, KnownRun, belongs_here, judge_element
from hpcrun.errors import SchedulerError
from hpcrun.job.state import UNKNOWN, is_live, is_terminal
from hpcrun.runs.elements import records_of
from hpcrun.runs.record import LastStatus
from hpcrun.schedulers.protocol import Scheduler

ASK_EVERY_S = 10.0
"""How often Slurm is asked at most, for all jobs together."""
LOOK_EVERY_S = 0.5
"""The same for this machine, where asking is reading a file."""
LOST_AFTER_S = 60.0
"""A job that Slurm has not listed for this time, and that left no record of its end, counts as over."""

JobKey = tuple[Path, int]
"""A run's folder and the number of an element: 0 for the only job of a run."""


@dataclass(slots=True)
class JobStatuses:
    """What is known of some jobs of one scheduler.

    Attributes:
        cluster, host: where this process is; a run of elsewhere is not asked about.
        clock: seconds, from any beginning.
        runs: the runs whose jobs can be asked about, by their folders.
    """

    scheduler: Scheduler
    cluster: str | None
    host: str
    clock: Callable[[], float] = time.monotonic
    runs: dict[Path, KnownRun] = field(default_factory=dict)
    _open: set[JobKey] = field(default_factory=set)
    _answers: Answers | None = None
    _asked: frozenset[Path] = frozenset()
    _asked_at: float = float("-inf")
    _unknown_since: dict[JobKey, float] = field(default_factory=dict)

    def status(self, job: JobKey) -> LastStatus:
        """Return what is known of a job, asking the scheduler where that was not done lately."""
        run, index = self.runs[job[0]], job[1]
        last = run.known.get(index)
        if last is not None and last.final:
            return last
        self._open.add(job)
        self._ask()
        folder, records = run.ref(index).folder, records_of(run.folder, index)
        # an answer that was given before the job was there says nothing of it
        answers = self._answers if folder in self._asked else None
        info = answers.get(folder) if answers else None
        if records.ended and not (info and is_terminal(info.state)):
            answers = {}  # the answer is older than the script's own word
        found = run.known[index] = judge_element(run, index, records, answers, time.time()).status
        if found.final:
            self._open.discard(job)
        return found

    def over(self, job: JobKey) -> bool:
        """Return whether a job is over, or has been lost for so long that nothing more will be heard of it."""
        if records_of(*job).ended:
            return True
        found = self.status(job)
        if found.state != UNKNOWN:
            self._unknown_since.pop(job, None)
            return found.final
        return self.clock() - self._unknown_since.setdefault(job, self.clock()) > LOST_AFTER_S

    def cancel(self, job: JobKey) -> None:
        """End a job, where the scheduler lists it as this run's.

        Raises:
            SchedulerError: the scheduler refused or is away, or does not list the job.
        """
        ref = self.runs[job[0]].ref(job[1])
        info = (self._answers or {}).get(ref.folder)
        if info is None and self._is_here(job):  # the last answer may be older than the job
            info = self.scheduler.poll([ref]).get(ref.folder)
        if not is_live(info):
            raise SchedulerError(f"Slurm does not know job {ref.job_id}: nothing was cancelled")
        cancel_jobs(self.scheduler, [ref])

    def _ask(self) -> None:
        every_s = LOOK_EVERY_S if self.scheduler.name == "local" else ASK_EVERY_S
        if self.clock() - self._asked_at < every_s:
            return
        self._asked_at = self.clock()
        refs = [self.runs[folder].ref(index) for folder, index in self._open if self._is_here((folder, index))]
        self._asked = frozenset(ref.folder for ref in refs)
        try:
            self._answers = self.scheduler.poll(refs)
        except SchedulerError:
            self._answers = None  # away: what was known stands until it is back

    def _is_here(self, job: JobKey) -> bool:
        return belongs_here(self.runs[job[0]].run, self.cluster, self.host)
