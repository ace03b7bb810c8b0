"""What runs have used: each run or element of a sweep as a past job, read from its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from hpcrun.actions.status.decide_status import attempt_times
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.files.reading import (
    flag,
    list_of,
    number,
    one_of,
    optional,
    read_fields,
    table,
    text,
    time_s,
    whole,
)
from hpcrun.job import job_states
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.action_log import read_actions
from hpcrun.runs.attempt import NODE_FAILURE, Attempt, attempts, names_in
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import LastStatus, Run, pairs_of
from hpcrun.runs.store import RunStore

End = Literal["completed", "failed", "cancelled"]
DEFAULT_ACCOUNT = "(default)"
NOT_EXAMINED = "not examined"
UNKNOWN_CAUSE = "unknown"
NOT_KNOWN = "(unknown)"
_BY_STATE = {
    job_states.TIMEOUT: "time limit",
    "DEADLINE": "deadline",
    job_states.NODE_FAIL: "node failure",
    "BOOT_FAIL": "node failure",
    job_states.PREEMPTED: "preempted",
    "REVOKED": "revoked",
}
"""The causes that the state alone tells."""
_NEVER_SUBMITTED = (job_states.NOT_SUBMITTED, job_states.SUBMITTING)
_FAILURE_REASONS = ("failure", NODE_FAILURE)
"""The recorded reasons that an attempt ended, if it failed and was not warned of its end."""
_EXCEPTION = re.compile(
    r"\b([A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Failure))\b(?=:| at |$)"
)


@dataclass(frozen=True, slots=True)
class JobTime:
    """A time in which a job had its allocation."""

    start_s: float
    end_s: float
    lost: bool = False  # this attempt failed

    @property
    def hours(self) -> float:
        """How long it had the allocation."""
        return (self.end_s - self.start_s) / 3600


@dataclass(frozen=True, slots=True)
class PastJob:
    """A run, an element of a sweep, or a job that only Slurm's accounting knows."""

    name: str
    project: str  # the git repository it was submitted from; the folder, where that is in none
    account: str
    profile: str
    cluster: str
    # gpus, cpus: of its allocation, on all nodes
    gpus: int
    cpus: int
    times: tuple[JobTime, ...]  # of its attempts, the oldest first
    end: End | None  # None for a job that has not ended, or whose end is not known
    ended_s: float  # in seconds since the epoch
    is_running: bool = False  # it counts until now
    # from its submission to its first start; None if it has not started, or waited for other jobs.
    # Of a sweep only the first element to start has one.
    wait_s: float | None = None
    cause: str = ""  # of a failed job
    qos: str = ""  # empty if it named none
    run_id: str | None = None  # None of a job that belongs to no run
    agent: str = NOT_KNOWN  # the coding agent that submitted it, or how else it was submitted
    is_unknown: bool = False  # it is not known how it ended


def jobs_of_run(item: RunStatus) -> list[PastJob]:
    """Return a run as one job, or a sweep as one job for each element.

    A run or element that was never submitted gives no job.
    """
    rows = [item]
    if item.elements:
        rows = [element_row(item, element) for element in item.elements]
    started = set(names_in(RunFolder(item.folder).elements))
    jobs = []
    tasks = []
    for row in rows:
        if row.status.state in _NEVER_SUBMITTED:
            continue
        element = row.element or 0
        newest: list[Attempt] = []
        if str(element) in started:
            newest = list(attempts(row.folder, element))
        jobs.append(_job(row, newest))
        tasks.append(str(row.run.job_id))
    if all_elements(item.run).packed:
        jobs = _counted_once(jobs, tasks)
    return first_waits(jobs)


@dataclass(frozen=True, slots=True)
class _ElementTime:
    """A time of an element, and where it stands."""

    time: JobTime
    element: int  # the place of the element in the list of jobs
    number: int  # the place of the time in those of the element

    def order(self) -> tuple[float, float, int, int]:
        """Return the sort key: the earlier start first, then the longer time."""
        return self.time.start_s, -self.time.end_s, self.element, self.number


