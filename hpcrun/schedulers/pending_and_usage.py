"""Slurm's queue: pending jobs, their limits, and the usage of ended jobs.

Pending jobs have an order and an expected start. The limits keep jobs pending.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcrun.job.job_states import PENDING, base_state
from hpcrun.job.text.units import slurm_seconds
from hpcrun.machine.process import NO_RESPONSE, SlurmSite, user_name
from hpcrun.schedulers.slurm_text import (
    allocated_gpus,
    array_id,
    element_ids,
    in_parts,
    known_text,
    parse_time,
    resources,
    rows_of,
    run_id_of_line,
    sacct,
    squeue,
    whole_number,
)

# squeue(1); the priority is a number, the start is expected
_FIELDS = {
    "%i": "job_id",
    "%P": "partitions",
    "%j": "name",
    "%u": "user",
    "%T": "state",
    "%M": "used",
    "%l": "limit",
    "%D": "nodes",
    "%r": "reason",
    "%Q": "priority",
    "%S": "start",
    "%q": "qos",
    "%o": "command",
}
_NOT_IN_LINE = ("JobArrayTaskLimit", "JobHeld", "Dependency", "BeginTime", "JobHoldMaxRequeue")
_USAGE = (
    "JobID",
    "ElapsedRaw",
    "TotalCPU",
    "AllocCPUS",
    "AllocTRES",
    "MaxRSS",
    "NNodes",
    "NTasks",
    "SubmitLine",
)
_SIZE = re.compile(r"([\d.]+)([KMGTP]?)")
_POWERS = {"": -2, "K": -1, "M": 0, "G": 1, "T": 2, "P": 3}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job."""

    partition: str
    # when Slurm expects to start it, in seconds since the epoch; None if unknown
    start_s: float | None
    # 1 for the first in the queue, None for a job that is not in the queue (held, or with a
    # dependency)
    place: int | None
    of: int  # the number of jobs in the queue of its partition
    qos: str = ""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of any user that is not over."""

    job_id: str
    partitions: tuple[str, ...]  # of a pending job all that it may start in
    name: str
    user: str
    state: str
    elapsed_s: int | None
    limit_s: int | None
    nodes: int
    reason: str
    # the number of jobs that this line stands for: the pending elements of an array share one
    tasks: int
    in_line: bool  # it is pending, and nothing but the jobs before it keeps it from starting
    order: tuple[int, int]  # the smaller comes first
    # when Slurm expects to start it, in seconds since the epoch; None if unknown
    start_s: float | None
    qos: str
    run_id: str | None  # the run of hpcrun that it belongs to


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that an ended job has used, in all times that it was requeued together."""

    elapsed_s: int  # wall-clock time
    # nodes, cpus, gpus: of its last allocation
    nodes: int
    cpus: int
    gpus: int
    gpu_s: int  # GPUs times seconds, of each allocation
    cpu_s: float | None  # time in which its CPUs were busy; None if it was not measured
    memory_mb: float | None  # its memory per node; None if Slurm does not manage memory
    # the largest use of one node's tasks, sampled (JobAcctGatherFrequency); None if not measured
    used_mb: float | None


class SlurmQueue(SlurmSite):
    """The queue and the accounting of a cluster; empty if its commands do not respond."""

    def waiting(self, job_ids: Sequence[str]) -> dict[str, Waiting]:
        """Return the places of jobs in the queue, with one command for any number of jobs."""
        pending = squeue("--states=PENDING", fields=tuple(_FIELDS))
        if job_ids:
            return places(parse_jobs(self.run(pending).stdout), job_ids)
        return {}

    def limits(self) -> dict[str, list[Limit]]:
        """Return the limits that are set, per QOS.

        The limits of this user's accounts are under ``ACCOUNTS``, per account.
        """
        # all QOS, and this user's accounts and their parents
        command = ["scontrol", "show", "assoc_mgr", "flags=qos,assoc", f"users={user_name()}"]
        return parse_limits(self.run(command).stdout, os.getuid())

    def usage(self, job_ids: Sequence[str]) -> dict[tuple[str, str], Usage]:
        """Return the usage of ended jobs by run id and job id.

        One command serves any number of jobs.
        """
        answers = []
        for part in in_parts(sorted({array_id(job_id) for job_id in job_ids})):
            command = sacct("--duplicates", f"--jobs={','.join(part)}", fields=_USAGE)
            answers.append(self.run(command).stdout)
        return parse_usage("\n".join(answers))

    def jobs(self) -> list[QueuedJob]:
        """Return the jobs of all users, as far as the site shows them.

        Raises:
            SchedulerError: Slurm does not respond.
        """
        answer = self.run(squeue(fields=tuple(_FIELDS)))
        return parse_jobs(answer.checked(*NO_RESPONSE).stdout)


