"""A submitted function: submitit's job, whose state comes from hpcrun's own poll.

One poll serves all jobs.
"""

from __future__ import annotations

import pickle
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from submitit.core.core import Job
from submitit.core.utils import DelayedSubmission, FailedJobError, UncompletedJobError, pickle_load

from hpcrun.actions.runs.cancel import cancel_runs
from hpcrun.actions.status.run_status import RunStatus, element_of
from hpcrun.actions.status.status_query import one_status
from hpcrun.api.python_spelling import in_python
from hpcrun.cli.context import make_context
from hpcrun.errors import HpcrunError
from hpcrun.job.job_states import COMPLETED, UNKNOWN
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.spelling import spell_row
from hpcrun.runs.attempt import first_failure, last_attempt
from hpcrun.runs.elements import all_elements, records_of
from hpcrun.runs.log_files import tail
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore

R = TypeVar("R", covariant=True)

LOG_LINES = 40
"""How much of a log an exception shows."""
_VISIBLE_WITHIN_S = 15.0
"""How long a result may take to be seen on another host of a network file system."""
_SETTLES_WITHIN_S = 15.0
"""How long to ask how a job ended that left no result: Slurm is asked every ten seconds."""
ASK_EVERY_S = {"slurm": 10.0, "local": 0.5}
"""The age, in seconds, up to which the status of a run is used, by its scheduler."""
LOST_AFTER_S = 60.0
"""A job that has been UNKNOWN for this time counts as over."""


@dataclass(frozen=True, slots=True)
class _Learned:
    item: RunStatus
    at_s: float  # by the monotonic clock


_LEARNED: dict[Path, _Learned] = {}
"""Folder of a run → its last known status in this process."""


def learn_status(folder: Path, index: int = 0) -> RunStatus:
    """Return the status of a run, or of one of its elements.

    All jobs of a run share the last known status. Slurm's answer is the one that all polling
    commands share. A status from before the end of the script is renewed.
    """
    learned = _LEARNED.get(folder)
    if learned is not None and _is_current(learned, folder, index):
        return _part(learned.item, index)
    context = make_context(announce=None)
    store = RunStore(folder.parent, context.failed_nodes)
    ports = replace(context.ports, store=store).for_polling()
    item = one_status(folder.name, ports).runs[0]
    _LEARNED[folder] = _Learned(item, time.monotonic())
    return _part(item, index)


def _is_current(learned: _Learned, folder: Path, index: int) -> bool:
    if time.monotonic() - learned.at_s >= ASK_EVERY_S[learned.item.run.scheduler]:
        return False
    is_final = _part(learned.item, index).status.final
    return is_final or not records_of(folder, index).ended


def _part(item: RunStatus, index: int) -> RunStatus:
    if item.elements:
        return element_of(item, index)
    return item