def _counted_once(jobs: Sequence[PastJob], tasks: Sequence[str]) -> list[PastJob]:
    """Return the elements of packs, with times that count only once in each task.

    An element keeps the times for which no other element of the same task counts.

    Args:
        jobs: the elements of packs.
        tasks: the job id of the task of each element.
    """
    every_time = []
    for element, job in enumerate(jobs):
        for place, time in enumerate(job.times):
            every_time.append(_ElementTime(time, element, place))
    times = [list(job.times) for job in jobs]
    counted_until_s = dict.fromkeys(tasks, 0.0)
    for entry in sorted(every_time, key=_ElementTime.order):
        task = tasks[entry.element]
        end_s = entry.time.end_s
        start_s = max(entry.time.start_s, counted_until_s[task])
        start_s = min(start_s, end_s)
        times[entry.element][entry.number] = replace(entry.time, start_s=start_s)
        counted_until_s[task] = max(counted_until_s[task], end_s)
    return [replace(job, times=tuple(spans)) for job, spans in zip(jobs, times, strict=True)]


def _first_start_s(job: PastJob) -> float:
    """Return when a job that has times started for the first time."""
    return job.times[0].start_s


def first_waits(elements: Sequence[PastJob]) -> list[PastJob]:
    """Return the elements of an array; only the first that started has a wait."""
    started = [job for job in elements if job.times]
    first = min(started, key=_first_start_s, default=None)
    return [job if job is first else replace(job, wait_s=None) for job in elements]


def _job(row: RunStatus, newest: list[Attempt]) -> PastJob:
    """Return a run or an element, whose attempts are given the newest first."""
    run = row.run
    status = row.status
    end = end_of(status.state) if status.final else None
    times = tuple(_times(row, newest, end))
    ended_s = status.asked_s
    wait_s = None
    if times:
        ended_s = times[-1].end_s
        if not run.after:
            wait_s = max(0.0, times[0].start_s - run.created_s)
    nodes = run.nodes + _spares(run.plan)
    cpus_per_node = run.plan.get("cpus_per_node") or 0
    directives = dict(pairs_of(run.plan.get("directives")))
    return PastJob(
        name=run.name.partition("/")[0],
        project=project_of(run.cwd),
        account=str(directives.get("account") or DEFAULT_ACCOUNT),
        profile=run.profile,
        cluster=run.cluster or run.host,
        gpus=_gpus_of(run, nodes),
        cpus=nodes * cpus_per_node,
        times=times,
        end=end,
        ended_s=ended_s,
        is_running=status.state == job_states.RUNNING and not status.final,
        wait_s=wait_s,
        cause=cause_of(status) if end == "failed" else "",
        qos=str(directives.get("qos") or ""),
        run_id=run.run_id,
        agent=run.submitted_by or NOT_KNOWN,
        is_unknown=row.lost or status.state == job_states.UNKNOWN,
    )


def _gpus_of(run: Run, nodes: int) -> int:
    """Return the GPUs of the allocation of a run: its script may get more than its ranks use."""
    gpus = nodes * run.gpus_on_node
    shape = run.plan.get("shape")
    has_all_nodes = isinstance(shape, dict) and shape.get("nodes") == run.nodes
    if has_all_nodes and run.gpus_at_most:
        return max(gpus, run.gpus_at_most)
    return gpus


def end_of(final: str) -> End:
    """Return how a job ended that is in a final state."""
    if final == job_states.COMPLETED:
        return "completed"
    if final == job_states.CANCELLED:
        return "cancelled"
    return "failed"


def _times(row: RunStatus, newest: list[Attempt], end: End | None) -> Iterator[JobTime]:
    """Yield the times of attempts, which are given the newest first."""
    status = row.status
    # its records are gone; Slurm has told how long it ran
    if not newest and status.final and status.elapsed_s:
        start_s = row.run.created_s
        yield JobTime(start_s, start_s + status.elapsed_s, end == "failed")
    oldest_first = reversed(newest)
    times = attempt_times(newest, status)
    for attempt, (start_s, end_s) in zip(oldest_first, times, strict=True):
        if attempt is newest[0]:
            failed = end == "failed"
        else:
            # an attempt that another one follows has failed, unless it was warned of its end
            failed = attempt.exit is None or attempt.exit.reason in _FAILURE_REASONS
        yield JobTime(start_s, end_s, failed)


