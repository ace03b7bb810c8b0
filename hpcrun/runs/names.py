"""The names that hpcrun gives to what it makes in a runs folder. Nothing of another name is ever changed or deleted."""

from __future__ import annotations

import re

ACTIVE = "active"
"""The folder of the markers of runs that are not over."""
STUDIES = "studies"
"""The folder of scaling studies."""
JOBS = "jobs"
"""The folder of the index from job ids to runs."""

RUN_ID = re.compile(r"\d{8}-\d{6}-(?P<name>.+)-[0-9a-f]{4}", re.ASCII)
"""``YYYYMMDD-HHMMSS-name-xxxx``"""
JOB_ID = re.compile(r"L?\d{1,20}", re.ASCII)
"""Slurm's, or of a job of the local scheduler."""

_ASIDE = re.compile(rf"\.(?P<run_id>{RUN_ID.pattern.replace('?P<name>', '?:')})(?:\.gone)?", re.ASCII)
_ENTRY = re.compile(rf"(?P<job_id>{JOB_ID.pattern})\.(?P<run_id>{RUN_ID.pattern.replace('?P<name>', '?:')})", re.ASCII)


def run_name(run_id: str) -> str:
    """Return the name in a run id."""
    match = RUN_ID.fullmatch(run_id)
    return match["name"] if match else run_id


def making_name(run_id: str) -> str:
    """Return the name of a run's folder until it is whole."""
    return f".{run_id}"


def removing_name(run_id: str) -> str:
    """Return the name of a run's folder while it is being deleted."""
    return f".{run_id}.gone"


def aside_run_id(name: str) -> str | None:
    """Return the run whose folder has this name while it is made or deleted, None where it is no such name."""
    match = _ASIDE.fullmatch(name)
    return match["run_id"] if match else None


def job_entry_name(job_id: str, run_id: str) -> str:
    """Return the name of a run's entry in the index of job ids."""
    return f"{job_id}.{run_id}"


def parse_job_entry(name: str) -> tuple[str, str] | None:
    """Return the job id and the run id in the name of an entry of the index, None where it is no such name."""
    match = _ENTRY.fullmatch(name)
    return (match["job_id"], match["run_id"]) if match else None
