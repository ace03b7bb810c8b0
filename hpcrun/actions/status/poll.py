"""Polling the state of runs: one query for all elements that have not ended, and one decision for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.status.resolve import judge, keep_since, with_attempts
from hpcrun.actions.status.run_status import ElementStatus
from hpcrun.errors import HpcrunError, SchedulerError
from hpcrun.job import state
from hpcrun.job.state import JobInfo, is_live
from hpcrun.runs.attempt import has_started, last_attempts
from hpcrun.runs.elements import ElementRecords, Elements, all_elements, all_records, load_statuses
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Scheduler
from hpcrun.schedulers.submit_claim import Sending, submission_progress

Answers = Mapping[Path, JobInfo]
"""Folder of a job → what the scheduler says of it."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run with its last known status."""

    run: Run
    folder: Path
    elements: Elements
    last: LastStatus | None  # the last known status of the whole run
    known: dict[int, LastStatus]  # the last known status of each element
    sending: Sending | None = None  # the progress of its submission before the query, for a run without a job

    @property
    def is_over(self) -> bool:
        """Whether its status is final."""
        return self.last is not None and self.last.final

    def open_elements(self) -> list[int]:
        """Return the elements that are not known to have ended; the others are never queried again."""
        return [index for index in self.elements.parameters if not ((last := self.known.get(index)) and last.final)]

    def records(self) -> dict[int, ElementRecords]:
        """Return the records of its open elements."""
        return all_records(self.folder, self.open_elements())

    def refs(self) -> list[JobRef]:
        """Return the jobs to query: each open element, or the whole run while it has no job id."""
        if self.run.job_id is None:
            return [JobRef(self.folder, None, self.run.created_s if self.sending is Sending.ENDED else None)]
        return [self.ref(index) for index in self.open_elements()]

    def ref(self, index: int) -> JobRef:
        """Return the reference of an element for schedulers."""
        folder = self.elements.job_folder(self.folder, index).path
        return JobRef(folder, self.elements.job_id(self.run, index), submitted_s=self.run.created_s)


def known_run(run: Run, store: RunStore) -> KnownRun:
    """Return a run with its last known status."""
    folder, last, elements = store.folder(run.run_id), store.last_status(run.run_id), all_elements(run)
    if last is not None and last.state == state.NOT_SUBMITTED and has_started(folder):
        return KnownRun(run, folder, elements, None, {})  # an sbatch that hung has submitted it after all
    known = load_statuses(folder) if elements.are_array else {0: last} if last else {}
    return KnownRun(run, folder, elements, last, known)


def belongs_here(run: Run, cluster: str | None, host: str) -> bool:
    """Whether a run belongs to this cluster or host, so that its job ids are valid here."""
    return run.host == host if run.scheduler == "local" else cluster is None or run.cluster in (None, cluster)


def ask(
    scheduler: Scheduler, runs: Sequence[KnownRun], store: RunStore, host: str, now_s: float
) -> tuple[list[KnownRun], Answers | None, SchedulerError | None]:
    """Query a scheduler once about all open elements of all runs of this cluster and host.

    Only a sweep whose job id is new in the answer needs a second query, about its elements.

    Returns the runs of this host and cluster, with the job ids that were learned; the answers, None where the scheduler
    is away; why it is.
    """
    cluster = scheduler.cluster() if runs else None
    # read before the query: then the scheduler knows the job of an sbatch that ends in between
    ours = [
        one if one.run.job_id else replace(one, sending=submission_progress(one.folder, one.run.created_s, now_s))
        for one in runs
        if belongs_here(one.run, cluster, host)
    ]
    nameless = {one.folder for one in ours if one.run.job_id is None}
    try:
        answers = scheduler.poll([ref for one in ours for ref in one.refs()])
        ours = [_with_job(one, answers, store) for one in ours]
        more = [ref for one in ours if one.folder in nameless for ref in one.refs() if ref.folder not in nameless]
        return ours, {**answers, **scheduler.poll(more)} if more else answers, None
    except SchedulerError as away:
        return [_with_job(one, {}, store) for one in ours], None, away


def _with_job(one: KnownRun, answers: Answers, store: RunStore) -> KnownRun:
    """Return a run with its missing job id, from the scheduler or from a record of its script."""
    if one.run.job_id is not None:
        return one
    info, attempt = answers.get(one.folder), next(last_attempts(one.folder), None)
    # the script of an array's task has written 123_4
    job_id = info.job_id if info else attempt.job_id.partition("_")[0] if attempt else None
    if job_id is None:
        return one
    run = replace(one.run, job_id=job_id)
    with suppress(HpcrunError):  # a full disk: it is found again next time
        store.save(run)
    return replace(one, run=run)


def judge_element(
    one: KnownRun, index: int, records: ElementRecords | None, answers: Answers | None, now_s: float
) -> ElementStatus:
    """Decide the status of one element.

    Args:
        records: None if its last known status stays.
        answers: None if the scheduler did not answer, or was not queried about it.
    """
    last, info = one.known.get(index), None
    status = last or LastStatus(state.UNKNOWN, one.run.created_s)
    answered = records is not None and answers is not None
    if records is not None:
        info = answers.get(one.ref(index).folder) if answers is not None else None
        status = judge(one.run, info, records, last, answered=answered, now_s=now_s, sending=one.sending)
        status = keep_since(with_attempts(status, records.newest), last)
    stale = is_stale(status, answered=answered, now_s=now_s)
    parameters = one.elements.parameters.get(index, ())
    return ElementStatus(index, one.elements.job_id(one.run, index), parameters, status, is_live(info), stale)


def is_stale(status: LastStatus, *, answered: bool, now_s: float) -> bool:
    """Whether there is no answer, or the answer lacks the job: then its status is the last known one."""
    return not status.final and (not answered or (status.missed_s is not None and status.asked_s < now_s))
