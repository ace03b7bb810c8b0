"""What the listener of ``hpcrun dev`` watches: whether its job is used, and when it ends.

A job is used while there is a connection, a terminal in another step, a process of its users that
computes, or a busy GPU. Standard library of Python 3.9, beside hpcrun_dev.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = "idle-limit"
"""The file with the limit that ``hpcrun dev RUN --idle TIME`` has set."""
LOOK_S = 15.0
"""Seconds between two looks at the use of the job."""
NOTICE_S = 600.0
TIME_NOTICES = (900, 300)
"""Seconds before the time limit at which its users are warned."""
ASK_S = (60.0, 300.0)
"""Seconds between two questions to Slurm for the time limit: near it, and far from it."""
BUSY_CPU = 0.05
BUSY_GPU = 0.01
"""A larger share of one CPU, or of the time of a GPU, counts as use; the second as in
in_job/launch/per_job/idle_watch.py.
"""
CHUNK = 64 * 1024


def read_json(path: str) -> dict[str, Any]:
    """Return the content of a file of this program; empty without one."""
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return {}


def write_json(path: str, content: object) -> None:
    """Replace a file that only this user can read."""
    aside = f"{path}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(content, file)
    os.replace(aside, path)


def log(message: str) -> None:
    """Write a line into the log of the job."""
    sys.stdout.write(f"hpcrun: {message}\n")
    sys.stdout.flush()


class Watch:
    """Whether the job is used, and when the job ends.

    The users of the job are warned on their terminals and in the job's log.
    """

    def __init__(self, folder: str, idle_s: float) -> None:
        self._folder = folder
        self._idle_s = idle_s
        self._job = b"SLURM_JOB_ID=" + os.environ.get("SLURM_JOB_ID", "-").encode() + b"\0"
        self._step = b"SLURM_STEP_ID=" + os.environ.get("SLURM_STEP_ID", "-").encode() + b"\0"
        # the job's script, hpcrun's own programs, this one
        self._own = set(job_processes(self._job))
        self._cpu: dict[int, float] = {}
        self._used_at = time.time()
        self._looked_at = self._used_at
        self._look_at = 0.0
        self._ask_at = 0.0
        self._warned = False
        self._notices: list[int] | None = None
        self._period_s = min(LOOK_S, idle_s / 8) if idle_s else LOOK_S

    def is_over(self, connections: int) -> bool:
        """Look from time to time; return whether the job ends, since it is unused."""
        now = time.time()
        if now < self._look_at:
            return False
        self._look_at = now + self._period_s
        processes = job_processes(self._job)
        self._watch_time(now, processes)
        limit_s = self._limit_s()
        if not limit_s:
            return False
        if connections or self._is_used(now, processes):
            self._used_at = now
        self._looked_at = now
        self._used_at = max(self._used_at, gpu_used_at())
        return self._judge(now - self._used_at, limit_s, processes)

    def _limit_s(self) -> float:
        """Return the limit, which ``hpcrun dev RUN --idle TIME`` may have changed."""
        limit_s = read_json(os.path.join(self._folder, LIMIT)).get("seconds", self._idle_s)
        if isinstance(limit_s, (int, float)) and self._idle_s:
            return float(limit_s)
        return self._idle_s

    def _judge(self, idle_s: float, limit_s: float, processes: dict[int, bytes]) -> bool:
        # as in_job/launch/per_job/idle_watch.py writes it
        record = os.path.join(os.environ["HPCRUN_ATTEMPT_DIR"], "idle")
        notice_s = min(NOTICE_S, limit_s / 3)
        if idle_s < limit_s - notice_s:
            if self._warned:
                self._warned = False
                os.unlink(record)
            return False
        now = time.time()
        left_s = limit_s - idle_s
        if not self._warned:
            self._warned = True
            left_s = max(left_s, notice_s)
            # it never ends sooner after the warning than the warning says
            self._used_at = now + left_s - limit_s
            write_json(record, {"since": now - idle_s, "warned": now, "ends": now + left_s})
            self._warn(
                f"this job is unused since {minutes(idle_s)}: it ends in {minutes(left_s)}. To "
                "keep it, use "
                "it, or: hpcrun dev JOB --idle 3h",
                processes,
            )
            return False
        if left_s <= 0:
            log(f"this job was unused for {minutes(limit_s)} (--idle): it ends")
        return left_s <= 0

    def _is_used(self, now: float, processes: dict[int, bytes]) -> bool:
        """Whether a process of its users uses a CPU, or a step of the job has a terminal."""
        used = 0.0
        has_terminal = False
        cpu: dict[int, float] = {}
        for pid, environ in processes.items():
            if pid in self._own:
                continue
            ticks, terminal = cpu_and_terminal(pid)
            cpu[pid] = ticks / os.sysconf("SC_CLK_TCK")
            used += cpu[pid] - self._cpu.get(pid, 0.0)
            has_terminal |= bool(terminal) and self._step not in environ
        self._cpu = cpu
        return has_terminal or used > BUSY_CPU * max(1.0, now - self._looked_at)

    def _watch_time(self, now: float, processes: dict[int, bytes]) -> None:
        """Warn before the time limit, which only the cluster's administrators can extend."""
        if now < self._ask_at:
            return
        left_s = time_left()
        near_s, far_s = ASK_S
        is_near = left_s is not None and left_s < TIME_NOTICES[0] + 2 * far_s
        self._ask_at = now + (near_s if is_near else far_s)
        if left_s is None:
            return
        if self._notices is None:
            self._notices = [notice for notice in TIME_NOTICES if notice < left_s]
        due = [notice for notice in self._notices if left_s <= notice + near_s / 2]
        self._notices = [notice for notice in self._notices if notice not in due]
        if due:
            job = os.environ["SLURM_JOB_ID"]
            self._warn(
                f"job {job} ends in {minutes(left_s)}, at its time limit, which the cluster's "
                "administrators "
                f"can extend: scontrol update jobid={job} timelimit=+60. The next one, which "
                "starts then: "
                f"hpcrun resubmit {job} --force --after {job}:any",
                processes,
            )

    def _warn(self, message: str, processes: dict[int, bytes]) -> None:
        message = message.replace("JOB", os.environ.get("SLURM_JOB_ID", "JOB"))
        log(message)
        for terminal in {terminal_of(pid) for pid in processes} - {""}:
            try:
                descriptor = os.open(terminal, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                os.write(descriptor, f"\r\nhpcrun: {message}\r\n".encode())
                os.close(descriptor)
            except OSError:
                continue  # just closed


def job_processes(job: bytes) -> dict[int, bytes]:
    """Return the processes of this user and job on this node, each with its environment."""
    processes = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                with open(f"/proc/{name}/environ", "rb") as file:
                    environ = file.read() + b"\0"
                if job in environ:
                    processes[int(name)] = environ
        except OSError:  # it has ended, or hides its environment as ssh-agent does
            continue
    return processes


def cpu_and_terminal(pid: int) -> tuple[int, int]:
    """Return the clock ticks of a process and the number of its terminal: proc(5).

    The clock ticks include those of the process's ended children.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])), int(fields[4])
    except (OSError, ValueError, IndexError):
        return 0, 0


def terminal_of(pid: int) -> str:
    """Return the path of the terminal from which a process reads; empty without one."""
    try:
        path = os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return ""
    return path if path.startswith("/dev/pts/") else ""


def gpu_used_at() -> float:
    """Return when the job last used a GPU of any node; 0 if there is no such time.

    The times come from the samples of hpcrun/in_job/launch.
    """
    folder = os.environ["HPCRUN_ATTEMPT_DIR"]
    used_at = 0.0
    for name in os.listdir(folder):
        if not (name.startswith("node-") and name.endswith(".use")):
            continue
        for line in last_samples(os.path.join(folder, name)):
            try:
                sample = json.loads(line)
                if max(float(gpu[1]) for gpu in sample["gpus"]) > BUSY_GPU:
                    used_at = max(used_at, float(sample["time"]))
            except (ValueError, TypeError, KeyError, IndexError):
                # the first line of a node, or one that was cut
                continue
    return min(used_at, time.time())


def last_samples(path: str) -> list[bytes]:
    """Return the last lines of a node's samples; none if the file cannot be read now."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - CHUNK))
            return file.read().splitlines()
    except OSError:  # such as ESTALE of NFS: the next look reads them
        return []


def time_left() -> float | None:
    """Return the seconds before the job's time limit, None if Slurm does not say so."""
    argv = ["squeue", "--noheader", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}", "--format=%L"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=20, check=False, env=plain
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if "SLURM_JOB_ID" in os.environ:
        return parse_time_left(done.stdout.strip())
    return None


def parse_time_left(text: str) -> float | None:
    """Read squeue's ``[DAYS-]HOURS:MINUTES:SECONDS``; None for UNLIMITED and the like."""
    days, _, rest = text.rpartition("-")
    try:
        seconds = 0
        for part in rest.split(":"):
            seconds = seconds * 60 + int(part)
        return float(int(days or 0) * 86400 + seconds)
    except ValueError:
        return None


def minutes(seconds: float) -> str:
    """Return a time in words."""
    if seconds >= 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds)} s"
