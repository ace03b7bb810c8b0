"""A run as it was last known, and what an answer of the scheduler changes of that.

An end is *final* once the last attempt has ended, and *forgotten* once Slurm no longer lists the
job. Until then an administrator or RequeueExit can requeue it, so Slurm is asked once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.job import job_states as state
from hpcrun.job.job_states import JobInfo, waits_to_start
from hpcrun.runs.attempt import has_started, newest_number
from hpcrun.runs.elements import (
    ElementRecords,
    Elements,
    all_elements,
    all_records,
    load_statuses,
)
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.submit_claim import Sending

Answers = Mapping[Path, JobInfo]
"""Folder of a job → what the scheduler says of it."""


_ENDS_IN_DOUBT = (state.NOT_SUBMITTED, state.REVOKED)
"""The final states of a run that has started all the same.

An sbatch that hung has submitted it after all; to an older hpcrun, REVOKED was an end.
"""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run with its last known status."""

    run: Run
    folder: Path
    elements: Elements
    last: LastStatus | None  # the last known status of the whole run
    # the last known status of each element; empty for a sweep that is over for good
    last_of_elements: dict[int, LastStatus]
    # the progress of its submission before the query, for a run without a job
    sending: Sending | None = None

    @property
    def is_over(self) -> bool:
        """Whether its status is final."""
        return self.last is not None and self.last.final

    @property
    def may_change(self) -> bool:
        """Whether an answer of the scheduler can say anything new of it."""
        return not self.is_over or self.may_return

    @property
    def may_return(self) -> bool:
        """Whether it has ended, and Slurm could have requeued it since."""
        return self.is_over and bool(self.ended_elements())

    def ended_elements(self) -> list[int]:
        """Return the elements that have ended, and whose jobs Slurm has not forgotten."""
        if not _can_be_requeued(self.run):
            return []
        ended = []
        for index, last in self.last_of_elements.items():
            if last.final and not last.forgotten:
                ended.append(index)
        return ended

    def open_elements(self) -> list[int]:
        """Return the elements that are not known to have ended."""
        ended = {index for index, status in self.last_of_elements.items() if status.final}
        return [index for index in self.elements.parameters if index not in ended]

    def records(self) -> dict[int, ElementRecords]:
        """Return the records of its open elements."""
        return all_records(self.folder, self.open_elements())

    def refs(self) -> list[JobRef]:
        """Return the jobs to query: each element whose job Slurm may list.

        While the run has no job id, it is the whole run.
        """
        if self.run.job_id is None:
            has_ended = self.sending is Sending.ENDED
            since_s = self.run.created_s if has_ended else None
            return [JobRef(self.folder, None, since_s=since_s)]
        ended = [self.ref(index, has_ended=True) for index in self.ended_elements()]
        if self.is_over:
            return ended
        return [*ended, *map(self.ref, self.open_elements())]

    def ref(self, index: int, *, has_ended: bool = False) -> JobRef:
        """Return the reference of an element for schedulers."""
        folder = self.elements.job_folder(self.folder, index).path
        job_id = self.elements.job_id(self.run, index)
        return JobRef(folder, job_id, has_ended=has_ended, submitted_s=self.run.created_s)

    def after_answer(self, answers: Answers) -> KnownRun:
        """Return the run with what an answer says of its ended elements.

        An element that has begun another attempt is open again, which voids the end of the whole
        run. One that is not listed is forgotten.
        """
        known = dict(self.last_of_elements)
        has_returned = False
        for index in self.ended_elements():
            info = answers.get(self.ref(index).folder)
            if self._has_returned(index, info):
                del known[index]
                has_returned = True
            elif info is None:
                known[index] = replace(known[index], forgotten=True)
        last = self.last
        if self.is_over and has_returned:
            last = None
        elif last is not None and self.is_over:
            are_forgotten = all(status.forgotten for status in known.values())
            last = replace(last, forgotten=last.forgotten or are_forgotten)
        return replace(self, last=last, last_of_elements=known)

    def _has_returned(self, index: int, info: JobInfo | None) -> bool:
        """Whether an ended element has begun another attempt, by the queue or by its script.

        An answer from before the end says nothing. A running job counts only if its allocation
        began after the end was seen, since Slurm may list the same attempt for some seconds.
        """
        last = self.last_of_elements[index]
        if info is not None and info.asked_s > last.asked_s:
            if waits_to_start(info.state):
                return True
            began_s = info.asked_s - (info.elapsed_s or 0)
            if info.state == state.RUNNING and began_s > last.asked_s:
                return True
        if info is not None and info.state == last.state and self.elements.are_array:
            return False  # a sweep may have thousands of folders
        return newest_number(self.folder, index) > last.attempt


def known_run(run: Run, store: RunStore) -> KnownRun:
    """Return a run with its last known status."""
    folder = store.folder(run.run_id)
    last = store.last_status(run.run_id)
    elements = all_elements(run)
    is_doubtful = last is not None and last.final and last.state in _ENDS_IN_DOUBT
    if is_doubtful and has_started(folder):
        return KnownRun(run, folder, elements, None, {})
    known: dict[int, LastStatus] = {}
    if not elements.are_array:
        if last:
            known = {0: last}
    elif last is None or not is_settled(run, last):
        known = load_statuses(folder)
    return KnownRun(run, folder, elements, last, known)


def is_settled(run: Run, status: LastStatus) -> bool:
    """Return whether a run has ended, and nothing can requeue it any more."""
    return status.final and (status.forgotten or not _can_be_requeued(run))


def _can_be_requeued(run: Run) -> bool:
    """Whether Slurm can requeue what has ended.

    Only hpcrun restarts a job of this machine, and a pack starts no element that has ended.
    """
    is_pack = (run.plan.get("sweep") or {}).get("pack") is not None
    return run.scheduler == "slurm" and run.job_id is not None and not is_pack
