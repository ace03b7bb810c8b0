"""The jobs of a history that Slurm's accounting knows."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from hpcrun.actions.status.past_jobs import (
    JobTime,
    PastJob,
    cause_of,
    end_of,
    first_waits,
    project_of,
)
from hpcrun.job import job_states
from hpcrun.machine.process import Completed, SlurmSite
from hpcrun.runs.record import LastStatus
from hpcrun.schedulers.slurm_text import (
    allocated_gpus,
    array_id,
    rows_of,
    run_id_of_line,
    sacct,
    whole_number,
)

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
        jobs += first_waits(elements)
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
