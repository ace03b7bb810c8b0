"""The jobs of a history, from the runs folder and from Slurm's accounting.

Each run or element of a sweep is read from its folder.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from hpcrun.actions.status.decide_status import attempt_times
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.job import job_states
from hpcrun.job.run_paths import RunFolder
from hpcrun.machine.process import Completed, SlurmSite
from hpcrun.runs.attempt import NODE_FAILURE, Attempt, attempts, names_in
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import LastStatus, pairs_of
from hpcrun.schedulers.slurm_text import (
    allocated_gpus,
    array_id,
    rows_of,
    run_id_of_line,
    sacct,
    whole_number,
)

End = Literal["completed", "failed", "cancelled"]
DEFAULT_ACCOUNT = "(default)"
NOT_EXAMINED = "not examined"
UNKNOWN_CAUSE = "unknown"
_BY_STATE = {
    job_states.TIMEOUT: "time limit",
    "DEADLINE": "deadline",
    job_states.NODE_FAIL: "node failure",
    "BOOT_FAIL": "node failure",
    job_states.PREEMPTED: "preempted",
    "REVOKED": "revoked",
}
"""The causes that the state alone tells."""
OTHER = "(not hpcrun)"
"""The profile of jobs that hpcrun did not submit."""
REMOVED = "(removed)"
"""The profile of runs whose folder is gone."""
_FAILED = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"})
"""The states of a start that failed and was followed by another one."""
_NEVER_SUBMITTED = (job_states.NOT_SUBMITTED, job_states.SUBMITTING)
_FAILURE_REASONS = ("failure", NODE_FAILURE)
"""The recorded reasons that an attempt ended, if it failed and was not warned of its end."""
ANSWER_WITHIN_S = 60.0
"""A database with millions of jobs needs its time."""
_FIELDS = (
    "JobID",
    "JobName",
    "Account",
    "Cluster",
    "State",
    "ExitCode",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "AllocCPUS",
    "AllocTRES",
    "WorkDir",
    "SubmitLine",
)
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
    return _first_waits(jobs)


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
        for number, time in enumerate(job.times):
            every_time.append(_ElementTime(time, element, number))
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


def _first_waits(elements: Sequence[PastJob]) -> list[PastJob]:
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
        gpus=nodes * run.gpus_per_node,
        cpus=nodes * cpus_per_node,
        times=times,
        end=end,
        ended_s=ended_s,
        is_running=status.state == job_states.RUNNING and not status.final,
        wait_s=wait_s,
        cause=cause_of(status) if end == "failed" else "",
        qos=str(directives.get("qos") or ""),
        run_id=run.run_id,
        is_unknown=row.lost or status.state == job_states.UNKNOWN,
    )


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


def accounted_jobs(
    since_s: float, now_s: float, env: Mapping[str, str]
) -> tuple[list[PastJob], Completed]:
    """Return this user's jobs since a time, and the answer of Slurm's accounting.

    One command asks for the jobs. There are no jobs where there is no accounting.
    """
    command = accounted_command(since_s, os.getuid())
    # sacct(1), a format of strftime(3)
    answer = SlurmSite(env, ANSWER_WITHIN_S).run(command, SLURM_TIME_FORMAT="%s")
    if not answer.ok:
        return [], answer
    return parse_accounted(answer.stdout, now_s), answer


def accounted_command(since_s: float, uid: int) -> list[str]:
    """Return the command that asks for a user's jobs since a time.

    The command asks the accounting database for the jobs that were pending or running.
    """
    since = datetime.fromtimestamp(max(0.0, since_s)).isoformat(timespec="seconds")
    time = (f"--user={uid}", f"--starttime={since}", "--endtime=now")
    return sacct("--allocations", "--duplicates", *time, fields=_FIELDS)


def parse_accounted(text: str, now_s: float) -> list[PastJob]:
    """Read the answer to :func:`accounted_command`.

    A requeued job, which has a line for each start, is one job.
    """
    starts = [dict(zip(_FIELDS, row, strict=True)) for row in rows_of(text, len(_FIELDS))]
    starts.sort(key=lambda start: _time_s(start["Submit"]) or 0.0)
    starts_of_job: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for start in starts:
        starts_of_job[start["Cluster"], start["JobID"]].append(start)
    arrays: dict[tuple[str, str], list[PastJob]] = defaultdict(list)
    for (cluster, job_id), starts in starts_of_job.items():
        arrays[cluster, array_id(job_id)].append(_accounted_job(starts, now_s))
    jobs = []
    for elements in arrays.values():
        jobs += _first_waits(elements)
    return jobs


def _accounted_job(starts: Sequence[Mapping[str, str]], now_s: float) -> PastJob:
    """Return a job of the accounting by the lines of its starts, the oldest first."""
    last = starts[-1]
    final = job_states.base_state(last["State"])
    end = end_of(final) if job_states.is_terminal(final) else None
    times: list[JobTime] = []
    wait_s = None
    for start in starts:
        if not _time_s(start["Start"]):
            continue
        time = _accounted_time(start, now_s, is_last=start is last)
        if not times:
            eligible_s = _time_s(start["Eligible"]) or _time_s(start["Submit"])
            if eligible_s:
                wait_s = max(0.0, time.start_s - eligible_s)
        times.append(time)
    ended_s = times[-1].end_s if times else 0.0
    run_id = run_id_of_line(last["SubmitLine"])
    return PastJob(
        name=last["JobName"],
        project=project_of(last["WorkDir"] or None),
        account=last["Account"],
        profile=OTHER if run_id is None else REMOVED,
        cluster=last["Cluster"],
        gpus=_last_known([allocated_gpus(start["AllocTRES"]) for start in starts]),
        cpus=_last_known([whole_number(start["AllocCPUS"]) for start in starts]),
        times=tuple(times),
        end=end,
        ended_s=ended_s,
        is_running=final == job_states.RUNNING,
        wait_s=wait_s,
        cause=_accounted_cause(last, final, ended_s) if end == "failed" else "",
        run_id=run_id,
    )


def _last_known(numbers: Sequence[int | None]) -> int:
    """Return the last number that is known and not 0, or 0."""
    known = [number for number in numbers if number]
    return known[-1] if known else 0


def _accounted_cause(last: Mapping[str, str], state: str, ended_s: float) -> str:
    """Return the cause of a failed job, by the line of its last start."""
    exit_status = whole_number(last["ExitCode"].partition(":")[0])
    return cause_of(LastStatus(state, ended_s, exit_status=exit_status, rule=""))


def _accounted_time(fields: Mapping[str, str], now_s: float, *, is_last: bool) -> JobTime:
    """Return the time of one start of a job.

    A start without an end has perhaps been lost, and counts until now only if the job runs.
    """
    state = job_states.base_state(fields["State"])
    start_s = float(fields["Start"])
    end_s = _time_s(fields["End"])
    if not end_s:
        end_s = now_s if state == job_states.RUNNING else start_s
    failed = False
    if job_states.is_terminal(state) and end_of(state) == "failed":
        failed = is_last or state in _FAILED
    return JobTime(start_s, max(start_s, end_s), failed)


def _time_s(text: str) -> float | None:
    """Return a time of sacct; None of ``Unknown``, ``None`` and 0, for what has not happened."""
    if text.isascii() and text.isdigit() and text != "0":
        return float(text)
    return None
