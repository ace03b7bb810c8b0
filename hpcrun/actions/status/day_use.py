"""The GPU-hours that runs have used in the last 24 hours, and those that they still reserve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.past_jobs import PastJob, jobs_of_run, removed_runs, runs_since
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import HpcrunError
from hpcrun.runs.known_folders import note_folder
from hpcrun.runs.store import RunStore

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class DayUse:
    """The GPU-hours of a day.

    Attributes:
        hours: those that are used or still reserved.
        unknown: what has not ended, and may use more than is known; empty if all is known.
    """

    hours: float
    unknown: str = ""


def hours_of_day(ports: Ports, limiting: Path) -> DayUse:
    """Return the GPU-hours of the last 24 hours, with what pending and running jobs reserve.

    Args:
        ports: give the runs, the scheduler and the time.
        limiting: the configuration folder of the limit.
    """
    total = 0.0
    for folder in note_folder(ports.store.root, ports.run_lists(limiting)):
        try:
            use = _hours_in(replace(ports, store=RunStore(folder)))
        except HpcrunError:
            return DayUse(total, f"runs in {folder}")
        total += use.hours
        if use.unknown:
            return DayUse(total, use.unknown)
    return DayUse(total)


def _hours_in(ports: Ports) -> DayUse:
    """Return the GPU-hours of one runs folder."""
    since_s = ports.now_s() - DAY_S
    total = 0.0
    result = get_status(runs_since(ports.store, since_s), ports)
    for item in result.runs:
        jobs = jobs_of_run(item)
        total += sum(_hours(job, since_s) for job in jobs)
        if item.status.final:
            continue
        reserved = _reserved(item, jobs)
        if reserved is None:
            return DayUse(total, f"run {item.run.run_id}")
        total += reserved
    for run in removed_runs(ports.store):
        total += sum(_hours(job, since_s) for job in run.jobs)
    return DayUse(total)


def _reserved(item: RunStatus, jobs: list[PastJob]) -> float | None:
    """Return the GPU-hours that a run may still use; None if they are not known."""
    at_most = item.run.gpu_hours_with_requeues
    if at_most is None:
        return None
    return max(0.0, at_most - sum(_hours(job, 0.0) for job in jobs))


def _hours(job: PastJob, since_s: float) -> float:
    """Return the GPU-hours of a job since a time."""
    seconds = sum(max(0.0, time.end_s - max(time.start_s, since_s)) for time in job.times)
    return seconds / 3600 * job.gpus
