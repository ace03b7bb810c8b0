"""This machine as a scheduler: a supervisor per job.

The supervisor has its own session, which survives the end of the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import SchedulerError
from hpcrun.files.reading import (
    Kind,
    matching,
    optional,
    read_fields,
    read_object,
    text,
    time_s,
    whole,
)
from hpcrun.job import job_states
from hpcrun.job.job_states import JobInfo
from hpcrun.job.run_paths import JobFolder, RunFolder
from hpcrun.job.text.units import index_ranges
from hpcrun.machine.clean_environment import clean_env, env_of_caller, is_inside_job
from hpcrun.machine.process import leave_running
from hpcrun.schedulers import supervisor
from hpcrun.schedulers.protocol import JobRef, Scheduler, Submission, SubmittedJob, Verb

if TYPE_CHECKING:
    from hpcrun.job.resources.cpus_memory_time import Machine

_START_WITHIN_S = 20.0
# With a pid of 0 or -1 os.kill would signal many processes, and "no ticks" would mean an ended
# process.
_RECORD: dict[str, Kind] = {
    "job_id": matching(r"L\d{1,10}(_\d{1,7})?", "a local job id"),
    "pid": whole(2, 2**31),
    "start_ticks": whole(0, 10**18),
    "boot_id": text,
    "host": text,
    "started": time_s,
    "limit_s": whole(0, 10**10),
    "state": matching(r"[A-Z_]{1,40}", "a state"),
    "ended": time_s,
    "status": optional(whole(0, 10**6)),
    "signal": optional(whole(0, 1000)),
    "reason": optional(text),
}
_NEEDED = ("job_id", "pid", "start_ticks", "boot_id", "host", "started", "limit_s")


class LocalScheduler(Scheduler):
    """Runs each job in the background of this machine."""

    name = "local"

    def submit(self, submission: Submission) -> SubmittedJob:
        """Start a supervisor for the script.

        Raises:
            SchedulerError: the job cannot be started, or its supervisor does not start in time.
        """
        log = RunFolder(submission.folder).supervisor_log
        if submission.called_in and not is_inside_job(submission.env):
            env = env_of_caller(submission.env)
        else:
            env = clean_env(submission.env)
        env["HPCRUN_RUN_DIR"] = str(submission.folder)
        # by path, not by module name: hpcrun may not be on the job's PYTHONPATH
        argv = [sys.executable, supervisor.__file__, str(submission.folder)]
        argv += [str(submission.walltime_s or 0), str(submission.warn_s or 0)]
        if submission.elements:
            argv += [index_ranges(submission.elements), str(submission.max_parallel or 1)]
        try:
            leave_running(argv, cwd=submission.workdir, env=env, log=log)
        except OSError as error:
            raise SchedulerError(
                f"cannot start the job in {submission.workdir}: {error.strerror}"
            ) from None
        deadline = time.monotonic() + _START_WITHIN_S
        while (record := _read(submission.folder)) is None:
            if time.monotonic() > deadline:
                output = log.read_text(errors="replace").strip()
                raise SchedulerError(f"the job's supervisor did not start:\n{output}")
            time.sleep(0.01)
        return SubmittedJob(record["job_id"])

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Read each supervisor's record, and whether it still runs."""
        now_s = time.time()
        infos = {}
        for job in jobs:
            info = look_at(job, now_s)
            if info is not None:
                infos[job.folder] = info
        return infos

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        """Terminate jobs through their supervisors.

        A supervisor waits for the ranks and then kills the rest.

        Raises:
            SchedulerError: the jobs are not to be cancelled, but held or released.
        """
        if verb != "cancel":
            raise SchedulerError(
                "jobs on this machine start at once: they cannot be held", hint="hpcrun cancel RUN"
            )
        for job in jobs:
            record, lives = _current(job.folder)
            if record is not None and lives:
                with suppress(ProcessLookupError):  # it has ended since
                    os.kill(record["pid"], signal.SIGTERM)


def _read(folder: Path) -> dict[str, Any] | None:
    """Return the record of a supervisor, None if there is none, or if it cannot be trusted."""
    try:
        data = read_object(JobFolder(folder).supervisor_record)
        return read_fields(data, _RECORD, _NEEDED)[0]
    except (OSError, ValueError):
        return None


def look_at(job: JobRef, now_s: float) -> JobInfo | None:
    """Return the job's information from its supervisor, None if no supervisor has started."""
    record, lives = _current(job.folder)
    if record is not None:
        return _info(record, now_s, lives=lives)
    folder = JobFolder(job.folder)
    if not folder.is_element:
        return None
    # an element that has not started: it will, while the supervisor of the sweep runs
    sweep, sweep_lives = _current(folder.run)
    if sweep is None or job.job_id is None:
        return None
    if not sweep_lives:  # it may have started and ended before the sweep ended
        record, lives = _current(job.folder)
        if record is not None:
            return _info(record, now_s, lives=lives)
    if folder.cancelled.exists():
        return JobInfo(job.job_id, job_states.CANCELLED)
    if sweep_lives:
        return JobInfo(job.job_id, job_states.PENDING, reason="waits for its turn")
    info = _info(sweep, now_s, lives=False)
    if info.state == job_states.NODE_FAIL:
        over = job_states.NODE_FAIL
    else:
        over = job_states.CANCELLED
    return JobInfo(job.job_id, over, reason=info.reason)


def _current(folder: Path) -> tuple[dict[str, Any] | None, bool]:
    """Return a supervisor's record, and whether the supervisor still runs.

    A supervisor writes its last record before it ends: so if it has ended after the first reading,
    read again; if it was killed, there is no last record.
    """
    record = _read(folder)
    if record is None or "state" in record:
        return record, False
    if _alive(record):
        return record, True
    return _read(folder), False


def _alive(record: dict[str, Any]) -> bool:
    same_boot: bool = record["boot_id"] == supervisor.boot_id()
    return same_boot and supervisor.lives(record["pid"], record["start_ticks"])


def _info(record: dict[str, Any], now_s: float, *, lives: bool) -> JobInfo:
    ended_s = record.get("ended")
    reason = record.get("reason")
    if "state" in record:
        job_state = str(record["state"])
    elif lives:
        job_state = job_states.RUNNING
    else:
        job_state = job_states.NODE_FAIL
        ended_s = None
        rebooted = record["boot_id"] != supervisor.boot_id()
        if rebooted:
            reason = job_states.RESTARTED_HERE
        else:
            # it was killed, or could not write: a full disk leaves the same
            reason = "the job's supervisor left no record of its end"
    if job_state == job_states.NODE_FAIL:
        elapsed = None
    else:
        elapsed = int((ended_s or now_s) - record["started"])
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


def this_machine(env: Mapping[str, str]) -> Machine:
    """Return the CPUs that this process may use and the GPUs that it can see.

    CUDA_VISIBLE_DEVICES counts if it is set; otherwise nvidia-smi lists the GPUs; without it there
    are none.
    """
    from hpcrun.job.resources.cpus_memory_time import (
        Machine,  # it loads the plan, which status does not need
    )
    from hpcrun.machine.host import query_gpus

    cpus = len(os.sched_getaffinity(0))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        devices = [item.strip() for item in visible.split(",")]
        return Machine(cpus, tuple(device for device in devices if device))
    gpus = query_gpus("index", env, timeout_s=20)
    return Machine(cpus, tuple(gpus) if isinstance(gpus, list) else ())
