"""A pending run of the same command, which a script or a person may have submitted by mistake."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hpcrun.actions.jobs.new_run import run_record
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import HpcrunError
from hpcrun.job.job_states import PENDING
from hpcrun.runs.attempt import has_started
from hpcrun.runs.record import Run

_MOST = 20
"""So many runs are read, the newest of the same name that have not ended."""


def same_remark(
    prepared: Prepared, run_ids: Sequence[str], ports: Ports, surroundings: Surroundings
) -> str:
    """Return the remark that the same command is pending already; empty if it is not.

    Args:
        prepared: the job that is submitted.
        run_ids: the runs of the same name that have not ended, the newest last.
        ports: give the store of runs and the schedulers.
        surroundings: the folder and the environment of the submission.
    """
    same = _same_pending(prepared, run_ids, ports, surroundings)
    if same is None:
        return ""
    cancels = f"hpcrun cancel {same.job_id}, if one is enough"
    return f"the same command is pending as job {same.job_id}: {cancels}"


def _same_pending(
    prepared: Prepared, run_ids: Sequence[str], ports: Ports, surroundings: Surroundings
) -> Run | None:
    """Return the newest pending run of the same command in the same folder, None if none is.

    Slurm is asked, by a question that polls share, only if there is a run that has not started.
    """
    wanted = _command_of(run_record(prepared, ports, surroundings))
    same = []
    for run_id in run_ids[-_MOST:]:
        try:
            run = ports.store.load(run_id)
        except HpcrunError:  # it is damaged, or has just been removed
            continue
        if _command_of(run) == wanted and not has_started(ports.store.folder(run_id)):
            same.append(run_id)
    for item in reversed(get_status(same, ports.for_polling()).runs):
        if item.status.state == PENDING and item.run.job_id and not item.stale:
            return item.run
    return None


def _command_of(run: Run) -> str:
    """Return what decides what a run does, as a text that can be compared."""
    batch: Any = run.plan.get("batch") or {}
    command = [run.request, run.cwd, run.profile, run.scheduler, batch.get("text")]
    return json.dumps(command, sort_keys=True, default=str)
