"""Finds the run of a job that Slurm lists. Pure.

A job id is not enough: ids start again after MaxJobId (slurm.conf(5)), and after a controller has lost its state. The
script identifies the run: it is in the run's folder, whose name is the run's id, and squeue's Command and sacct's
SubmitLine contain its path. No two runs have the same id, so the time of submission is not needed.

A job whose script is not in a run's folder, such as a job of ``sbatch --wrap``, belongs to no run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hpcrun.job.layout import SUBMISSION_FILE, JobFolder
from hpcrun.job.state import JobInfo
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.slurm_text import array_id, by_job_id

_SCRIPT = re.compile(r"/([^/\s]+)/" + re.escape(SUBMISSION_FILE))


def run_id_of_job(info: JobInfo) -> str | None:
    """Return the id of a job's run, None if it belongs to no run."""
    return run_id_of_line(info.script or "")


def run_id_of_line(command: str) -> str | None:
    """Return the id of the run whose script a command line submits, None if it belongs to no run."""
    match = _SCRIPT.search(command)
    return match[1] if match else None


def run_id_of_folder(folder: Path) -> str:
    """Return the id of the run whose folder this is, or the folder of one of its elements."""
    return JobFolder(folder).run.name


def jobs_of_runs(listed: Iterable[JobInfo], jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
    """Choose from the jobs that Slurm lists those asked about.

    Args:
        listed: as squeue or sacct lists them; of several with an id the last is taken.

    Returns:
        folder → its job; a job that is not listed is left out, and so is one that only has the same id.
    """
    asked = {run_id_of_folder(job.folder) for job in jobs}  # others have arrays of thousands of elements as well
    by_run: dict[str, list[JobInfo]] = {}
    for info in listed:
        if (run_id := run_id_of_job(info)) in asked:
            by_run.setdefault(str(run_id), []).append(info)
    by_id = {run_id: by_job_id(infos) for run_id, infos in by_run.items()}
    found: dict[Path, JobInfo] = {}
    for job in jobs:
        run_id = run_id_of_folder(job.folder)
        if job.job_id is None:
            if mine := by_run.get(run_id):
                found[job.folder] = replace(mine[-1], job_id=array_id(mine[-1].job_id))
        elif job.job_id in (known := by_id.get(run_id, {})):
            found[job.folder] = known[job.job_id]
    return found
