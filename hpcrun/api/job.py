"""A submitted function: submitit's job, whose state comes from hpcrun's own poll, one for all jobs."""

from __future__ import annotations

import pickle
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, cast

from submitit.core.core import Job
from submitit.core.utils import DelayedSubmission, FailedJobError, UncompletedJobError, pickle_load

from hpcrun.actions.runs.cancel import cancel_jobs
from hpcrun.actions.status.poll import Answers, KnownRun, belongs_here, judge_element, known_run
from hpcrun.cli.context import make_context
from hpcrun.errors import SchedulerError
from hpcrun.job import state
from hpcrun.job.layout import RunFolder
from hpcrun.job.state import UNKNOWN, is_live, is_terminal
from hpcrun.runs.attempt import first_failure, last_attempt
from hpcrun.runs.elements import all_elements, records_of
from hpcrun.runs.logs import tail
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Scheduler

R = TypeVar("R", covariant=True)

LOG_LINES = 40
"""How much of a log an exception shows."""
_VISIBLE_WITHIN_S = 15.0
"""How long a result may take to be seen on another host of a network file system."""
_SETTLES_WITHIN_S = 15.0
"""How long to ask why a job ended that left no word: Slurm is asked every ten seconds."""
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
    """The statuses of some jobs of one scheduler."""

    scheduler: Scheduler
    # cluster, host: those of this process; runs of others are not queried
    cluster: str | None
    host: str
    clock: Callable[[], float] = time.monotonic  # seconds, from any beginning
    runs: dict[Path, KnownRun] = field(default_factory=dict)  # the runs whose jobs can be queried, by their folders
    _open: set[JobKey] = field(default_factory=set)
    _answers: Answers | None = None
    _asked: frozenset[Path] = frozenset()
    _asked_at: float = float("-inf")
    _unknown_since: dict[JobKey, float] = field(default_factory=dict)

    def status(self, job: JobKey) -> LastStatus:
        """Return the status of a job; the scheduler is queried if its last answer is old."""
        run, index = self.runs[job[0]], job[1]
        last = run.known.get(index)
        if last is not None and last.final:
            return last
        self._open.add(job)
        self._ask()
        folder, records = run.ref(index).folder, records_of(run.folder, index)
        # an answer from before the job's submission does not include it
        answers = self._answers if folder in self._asked else None
        info = answers.get(folder) if answers else None
        if records.ended and not (info and is_terminal(info.state)):
            answers = {}  # the answer is older than the script's record
        status = run.known[index] = judge_element(run, index, records, answers, time.time()).status
        if status.final:
            self._open.discard(job)
        return status

    def over(self, job: JobKey) -> bool:
        """Return whether a job has ended, or has been lost for so long that nothing more will be known of it."""
        if records_of(*job).ended:
            return True
        status = self.status(job)
        if status.state != UNKNOWN:
            self._unknown_since.pop(job, None)
            return status.final
        return self.clock() - self._unknown_since.setdefault(job, self.clock()) > LOST_AFTER_S

    def cancel(self, job: JobKey) -> None:
        """Cancel a job if the scheduler lists it for this run.

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
            self._answers = None  # it does not respond: the known status stays until it does

    def _is_here(self, job: JobKey) -> bool:
        return belongs_here(self.runs[job[0]].run, self.cluster, self.host)


@cache
def _statuses(scheduler: str) -> JobStatuses:
    """Return the statuses of this process's jobs of a scheduler: of all executors together."""
    context = make_context()
    adapter = context.scheduler(scheduler, polls=True)
    return JobStatuses(adapter, adapter.cluster(), context.host)


