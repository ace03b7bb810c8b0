"""This machine as a scheduler: a supervisor per job, in a session of its own, that outlives the terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.errors import SchedulerError
from hpcrun.job import state
from hpcrun.job.state import JobInfo
from hpcrun.schedulers import supervisor
from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import start_detached
from hpcrun.schedulers.protocol import JobRef, Submission, Submitted

_START_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class LocalScheduler:
    """Runs each job in the background of this machine."""

    name: str = "local"

    def unavailable(self) -> str | None:
        """A machine that runs hpcrun can run a job."""
        return None

    def cluster(self) -> str | None:
        """Local job ids are unique on their host."""
        return None

    def submit(self, submission: Submission) -> Submitted:
        """Start a supervisor for the script.

        Raises:
            SchedulerError: the supervisor did not come up.
        """
        log = submission.folder / "supervisor.log"
        env = {**clean_env(submission.env), "HPCRUN_RUN_DIR": str(submission.folder)}
        # by path, not by module name: a plain checkout need not be on the job's PYTHONPATH
        argv = [sys.executable, supervisor.__file__, str(submission.folder), str(submission.walltime_s or 0)]
        try:
            start_detached(argv, cwd=submission.workdir, env=env, log=log)
        except OSError as error:
            raise SchedulerError(f"cannot start the job in {submission.workdir}: {error.strerror}") from None
        deadline = time.monotonic() + _START_WITHIN_S
        while (record := _read(submission.folder)) is None:
            if time.monotonic() > deadline:
                raise SchedulerError(f"the job's supervisor did not start:\n{log.read_text(errors='replace').strip()}")
            time.sleep(0.01)
        return Submitted(record["job_id"])

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Read what each supervisor wrote, and whether it still lives."""
        found = {job.folder: _read(job.folder) for job in jobs}
        return {folder: _info(record, time.time()) for folder, record in found.items() if record is not None}

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """Tell supervisors to end their jobs; they wait for the ranks, then kill what is left."""
        for job in jobs:
            record = _read(job.folder)
            if record is not None and "state" not in record and _alive(record):
                os.kill(record["pid"], signal.SIGTERM)


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / supervisor.RECORD).read_text("utf-8")))
    except (OSError, ValueError):
        return None


def _alive(record: dict[str, Any]) -> bool:
    same_boot: bool = record["boot_id"] == supervisor.boot_id()
    return same_boot and supervisor.start_ticks(record["pid"]) == record["start_ticks"]


def _info(record: dict[str, Any], now_s: float) -> JobInfo:
    ended_s = record.get("ended")
    reason = record.get("reason")
    if "state" in record:
        job_state = str(record["state"])
    elif _alive(record):
        job_state = state.RUNNING
    else:
        job_state, ended_s = state.NODE_FAIL, None
        rebooted = record["boot_id"] != supervisor.boot_id()
        reason = "this machine was restarted" if rebooted else "the job's supervisor was killed"
    elapsed = None if job_state == state.NODE_FAIL else int((ended_s or now_s) - record["started"])
    return JobInfo(
        record["job_id"],
        job_state,
        reason=reason,
        elapsed_s=elapsed,
        limit_s=record["limit_s"] or None,
        hosts=record["host"],
        exit_status=record.get("status"),
        signal=record.get("signal"),
    )
