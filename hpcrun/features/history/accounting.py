"""The jobs of a user that Slurm's accounting knows, whoever submitted them; each with what it has held, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from hpcrun.job.state import base_state
from hpcrun.schedulers.process import Completed, SlurmSite
from hpcrun.schedulers.slurm_text import allocated_gpus, rows_of, run_id_of_line, sacct

ANSWER_WITHIN_S = 60.0
"""A database with millions of jobs needs its time."""
_FIELDS = (
    "JobID", "JobName", "Account", "Cluster", "State", "ExitCode", "Submit", "Eligible", "Start", "End", "AllocCPUS",
    "AllocTRES", "WorkDir", "SubmitLine",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AccountedTime:
    """One start of a job: in seconds since the epoch; ``end_s`` is None while it runs."""

    state: str
    start_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class AccountedJob:
    """A job as the accounting database has it."""

    job_id: str
    name: str
    account: str
    cluster: str
    state: str  # of its last start
    exit_status: int | None  # of its batch script
    eligible_s: float | None  # when it could have started: after its submission, its ``--begin`` and its dependencies
    # gpus, cpus: of its allocation
    gpus: int
    cpus: int
    workdir: str  # where it was submitted from; empty if unknown
    run_id: str | None  # of the run whose script it ran; None if it belongs to no run
    times: tuple[AccountedTime, ...]  # its starts, the oldest first: more than one if it was requeued


def accounted_jobs(since_s: float, env: Mapping[str, str]) -> tuple[list[AccountedJob], Completed]:
    """Ask for this user's jobs since a time, with one command; none where there is no accounting."""
    site = SlurmSite(env, ANSWER_WITHIN_S)
    # sacct(1), a format of strftime(3)
    answer = site.run(accounted_command(since_s, os.getuid()), SLURM_TIME_FORMAT="%s")
    return (parse_accounted(answer.stdout) if answer.ok else []), answer


def accounted_command(since_s: float, uid: int) -> list[str]:
    """Ask the accounting database for the jobs of a user that were pending or running since a time."""
    since = datetime.fromtimestamp(max(0.0, since_s)).isoformat(timespec="seconds")
    time = (f"--user={uid}", f"--starttime={since}", "--endtime=now")
    return sacct("--allocations", "--duplicates", *time, fields=_FIELDS)


def parse_accounted(text: str) -> list[AccountedJob]:
    """Read the answer to :func:`accounted_command`; a requeued job, which has a line for each start, is one job."""
    found: dict[tuple[str, str], AccountedJob] = {}
    for fields in sorted(rows_of(text, len(_FIELDS)), key=lambda fields: _time_s(fields[6]) or 0.0):
        job = _job(*fields)
        before = found.get((job.cluster, job.job_id))
        if before is not None:
            job = replace(
                job,
                times=(*before.times, *job.times),
                gpus=job.gpus or before.gpus,
                cpus=job.cpus or before.cpus,
                eligible_s=before.eligible_s if before.times else job.eligible_s,
            )
        found[job.cluster, job.job_id] = job
    return list(found.values())


def _job(
    job_id: str, name: str, account: str, cluster: str, state: str, exit_code: str, submit: str, eligible: str,
    start: str, end: str, cpus: str, tres: str, workdir: str, line: str,
) -> AccountedJob:  # fmt: skip
    word, start_s, status = base_state(state), _time_s(start), exit_code.partition(":")[0]
    times = () if start_s is None else (AccountedTime(word, start_s, _time_s(end)),)
    return AccountedJob(
        job_id=job_id,
        name=name,
        account=account,
        cluster=cluster,
        state=word,
        exit_status=int(status) if status.isascii() and status.isdigit() else None,
        eligible_s=_time_s(eligible) or _time_s(submit),
        gpus=allocated_gpus(tres),
        cpus=int(cpus) if cpus.isascii() and cpus.isdigit() else 0,
        workdir=workdir,
        run_id=run_id_of_line(line),
        times=times,
    )


def _time_s(text: str) -> float | None:
    """Return a time of sacct; None of ``Unknown``, ``None`` and 0, for what has not happened."""
    return float(text) if text.isascii() and text.isdigit() and text != "0" else None
