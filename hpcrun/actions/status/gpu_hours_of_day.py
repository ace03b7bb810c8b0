"""The GPU-hours that runs have used in the last 24 hours, and those that they still reserve."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.past_jobs import PastJob, jobs_of_run, removed_runs, runs_since
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import HpcrunError, PlanError
from hpcrun.files import reading
from hpcrun.files.writing import flocked, make_folder
from hpcrun.job.run_paths import RUN_ID
from hpcrun.runs.action_log import read_actions
from hpcrun.runs.known_folders import note_folder
from hpcrun.runs.store import RunStore

DAY_S = 86400.0
_LOCK_WAIT_S = 60.0
_names = reading.list_of(reading.text)


class UnknownUseError(HpcrunError):
    """What may use more than is known; the hint says what to do about it."""


@contextmanager
def alone_in_day(ports: Ports, limiting: Path) -> Iterator[None]:
    """Let one process at a time check the limit of a day and record its runs.

    Args:
        ports: give the runs folder.
        limiting: the configuration folder of the limit.

    Raises:
        PlanError: another process has held the lock for a minute.
    """
    lists = reversed(ports.run_lists(limiting))  # the last one is the same for all processes
    locks = [path.with_suffix(".lock") for path in lists]
    with ExitStack() as held:
        is_free = True
        for lock in (*locks, ports.store.limits_lock):
            with suppress(OSError):  # a home that cannot be written
                make_folder(lock.parent, 0o700)
                is_free = held.enter_context(flocked(lock, _LOCK_WAIT_S))
                break
        if not is_free:
            raise PlanError(
                f"another hpcrun has submitted for more than a minute: it holds {lock}",
                hint="try again when it has ended",
            )
        yield


def hours_of_day(ports: Ports, limiting: Path) -> float:
    """Return the GPU-hours of the last 24 hours, with what pending and running jobs reserve.

    Args:
        ports: give the runs, the scheduler and the time.
        limiting: the configuration folder of the limit.

    Raises:
        UnknownUseError: the GPU-hours of a run are not known.
    """
    total = 0.0
    for folder in note_folder(ports.store.root, ports.run_lists(limiting)):
        try:
            total += _hours_in(replace(ports, store=RunStore(folder)))
        except UnknownUseError:
            raise
        except HpcrunError as error:
            why = error.message
            if error.hint:
                why += f"; {error.hint}"
            raise UnknownUseError(f"the runs in {folder}", hint=why) from None
    return total


def _hours_in(ports: Ports) -> float:
    """Return the GPU-hours of one runs folder.

    A run counts by its record and by the line in ``actions.jsonl`` of its submission: one of them
    may be damaged, or removed by hand.

    Raises:
        UnknownUseError: neither of them has the GPU-hours of a run.
    """
    store = ports.store
    since_s = ports.now_s() - DAY_S
    total = 0.0
    run_ids = [run_id for run_id in runs_since(store, since_s) if RUN_ID.fullmatch(run_id)]
    items = get_status(run_ids, ports).runs
    noted = _noted_hours(store, since_s)
    for removed in removed_runs(store):
        total += sum(_hours(job, since_s) for job in removed.jobs)
        noted.pop(removed.run_id, None)
    for item in items:
        jobs = jobs_of_run(item)
        total += sum(_hours(job, since_s) for job in jobs)
        at_most = noted.pop(item.run.run_id, None)
        if not item.status.final:
            total += _reserved(item, jobs, at_most)
    known = {item.run.run_id for item in items}
    for run_id in run_ids:
        folder = store.folder(run_id)
        if run_id not in known and run_id not in noted and os.path.lexists(folder):
            hint = f"its record cannot be read; mend or remove {folder}"
            raise UnknownUseError(f"run {run_id}", hint=hint)
    for run_id, hours in noted.items():
        if hours is None:
            hint = "it cannot be read, and counts for 24 hours"
            raise UnknownUseError(f"run {run_id}", hint=hint)
        total += hours
    return total


def _noted_hours(store: RunStore, since_s: float) -> dict[str, float | None]:
    """Return run → GPU-hours at most of the submissions since a time, None if not known."""
    noted: dict[str, float | None] = {}
    for line in read_actions(store.actions):
        if line.get("action") not in ("submit", "resubmit") or _is_before(line, since_s):
            continue
        hours = None
        with suppress(ValueError):
            hours = reading.hours(line.get("gpu_hours_with_requeues"))
        with suppress(ValueError):
            noted |= dict.fromkeys(_names(line.get("run_ids")), hours)
    return noted


def _is_before(line: dict[str, Any], since_s: float) -> bool:
    time_s = line.get("time_s")
    return isinstance(time_s, int | float) and time_s < since_s


def _reserved(item: RunStatus, jobs: Sequence[PastJob], noted: float | None) -> float:
    """Return the GPU-hours that a run may still use.

    Raises:
        UnknownUseError: neither its record nor the line of its submission has them.
    """
    recorded = item.run.gpu_hours_with_requeues
    if recorded is None and noted is None:
        run_id = item.run.run_id
        raise UnknownUseError(f"run {run_id}", hint=f"until it ends: hpcrun cancel {run_id}")
    at_most = max(recorded or 0.0, noted or 0.0)
    return max(0.0, at_most - sum(_hours(job, 0.0) for job in jobs))


def _hours(job: PastJob, since_s: float) -> float:
    """Return the GPU-hours of a job since a time."""
    seconds = sum(max(0.0, time.end_s - max(time.start_s, since_s)) for time in job.times)
    return seconds / 3600 * job.gpus