class FunctionJob(Job[R]):
    """One call of a function, or one element of an array of calls.

    The methods are ``result()``, ``exception()``, ``done()`` ... The job is like submitit's jobs,
    but with the state of ``hpcrun status``, at most ten seconds old, and the run's own folder. A
    job can be pickled and used in another process.
    """

    _run_id: str
    _index: int
    _keeps_trying: bool

    @classmethod
    def of_run(
        cls,
        run_folder: Path,
        job_id: str,
        tasks: int,
        *,
        index: int = 0,
        keeps_trying: bool = False,
    ) -> FunctionJob[Any]:
        """Return the job of a run whose function is called by so many tasks.

        Args:
            run_folder: the folder of the run.
            job_id: as the scheduler lists it.
            tasks: how many tasks call the function.
            index: number of the element, 0 for the only one.
            keeps_trying: the job may start again, so that a result counts only after its script has
                ended.
        """
        job = cls(folder=RunFolder(run_folder).submitit, job_id=job_id, tasks=tuple(range(tasks)))
        for part in cast("Sequence[FunctionJob[Any]]", (job, *job._sub_jobs)):
            part._run_id = run_folder.name
            part._index = index
            part._keeps_trying = keeps_trying
        return job

    @property
    def run_id(self) -> str:
        """The run in ``hpcrun status``, ``hpcrun logs`` and ``hpcrun cancel``."""
        return self._run_id

    @property
    def state(self) -> str:
        """The state that ``hpcrun status`` shows, at most ten seconds old."""
        return self._status().state

    @in_python
    def get_info(self, mode: str = "force") -> dict[str, str]:  # noqa: ARG002 - submitit's
        """Return the status under sacct's names."""
        status = self._status()
        shown = {
            "State": status.state,
            "Reason": spell_row(status.reason or ""),
            "NodeList": status.hosts,
        }
        return {name: value for name, value in shown.items() if value}

    def done(self, force_check: bool = False) -> bool:
        """Return whether the job has ended; the scheduler is queried at most every ten seconds."""
        if self._sub_jobs:
            return all(job.done(force_check) for job in self._sub_jobs)
        if not self._keeps_trying and self._has_result():
            return True
        if records_of(*self._key).ended:
            return True
        item = learn_status(*self._key)
        status = item.status
        if status.final:
            return True
        if status.state != UNKNOWN or item.elsewhere:
            return False
        return time.time() - status.asked_s > LOST_AFTER_S

    def cancel(self, check: bool = True) -> None:
        """End the job.

        Args:
            check: raise where the scheduler refuses or is away, does not list the job as this
                run's, or lists it as before afterwards.

        Raises:
            HpcrunError: see ``check``.
        """
        ignored = () if check else (HpcrunError,)
        with suppress(*ignored):
            ports = make_context(announce=None).ports
            cancel_runs([learn_status(*self._key)], ports).check()

    def exception(self) -> UncompletedJobError | None:
        """Wait for the end; return the exception of the function, None if there is none.

        Of several tasks it is that of the task that raised, not of those that were then terminated.
        """
        if not self._sub_jobs:
            return super().exception()
        self.wait()
        first: UncompletedJobError | None = None
        for job in self._sub_jobs:
            failure = job.exception()
            if isinstance(failure, FailedJobError):
                return failure
            if first is None:
                first = failure
        return first

    def results(self) -> list[R]:
        """Wait for the end; return the function's result in each task.

        Raises:
            UncompletedJobError: see ``exception()``.
        """
        if self._sub_jobs:
            failure = self.exception()
            if failure is not None:
                raise failure
        return super().results()

    def submission(self) -> DelayedSubmission:
        """Return the call: its ``function``, ``args`` and ``kwargs``."""
        # the call has started, and may have left a checkpoint
        if self.paths.submitted_pickle.exists():
            return DelayedSubmission.load(self.paths.submitted_pickle)
        with zipfile.ZipFile(self.run_folder.calls) as calls:
            pickled = calls.read(str(self._index))
        return cast(DelayedSubmission, pickle.loads(pickled))

    def __repr__(self) -> str:
        return f"FunctionJob<job_id={self.job_id}, run={self._run_id}, state={self.state}>"

    def __del__(self) -> None:
        if getattr(self, "_cancel_at_deletion", False) and not self.done():
            self.cancel(check=False)

    # --- what submitit's own methods call --------------------------------------------------------

    def _register_in_watcher(self) -> None:
        """Do nothing: hpcrun polls only on demand.

        submitit's watcher would call sacct for every job.
        """

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        deadline = time.monotonic() + _VISIBLE_WITHIN_S
        status: LastStatus | None = None
        while not self._has_result():
            status = status or self._status(_SETTLES_WITHIN_S)
            # only a completed job has a result that may not be visible yet
            if status.state != COMPLETED or time.monotonic() > deadline:
                raise UncompletedJobError(self._why_no_result(status))
            time.sleep(0.5)
        return cast("tuple[str, Any]", pickle_load(self.paths.result_pickle))

    def _get_logs_string(self, name: str) -> str | None:
        logs = {"stdout": self.paths.stdout, "stderr": self.paths.stderr}
        try:
            return tail(logs[name], None, links=True)
        except FileNotFoundError:
            return None

    # --- ours ------------------------------------------------------------------------------------

    @property
    def run_folder(self) -> RunFolder:
        """The folder of the run."""
        return RunFolder(self.paths.folder.parent)

    @property
    def _key(self) -> tuple[Path, int]:
        return self.run_folder.path, self._index

    def _status(self, within_s: float = 0.0) -> LastStatus:
        """Return the status after the scheduler has reported how the job ended.

        The wait ends after ``within_s`` seconds, when the scheduler has had time to report.
        """
        deadline = time.monotonic() + within_s
        while True:
            status = learn_status(*self._key).status
            if status.final or time.monotonic() >= deadline:
                return status
            time.sleep(0.5)

    def _has_result(self) -> bool:
        folder = self.paths.folder
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode)  # makes NFS look again; submitit does the same
        return self.paths.result_pickle.exists()

    @in_python
    def _why_no_result(self, status: LastStatus) -> str:
        attempt = last_attempt(*self._key)
        reasons = []
        if status.reason:
            reasons.append(spell_row(status.reason))
        rank = first_failure(attempt.folder) if attempt else None
        if rank is not None and not rank.is_consequence:
            reasons.append(
                f"rank {rank.rank} on {rank.node} failed first, with exit status {rank.status}"
            )
        task = f"task {self.task_id}, run {self._run_id}"
        message = f"job {self.job_id} ({task}) left no result: {status.state}"
        if reasons:
            message += f" ({'; '.join(reasons)})"
        folder = self.run_folder.path
        run = RunStore(folder.parent).load(self._run_id)
        batch_log = all_elements(run).batch_log(folder, self._index)
        logs = {"stderr": self.paths.stderr, "stdout": self.paths.stdout, "batch log": batch_log}
        for name, path in logs.items():
            with suppress(OSError):
                text = tail(path, LOG_LINES, links=True).strip()
                if text:
                    return f"{message}\nthe end of its {name}, {path}:\n{text}"
        if attempt is None:
            return f"{message}\nthe job has not started"
        return f"{message}\nthe job has written no log"
