"""Pending jobs that alone request more than a limit of their QOS or account: they never start.

Slurm tells only that the limit is reached (job_state_reason.c), be it by other jobs or by this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcrun.job.job_states import OverLimit
from hpcrun.job.text.units import slurm_seconds
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit, SlurmQueue, megabytes
from hpcrun.schedulers.slurm_text import SEPARATOR, in_parts, resources, rows_of

_FIELDS = ("ArrayJobID", "QOS", "Account", "Partition", "TimeLimit", "tres-alloc")
_WIDTH = 512  # squeue fills up, and cuts, its fields
# part of a reason → the beginning of Slurm's name of the resource
_RESOURCES = {
    "GRES": "gres/",
    "Cpu": "cpu",
    "CPU": "cpu",
    "Mem": "mem",
    "Node": "node",
    "Billing": "billing",
}
_OWN_QOS = re.compile(r"\bQoS=(\S+)")


@dataclass(frozen=True, slots=True)
class RequestedJob:
    """What a pending job, or each task of an array, requests."""

    qos: str
    account: str
    partition: str
    minutes: float | None  # None without a time limit
    amounts: Mapping[str, float]  # Slurm's name of a resource → amount; memory in MB


def find_over_limits(
    env: Mapping[str, str], reasons: Mapping[str, str]
) -> dict[str, OverLimit | None]:
    """Return the limit that each pending job alone is over, None for no such limit.

    Args:
        env: the environment of the queries: one about jobs, one about limits, one per partition.
        reasons: job id → Slurm's reason.

    Returns:
        Job id → limit; a job of which Slurm says nothing is left out.
    """
    queue = SlurmQueue(env)
    requested: dict[str, RequestedJob] = {}
    for part in in_parts(sorted(reasons)):
        requested |= parse_requested(queue.run(requested_command(part)).stdout)
    if not requested:
        return {}
    limits = queue.limits()
    own_qos: dict[str, str | None] = {}
    over = {}
    for job_id, job in requested.items():
        if job_id not in reasons:
            continue
        if job.partition not in own_qos:
            shown = queue.run(["scontrol", "--oneliner", "show", "partition", job.partition])
            own_qos[job.partition] = parse_own_qos(shown.stdout)
        holders = limits_of(job, reasons[job_id], limits, own_qos[job.partition])
        over[job_id] = over_limit(job, reasons[job_id], holders)
    return over


def requested_command(job_ids: Sequence[str]) -> list[str]:
    """Ask what pending jobs request; a field has a width and ends with the separator."""
    fields = ",".join(f"{field}:{_WIDTH}{SEPARATOR}" for field in _FIELDS)
    jobs = f"--jobs={','.join(job_ids)}"
    return ["squeue", jobs, "--states=PENDING", "--noheader", f"--Format={fields}"]


def parse_requested(text: str) -> dict[str, RequestedJob]:
    """Read the answer to :func:`requested_command`: job id → request."""
    jobs = {}
    for job_id, qos, account, partition, time, tres, _ in rows_of(text, len(_FIELDS) + 1):
        seconds = slurm_seconds(time)
        minutes = None
        if seconds is not None:
            minutes = seconds / 60
        jobs[job_id] = RequestedJob(qos, account, partition, minutes, _amounts(tres))
    return jobs


def _amounts(tres: str) -> dict[str, float]:
    amounts = {}
    for name, text in resources(tres).items():
        amount = megabytes(text)
        if text.isdecimal():
            amount = float(text)
        if amount is not None:
            amounts[name] = amount
    return amounts


def parse_own_qos(text: str) -> str | None:
    """Return the QOS whose limits hold for all jobs of a partition, None for none."""
    match = _OWN_QOS.search(text)
    if match is None or match[1] in ("N/A", "(null)"):
        return None
    return match[1]


def limits_of(
    job: RequestedJob, reason: str, limits: Mapping[str, Sequence[Limit]], own_qos: str | None
) -> list[Limit]:
    """Return the limits that a reason may be about: those of the QOS, or of the job's account."""
    if reason.startswith("QOS"):
        names = dict.fromkeys(name for name in (job.qos, own_qos) if name)
        return [limit for name in names for limit in limits.get(name, ())]
    mine = (f"account {job.account}", f"account {job.account}, you")
    return [limit for limit in limits.get(ACCOUNTS, ()) if limit.holder in mine]


def over_limit(job: RequestedJob, reason: str, limits: Iterable[Limit]) -> OverLimit | None:
    """Return the limit that a job alone is over, None for no such limit.

    A resource that both the QOS of the job and that of its partition limit must be over both: which
    of them holds depends on the flags of the QOS.
    """
    resource = _resource_of(reason)
    if resource is None:
        return None
    tried: dict[str, list[OverLimit]] = {}
    for limit in limits:
        if "PerUser" in reason and limit.whose != "you":
            continue
        name, _, per = limit.what.partition(" ")
        if not name.startswith(resource) or per != _counted_in(reason):
            continue
        requested = job.amounts.get(name)
        if requested is None or (per and job.minutes is None):
            continue
        if per and job.minutes is not None:
            requested *= job.minutes
        over = OverLimit(limit.holder, limit.what, requested, float(limit.allowed), limit.whose)
        tried.setdefault(limit.what, []).append(over)
    for several in tried.values():
        if all(over.requested > over.allowed for over in several):
            return max(several, key=lambda over: over.allowed)
    return None


def _resource_of(reason: str) -> str | None:
    for part, resource in _RESOURCES.items():
        if part in reason:
            return resource
    return None


def _counted_in(reason: str) -> str:
    """Return the end of the name of a limit that is counted in minutes; empty for others."""
    if "RunMinutes" in reason:
        return "minutes reserved by running jobs"
    if "Minutes" in reason:
        return "minutes"
    return ""