class FunctionJob(Job[R]):
    """One call of a function, or one element of an array of them: ``result()``, ``exception()``, ``done()`` ...

    Like submitit's jobs, but with hpcrun's state: one query to the scheduler for all jobs, at most every ten
    seconds, and the run's own folder. A job can be pickled and used in another process.
    """

    _run_id: str
    _scheduler: str
    _index: int
    _keeps_trying: bool

    @classmethod
    def of_run(
        cls,
        run_folder: Path,
        scheduler: str,
        job_id: str,
        tasks: int,
        *,
        index: int = 0,
        keeps_trying: bool = False,
    ) -> FunctionJob[Any]:
        """Return the job of a run whose function is called by so many tasks.

        Args:
            job_id: as the scheduler lists it.
            index: number of the element, 0 for the only one.
            keeps_trying: the job may start again, so that a result counts only after its script has ended.
        """
        job = cls(folder=RunFolder(run_folder).submitit, job_id=job_id, tasks=tuple(range(tasks)))
        for part in cast("Sequence[FunctionJob[Any]]", (job, *job._sub_jobs)):
            part._run_id, part._scheduler = run_folder.name, scheduler
            part._index, part._keeps_trying = index, keeps_trying
        return job

    @property
    def run_id(self) -> str:
        """The run in ``hpcrun status``, ``hpcrun logs`` and ``hpcrun cancel``."""
        return self._run_id

    @property
    def state(self) -> str:
        """The state that ``hpcrun status`` shows, at most ten seconds old."""
        return self._status().state

    def get_info(self, mode: str = "force") -> dict[str, str]:  # noqa: ARG002 - submitit's signature
        """Return the status under sacct's names."""
        status = self._status()
        shown = {"State": status.state, "Reason": status.reason, "NodeList": status.hosts}
        return {name: value for name, value in shown.items() if value}

    def done(self, force_check: bool = False) -> bool:
        """Return whether the job has ended; the scheduler is queried at most every ten seconds."""
        if self._sub_jobs:
            return all(job.done(force_check) for job in self._sub_jobs)
        if not self._keeps_trying and self._has_result():
            return True
        return self._statuses().over(self._key)

    def cancel(self, check: bool = True) -> None:
        """End the job.

        Args:
            check: raise where the scheduler refuses or is away.

        Raises:
            SchedulerError: see ``check``.
        """
        if not self._status().final:
            with suppress(*(() if check else (SchedulerError,))):
                self._statuses().cancel(self._key)

    def exception(self) -> UncompletedJobError | None:
        """Wait for the end; return the exception of the function, None if there is none.

        Of several tasks it is that of the task that raised, not of those that were then terminated.
        """
        if not self._sub_jobs:
            return super().exception()
        self.wait()
        failures = [failure for job in self._sub_jobs if (failure := job.exception()) is not None]
        return min(failures, key=lambda failure: not isinstance(failure, FailedJobError), default=None)

    def results(self) -> list[R]:
        """Wait for the end; return the function's result in each task.

        Raises:
            UncompletedJobError: see ``exception()``.
        """
        if self._sub_jobs and (failure := self.exception()) is not None:
            raise failure
        return super().results()

    def submission(self) -> DelayedSubmission:
        """Return the call: its ``function``, ``args`` and ``kwargs``."""
        if self.paths.submitted_pickle.exists():  # the call has started, and may have left a checkpoint
            return DelayedSubmission.load(self.paths.submitted_pickle)
        with zipfile.ZipFile(self.run_folder.calls) as calls:
            return cast(DelayedSubmission, pickle.load(BytesIO(calls.read(str(self._index)))))

    def __repr__(self) -> str:
        return f"FunctionJob<job_id={self.job_id}, run={self._run_id}, state={self.state}>"

    def __del__(self) -> None:
        if getattr(self, "_cancel_at_deletion", False) and not self.done():
            self.cancel(check=False)

    # --- what submitit's own methods call ---------------------------------------------------------------------

    def _register_in_watcher(self) -> None:
        """Do nothing: submitit's watcher would call sacct for every job, and hpcrun polls only on demand."""

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        deadline = time.monotonic() + _VISIBLE_WITHIN_S
        status: LastStatus | None = None
        while not self._has_result():
            status = status or self._status(_SETTLES_WITHIN_S)
            # only a completed job has a result that may not be visible yet
            if status.state != state.COMPLETED or time.monotonic() > deadline:
                raise UncompletedJobError(self._why_no_result(status))
            time.sleep(0.5)
        return cast("tuple[str, Any]", pickle_load(self.paths.result_pickle))

    def _get_logs_string(self, name: str) -> str | None:
        try:
            return tail({"stdout": self.paths.stdout, "stderr": self.paths.stderr}[name], None, links=True)
        except FileNotFoundError:
            return None

    # --- ours -------------------------------------------------------------------------------------------------

    @property
    def run_folder(self) -> RunFolder:
        """The folder of the run."""
        return RunFolder(self.paths.folder.parent)

    @property
    def _key(self) -> JobKey:
        return self.run_folder.path, self._index

    def _statuses(self) -> JobStatuses:
        statuses, folder = _statuses(self._scheduler), self.run_folder.path
        if folder not in statuses.runs:
            store, job_id = RunStore(folder.parent), self.job_id.partition("_")[0]
            run = store.load(self._run_id)
            statuses.runs[folder] = known_run(replace(run, job_id=run.job_id or job_id), store)
        return statuses

    def _status(self, within_s: float = 0.0) -> LastStatus:
        """Return the status after the scheduler has reported how the job ended, or has had time to."""
        deadline = time.monotonic() + within_s
        while not (status := self._statuses().status(self._key)).final and time.monotonic() < deadline:
            time.sleep(0.5)
        return status

    def _has_result(self) -> bool:
        folder = self.paths.folder
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode)  # makes NFS look again; submitit does the same
        return self.paths.result_pickle.exists()

    def _why_no_result(self, status: LastStatus) -> str:
        attempt = last_attempt(*self._key)
        rank = first_failure(attempt.folder) if attempt else None
        first = None
        if rank is not None and not rank.is_consequence:
            first = f"rank {rank.rank} on {rank.node} failed first, with exit status {rank.status}"
        why = "; ".join(filter(None, (status.reason, first)))
        message = f"job {self.job_id} (task {self.task_id}, run {self._run_id}) left no result: {status.state}"
        message += f" ({why})" if why else ""
        folder = self.run_folder.path
        batch_log = all_elements(RunStore(folder.parent).load(self._run_id)).batch_log(folder, self._index)
        logs = {"stderr": self.paths.stderr, "stdout": self.paths.stdout, "batch log": batch_log}
        for name, path in logs.items():
            with suppress(OSError):
                if text := tail(path, LOG_LINES, links=True).strip():
                    return f"{message}\nthe end of its {name}, {path}:\n{text}"
        return f"{message}\nthe job has {'written no log' if attempt else 'not started'}"