def places(jobs: Sequence[QueuedJob], job_ids: Iterable[str]) -> dict[str, Waiting]:
    """Return the places of these jobs among all pending jobs of all users.

    A site may not show all of the jobs.
    """
    in_line: dict[str, list[tuple[int, int]]] = {}
    for job in sorted(jobs, key=lambda job: job.order):
        if job.in_line:
            for partition in job.partitions:
                in_line.setdefault(partition, []).append(job.order)
    wanted = set(job_ids)
    waiting: dict[str, Waiting] = {}
    for job in jobs:
        names = {job.job_id, array_id(job.job_id), *element_ids(job.job_id)} & wanted
        if not names:
            continue
        partition = job.partitions[0]
        line = in_line.get(partition, [])
        place = line.index(job.order) + 1 if job.in_line else None
        for name in names:
            waiting.setdefault(name, Waiting(partition, job.start_s, place, len(line), job.qos))
    return waiting


def _order(job_id: str, priority: str) -> tuple[int, int]:
    """Return the sort key of a pending job: the higher priority first, then the older job."""
    number = re.match(r"\d+", job_id)
    least = -int(priority) if priority.isdigit() else 0
    return least, int(number[0]) if number else 0


def parse_jobs(text: str) -> list[QueuedJob]:
    """Read squeue's lines of all jobs that are not over; other lines are left out."""
    jobs = []
    for row in rows_of(text, len(_FIELDS)):
        fields = dict(zip(_FIELDS.values(), row, strict=True))
        jobs.append(_queued_job(fields))
    return jobs


def _queued_job(fields: Mapping[str, str]) -> QueuedJob:
    job_id = fields["job_id"]
    state = base_state(fields["state"])
    reason = fields["reason"]
    return QueuedJob(
        job_id,
        tuple(fields["partitions"].split(",")),
        fields["name"],
        fields["user"],
        state,
        slurm_seconds(fields["used"]),
        slurm_seconds(fields["limit"]),
        _int(fields["nodes"]),
        known_text(reason) or "",
        len(element_ids(job_id)),
        state == PENDING and not reason.startswith(_NOT_IN_LINE),
        _order(job_id, fields["priority"]),
        parse_time(fields["start"]),
        fields["qos"],
        run_id_of_line(fields["command"]),
    )


def parse_usage(text: str) -> dict[tuple[str, str], Usage]:
    """Return run id and job id → usage, from sacct.

    A job has a line, and its steps (``7.batch``, ``7.0``) follow that line. A job that belongs to
    no run is left out.
    """
    jobs: dict[tuple[str, str], list[list[str]]] = {}
    most: dict[tuple[str, str], float] = {}
    run_id: str | None = None
    for fields in rows_of(text, len(_USAGE)):
        job_id, _, step = fields[0].partition(".")
        if not step:
            run_id = run_id_of_line(fields[-1])
        if run_id is None:
            continue
        key = (run_id, job_id)
        if not step:
            jobs.setdefault(key, []).append(fields)
            continue
        largest_task = megabytes(fields[5])
        if largest_task is not None:
            nodes = max(1, _int(fields[6]))
            tasks_of_node = math.ceil(_int(fields[7]) / nodes) or 1
            most[key] = max(most.get(key, 0.0), largest_task * tasks_of_node)
    return {key: _usage(lines, most.get(key)) for key, lines in jobs.items()}


