"""The index from job ids to runs: an empty file ``jobs/4711.RUNID`` for each run whose job id is known.

An entry is only a hint: a run that is found by it must have the job id in its own record. Runs without an entry are
    read, so that runs without an index, or whose entry could not be written, are found, too. One file for
each run needs no lock: clusters that share a home may give the same id to two jobs at the same moment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpcrun.job.layout import JOB_ID, RunsFolder, parse_job_entry


def note_job(root: Path, job_id: str, run_id: str) -> None:
    """Add the job id of a run. If this cannot be written, finding the run takes longer."""
    if not JOB_ID.fullmatch(job_id):
        return
    runs = RunsFolder(root)
    with suppress(OSError):
        runs.jobs.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        os.close(os.open(runs.job_entry(job_id, run_id), flags, 0o600))


def noted_jobs(root: Path) -> Mapping[str, frozenset[str]]:
    """Return run id → job ids in the index; empty if there is no index."""
    found: dict[str, frozenset[str]] = {}
    with suppress(OSError):
        for name in os.listdir(RunsFolder(root).jobs):
            if entry := parse_job_entry(name):
                job_id, run_id = entry
                found[run_id] = found.get(run_id, frozenset()) | {job_id}
    return found


def forget_jobs(root: Path, run_id: str) -> None:
    """Remove a run from the index."""
    for job_id in noted_jobs(root).get(run_id, ()):
        with suppress(OSError):
            RunsFolder(root).job_entry(job_id, run_id).unlink(missing_ok=True)