def cause_of(status: LastStatus) -> str:
    """Return the name of a failed job's cause, as far as it is recorded."""
    if status.state in _BY_STATE:
        return _BY_STATE[status.state]
    if status.rule:
        return status.rule
    exception = _EXCEPTION.search(status.cause or "")
    if exception:
        return exception[1]
    if status.rule is None:
        return NOT_EXAMINED
    if status.exit_status:
        return f"exit status {status.exit_status}"
    return UNKNOWN_CAUSE


@cache
def project_of(cwd: str | None) -> str:
    """Return the git repository that contains a folder, or else the folder.

    The home folder is no project's repository.
    """
    if not cwd:
        return "-"
    folder = Path(cwd)
    for parent in (folder, *folder.parents):
        if parent == Path.home():
            break
        if os.path.lexists(parent / ".git"):
            return str(parent)
    return str(folder)


def _spares(plan: Mapping[str, Any]) -> int:
    """Return the spare nodes of an allocation."""
    requeue = plan.get("requeue") or {}
    spares = requeue.get("spares")
    if isinstance(spares, int) and 0 < spares < 10_000:
        return spares
    return 0


def runs_since(store: RunStore, since_s: float) -> list[str]:
    """Return the runs that may have been active since a time.

    The ids, marks and status files of the runs decide this. No run is read.
    """
    active = set(store.active_ids())
    first_id = f"{datetime.fromtimestamp(max(0.0, since_s)):%Y%m%d-%H%M%S}"
    runs = []
    for run_id in store.run_ids():
        may_be_active = run_id >= first_id or run_id in active
        if may_be_active or _has_changed(store, run_id, since_s):
            runs.append(run_id)
    return runs


def _has_changed(store: RunStore, run_id: str, since_s: float) -> bool:
    """Whether the status file of a run was written since a time."""
    try:
        status = os.stat(RunFolder(store.folder(run_id)).status)
    except OSError:
        return False
    return status.st_mtime >= since_s


_TIME = table({"start_s": time_s, "end_s": time_s, "lost": flag}, ("start_s", "end_s"))
_JOB_KINDS = {
    **dict.fromkeys(("name", "project", "account", "profile", "cluster"), text),
    **dict.fromkeys(("cause", "qos", "run_id", "agent"), text),
    "gpus": whole(),
    "cpus": whole(),
    "times": list_of(_TIME),
    "end": optional(one_of("completed", "failed", "cancelled")),
    "ended_s": time_s,
    "wait_s": optional(number),
    "is_unknown": flag,
}
_JOB_NEEDS = frozenset("name project account profile cluster gpus cpus times ended_s".split())


def job_record(job: PastJob) -> dict[str, Any]:
    """Return a past job as JSON, for the time after its folder is gone."""
    record = asdict(job)
    del record["is_running"]
    if job.cause == NOT_EXAMINED:  # nothing can be examined any more
        record["cause"] = UNKNOWN_CAUSE
    return record


def read_job(record: Any) -> PastJob:
    """Return a past job from its record.

    Raises:
        ValueError: the record is damaged.
    """
    if not isinstance(record, dict):
        raise ValueError("is not an object")
    known, _ = read_fields(record, _JOB_KINDS, _JOB_NEEDS)
    times = []
    for time in known.pop("times"):
        times.append(JobTime(time["start_s"], time["end_s"], time.get("lost", False)))
    return PastJob(times=tuple(times), end=known.pop("end", None), **known)


@dataclass(frozen=True, slots=True)
class RemovedRun:
    """A run whose folder is gone, as ``clean`` has noted it."""

    run_id: str
    scheduler: str  # ``slurm`` or ``local``
    text: str  # in which a filter is searched for
    jobs: tuple[PastJob, ...]


def removed_runs(store: RunStore) -> list[RemovedRun]:
    """Return the runs that ``clean`` has removed, by the notes of it that can be read."""
    removed: dict[str, RemovedRun] = {}
    for line in read_actions(store.actions):
        if line.get("action") != "clean":
            continue
        try:
            [run_id] = list_of(text)(line.get("run_ids"))
            scheduler = text(line.get("scheduler"))
            jobs = tuple(read_job(record) for record in list_of(table())(line.get("jobs")))
        except ValueError:
            continue
        removed[run_id] = RemovedRun(run_id, scheduler, str(line.get("text", "")), jobs)
    for run_id in store.run_ids():  # it could not be removed
        removed.pop(run_id, None)
    return list(removed.values())