def _usage(lines: Sequence[Sequence[str]], used_mb: float | None) -> Usage:
    """Return the usage of a job, from one line for each time that it was submitted or requeued."""
    elapsed_s = 0
    gpu_s = 0
    cpu_s = 0.0
    for fields in lines:
        seconds = _int(fields[1])
        elapsed_s += seconds
        gpu_s += seconds * allocated_gpus(fields[4])
        cpu_s += slurm_seconds(fields[2].partition(".")[0]) or 0.0
    _, _, _, cpus, tres, _, nodes, _, _ = lines[-1]
    memory_mb = megabytes(resources(tres).get("mem", ""))
    count = max(1, _int(nodes))
    return Usage(
        elapsed_s=elapsed_s,
        nodes=count,
        cpus=_int(cpus),
        gpus=allocated_gpus(tres),
        gpu_s=gpu_s,
        # without a measurement of memory nothing was measured (JobAcctGatherType=none)
        cpu_s=None if used_mb is None else cpu_s,
        memory_mb=None if memory_mb is None else memory_mb / count,
        used_mb=used_mb,
    )


def megabytes(text: str) -> float | None:
    """Return an amount of memory such as ``4000M`` in MB, None for other texts."""
    match = _SIZE.fullmatch(text)
    if match:
        megabytes: float = float(match[1]) * 1024 ** _POWERS[match[2]]
        return megabytes
    return None


def _int(text: str) -> int:
    return whole_number(text) or 0


ACCOUNTS = ""  # the key of the limits of the user's accounts; limits of a QOS have its name as key
_QOS = re.compile(r"QOS=(.+?)\(\d+\)")
_ACCOUNT = re.compile(r"ClusterName=\S+ Account=(\S+) UserName=(?:\S*\((\d+)\))? ")
_LIMIT = re.compile(r"([\w/:.-]+)=(\d+)\((\d+)\)")
_WORDS = {
    "MaxJobsPU": "running jobs",
    "MaxSubmitJobsPU": "jobs",
    "GrpJobs": "running jobs",
    "GrpSubmitJobs": "jobs",
}
_NOT_A_LIMIT_OF_JOBS = ("MaxJobsAccruePU", "GrpJobsAccrue")  # they limit only priority by age
_OF_BUDGET = " minutes"
# lines whose resources are counted in minutes
_MINUTES = {"GrpTRESMins": _OF_BUDGET, "GrpTRESRunMins": " minutes reserved by running jobs"}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and its use."""

    holder: str  # ``QOS short``, ``account lab``, or ``account lab, you``
    what: str  # ``jobs``, or Slurm's name of a resource (``gres/gpu``)
    used: str
    allowed: str
    whose: str = "you"  # whose jobs count: ``you``, or ``all its users``

    @property
    def budget(self) -> str:
        """The resource whose minutes it limits, such as ``gres/gpu``; empty for other limits."""
        if self.what.endswith(_OF_BUDGET):
            return self.what.removesuffix(_OF_BUDGET)
        return ""


def parse_limits(text: str, uid: int) -> dict[str, list[Limit]]:
    """Read the answer: QOS → the user's limits there, and the limits of the user's accounts.

    The limits of accounts are under ``ACCOUNTS``. ``MaxJobsPU=2(1)`` means two allowed and one in
    use, ``N`` means no limit (src/common/assoc_mgr_info.c); users of a QOS are listed by number.
    Entries without a limit are left out.
    """
    limits: dict[str, list[Limit]] = {}
    key = ""
    holder = ""
    whose = ""
    in_users = False
    for line in map(str.strip, text.splitlines()):
        qos = _QOS.fullmatch(line)
        account = _ACCOUNT.match(line)
        if qos:
            key = qos[1]
            holder = f"QOS {qos[1]}"
            whose = "all its users"
            in_users = False
        elif account:
            key = ACCOUNTS
            holder = f"account {account[1]}"
            if account[2] is None:
                whose = "all its users"
            else:
                holder += ", you"
                whose = "you" if account[2] == str(uid) else ""
        elif line in ("User Limits", "Account Limits"):
            whose = ""
            in_users = line.startswith("User")
        elif "=" not in line:  # a user of the QOS, or an account of it
            is_mine = in_users and str(uid) in re.findall(r"\d+", line)
            whose = "you" if is_mine else ""
        elif whose:
            minutes = _MINUTES.get(line.partition("=")[0], "")
            for name, allowed, used in _LIMIT.findall(line):
                if name not in _NOT_A_LIMIT_OF_JOBS:
                    limit = Limit(holder, _WORDS.get(name, name) + minutes, used, allowed, whose)
                    limits.setdefault(key, []).append(limit)
    return limits
