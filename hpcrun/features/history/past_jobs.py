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
    if item.elements:
        rows = [element_row(item, element) for element in item.elements]
    else:
        rows = [item]
    rows = [
        row
        for row in rows
        if row.status.state not in (job_states.NOT_SUBMITTED, job_states.SUBMITTING)
    ]
    started = set(names_in(RunFolder(item.folder).elements))
    jobs = [
        _job(
            row,
            list(attempts(row.folder, row.element or 0))
            if str(row.element or 0) in started
            else [],
        )
        for row in rows
    ]
    if all_elements(item.run).packed:
        jobs = _counted_once(jobs, [str(row.run.job_id) for row in rows])
    return _first_waits(jobs)


def _counted_once(jobs: Sequence[PastJob], tasks: Sequence[str]) -> list[PastJob]:
    """Return the elements of packs, with times that count only once in each task.

    An element keeps the times for which no other element of the same task counts.

    Args:
        jobs: the elements of packs.
        tasks: the job id of the task of each element.
    """
    times, counted_s = [list(job.times) for job in jobs], dict.fromkeys(tasks, 0.0)
    order = [
        (time.start_s, -time.end_s, place, number)
        for place, job in enumerate(jobs)
        for number, time in enumerate(job.times)
    ]
    for start_s, negative_end_s, place, number in sorted(order):
        until_s = counted_s[tasks[place]]
        end_s = -negative_end_s
        times[place][number] = replace(
            times[place][number], start_s=min(max(start_s, until_s), end_s)
        )
        counted_s[tasks[place]] = max(until_s, end_s)
    return [replace(job, times=tuple(spans)) for job, spans in zip(jobs, times, strict=True)]


def _first_waits(elements: Sequence[PastJob]) -> list[PastJob]:
    """Return the elements of an array; only the first that started has a wait."""
    first = min(
        (job for job in elements if job.times), key=lambda job: job.times[0].start_s, default=None
    )
    return [job if job is first else replace(job, wait_s=None) for job in elements]


def _job(row: RunStatus, newest: list[Attempt]) -> PastJob:
    run, status = row.run, row.status
    end = end_of(status.state) if status.final else None
    times = tuple(_times(row, newest, end))
    nodes = run.nodes + _spares(run.plan)
    directives = dict(pairs_of(run.plan.get("directives")))
    return PastJob(
        name=run.name.partition("/")[0],
        project=project_of(run.cwd),
        account=str(directives.get("account") or DEFAULT_ACCOUNT),
        profile=run.profile,
        cluster=run.cluster or run.host,
        gpus=nodes * run.gpus_per_node,
        cpus=nodes * (run.plan.get("cpus_per_node") or 0),
        times=times,
        end=end,
        ended_s=times[-1].end_s if times else status.asked_s,
        is_running=status.state == job_states.RUNNING and not status.final,
        wait_s=None if run.after or not times else max(0.0, times[0].start_s - run.created_s),
        cause=cause_of(status) if end == "failed" else "",
        qos=str(directives.get("qos") or ""),
        run_id=run.run_id,
        is_unknown=row.lost or row.status.state == job_states.UNKNOWN,
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
        yield JobTime(row.run.created_s, row.run.created_s + status.elapsed_s, end == "failed")
    for attempt, (start_s, end_s) in zip(
        reversed(newest), attempt_times(newest, status), strict=True
    ):
        # one that was followed by another one has failed, unless it was warned of its end
        failed = attempt.exit is None or attempt.exit.reason in ("failure", NODE_FAILURE)
        yield JobTime(start_s, end_s, end == "failed" if attempt is newest[0] else failed)


def cause_of(status: LastStatus) -> str:
    """Return the name of a failed job's cause, as far as it is recorded."""
    if status.state in _BY_STATE:
        return _BY_STATE[status.state]
    if status.rule:
        return status.rule
    if status.cause and (match := _EXCEPTION.search(status.cause)):
        return match[1]
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
    for each in (folder, *folder.parents):
        if each == Path.home():
            break
        if os.path.lexists(each / ".git"):
            return str(each)
    return str(folder)


def _spares(plan: Mapping[str, Any]) -> int:
    """Return the spare nodes of an allocation."""
    spares = (plan.get("requeue") or {}).get("spares")
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
    return (parse_accounted(answer.stdout, now_s) if answer.ok else []), answer


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
    rows = [dict(zip(_FIELDS, row, strict=True)) for row in rows_of(text, len(_FIELDS))]
    starts: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for fields in sorted(rows, key=lambda fields: _time_s(fields["Submit"]) or 0.0):
        starts[fields["Cluster"], fields["JobID"]].append(fields)
    arrays: dict[tuple[str, str], list[PastJob]] = defaultdict(list)
    for (cluster, job_id), each in starts.items():
        arrays[cluster, array_id(job_id)].append(_accounted_job(each, now_s))
    return [job for elements in arrays.values() for job in _first_waits(elements)]


def _accounted_job(starts: Sequence[Mapping[str, str]], now_s: float) -> PastJob:
    """Return a job of the accounting by the lines of its starts, the oldest first."""
    last = starts[-1]
    final = job_states.base_state(last["State"])
    end = end_of(final) if job_states.is_terminal(final) else None
    begun = [each for each in starts if _time_s(each["Start"])]
    times = tuple(_accounted_time(each, now_s, is_last=each is last) for each in begun)
    first = begun[0] if begun else last
    eligible_s = _time_s(first["Eligible"]) or _time_s(first["Submit"])
    ended_s = times[-1].end_s if times else 0.0
    status = LastStatus(
        final, ended_s, exit_status=whole_number(last["ExitCode"].partition(":")[0]), rule=""
    )
    run_id = run_id_of_line(last["SubmitLine"])
    return PastJob(
        name=last["JobName"],
        project=project_of(last["WorkDir"] or None),
        account=last["Account"],
        profile=OTHER if run_id is None else REMOVED,
        cluster=last["Cluster"],
        gpus=next(
            filter(None, (allocated_gpus(each["AllocTRES"]) for each in reversed(starts))), 0
        ),
        cpus=next(filter(None, (whole_number(each["AllocCPUS"]) for each in reversed(starts))), 0),
        times=times,
        end=end,
        ended_s=ended_s,
        is_running=final == job_states.RUNNING,
        wait_s=max(0.0, times[0].start_s - eligible_s) if times and eligible_s else None,
        cause=cause_of(status) if end == "failed" else "",
        run_id=run_id,
    )


def _accounted_time(fields: Mapping[str, str], now_s: float, *, is_last: bool) -> JobTime:
    """Return the time of one start of a job.

    A start without an end has perhaps been lost, and counts until now only if the job runs.
    """
    at = job_states.base_state(fields["State"])
    start_s = float(fields["Start"])
    end_s = _time_s(fields["End"]) or (now_s if at == job_states.RUNNING else start_s)
    failed = job_states.is_terminal(at) and end_of(at) == "failed" and (is_last or at in _FAILED)
    return JobTime(start_s, max(start_s, end_s), failed)


def _time_s(text: str) -> float | None:
    """Return a time of sacct; None of ``Unknown``, ``None`` and 0, for what has not happened."""
    if text.isascii() and text.isdigit() and text != "0":
        return float(text)
    return None
