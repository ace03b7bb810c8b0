"""The supervisor of one local job: ``supervisor.py RUN_FOLDER LIMIT_S WARN_S [ELEMENTS AT_ONCE]``.

It starts the script, and restarts it if the script requests this. It records how the script ended,
warns before the time limit and enforces it, and leaves no process of the job behind. For a sweep,
every element has a supervisor, and another one starts these.

It uses only the standard library and imports nothing of hpcrun: it is run by its path and outlives
its starter.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# The paths below a run's folder, as in job/run_paths.py.
RECORD = "supervisor.json"
READY = "submit.ready"
CALLED = "submit.called"
SCRIPT = "script.sh"
BATCH_LOG = "batch.log"
TASK_LOG = "batch/{}.log"
ELEMENT = "elements/{}"
CANCELLED = "cancelled"
ATTEMPTS = "elements/{}/attempts"
EXIT = "elements/{}/attempts/{}/exit"
GRACE_S = 10.0  # seconds between SIGTERM and SIGKILL for the ranks

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def boot_id() -> str:
    """Return an id of this boot of this machine; process ids are valid only for one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def start_ticks(pid: int) -> int | None:
    """Return when a running process started, in clock ticks since boot.

    Returns None if the process has ended or is a zombie. Together with the pid the time identifies
    a process, since pids are reused.

    Raises:
        OSError: the process cannot be checked: too many open files, no memory. It may be running.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        # ended before the file was opened, or while it was read
        return None
    # the command before it may contain any text; see proc(5)
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def lives(pid: int, started_ticks: int | None) -> bool:
    """Whether a process with this start time exists; assumed if it cannot be checked."""
    try:
        return started_ticks is not None and start_ticks(pid) == started_ticks
    except OSError:
        return True


def _write(folder: Path, record: dict[str, Any]) -> None:
    aside = folder / f".{RECORD}"
    aside.write_text(json.dumps(record) + "\n", "utf-8")
    aside.replace(folder / RECORD)


def _descendants() -> list[int]:
    """Return every living descendant of this process.

    As subreaper, this process inherits the orphans of the job.
    """
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_bytes()
        except OSError:
            continue
        state, parent = stat.rpartition(b")")[2].split()[:2]
        if state not in (b"Z", b"X"):
            children.setdefault(int(parent), []).append(int(entry))
    descendants = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        descendants += below
        queue += below
    return descendants


def _signal_all(number: int) -> bool:
    pids = _descendants()
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return bool(pids)


def _clear_away() -> None:
    """End all remaining processes of the job, like Slurm at the end of a job."""
    deadline = time.monotonic() + GRACE_S
    _signal_all(signal.SIGTERM)
    while _signal_all(0) and time.monotonic() < deadline:
        time.sleep(0.05)
    while _signal_all(signal.SIGKILL):
        time.sleep(0.05)


def _newest(folder: Path, element: int) -> int:
    """Return the number of the newest attempt of an element; -1 where none has started.

    A script may make several attempts.
    """
    try:
        names = os.listdir(folder / ATTEMPTS.format(element))
    except OSError:
        return -1
    numbers = [int(name) for name in names if re.fullmatch("[0-9]{1,7}", name)]
    return max(numbers, default=-1)


def _again(folder: Path, element: int, attempt: int) -> bool:
    """Return whether the script's exit record asks for another attempt.

    The script would ask Slurm for it with scontrol requeue.
    """
    path = folder / EXIT.format(element, attempt)
    try:
        # never wait for a FIFO
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            record = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(record, dict):
        return False
    return record.get("again") is True and record.get("how") != "restart"


def _may_start(folder: Path) -> bool:
    """Take over the claim to submit; a run whose claim is revoked is not started."""
    try:
        (folder / READY).rename(folder / CALLED)
    except FileNotFoundError:
        return False
    return True


def _new_record(limit_s: int, job_id: str | None = None) -> dict[str, Any]:
    pid = os.getpid()
    return {
        "job_id": job_id or f"L{pid}",
        "pid": pid,
        "start_ticks": start_ticks(pid),
        "boot_id": boot_id(),
        "host": socket.gethostname(),
        "started": time.time(),
        "limit_s": limit_s,
    }


def _take_orphans_and_term() -> list[str]:
    """Become the parent of the job's orphans.

    Returns:
        a list that fills when this process gets SIGTERM.
    """
    import ctypes  # only here: hpcrun status imports the functions above, too

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ended_by: list[str] = []
    signal.signal(signal.SIGTERM, lambda _number, _frame: ended_by.append("CANCELLED"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # see _start_element
    return ended_by


def supervise(
    folder: Path, limit_s: int, warn_s: int, element: int | None = None, job_id: str | None = None
) -> bool:
    """Run ``folder/script.sh`` to its end; return whether the script completed.

    The end is recorded in ``supervisor.json``.

    Args:
        folder: the folder of the run.
        limit_s: seconds that each attempt may take, 0 for no limit.
        warn_s: seconds between SIGUSR1 and the limit, 0 for no warning.
        element: the element of a sweep, whose record is in its own folder; None for an ordinary
            job.
        job_id: the id of the job; None to make one.
    """
    ended_by = _take_orphans_and_term()
    record = _new_record(limit_s, job_id)
    home = folder
    log_path = folder / BATCH_LOG
    env = {**os.environ, "HPCRUN_JOB_ID": record["job_id"]}
    if element is not None:
        home = folder / ELEMENT.format(element)
        home.mkdir(parents=True, exist_ok=True)
        task_log = folder / TASK_LOG.format(element)
        if task_log.parent.is_dir():  # a sweep has one for each element
            log_path = task_log
        env["HPCRUN_ELEMENT"] = str(element)
    attempt = 0
    requeues = 0
    while True:
        env["HPCRUN_ATTEMPT"] = str(attempt)
        env["HPCRUN_REQUEUES"] = str(requeues)
        script = _start_script(folder, log_path, env)
        record["started"] = time.time()
        _write(home, record)
        status = _wait(script, ended_by, record["started"], limit_s, warn_s)
        _clear_away()
        attempt = _newest(folder, element or 0)
        if ended_by or not _again(folder, element or 0, attempt):
            break
        attempt += 1
        requeues += 1
    if log_path.parent != folder and not log_path.stat().st_size:
        log_path.unlink()  # of this element alone: one file less for each
    end = _end_of(status, ended_by, limit_s)
    _write(home, {**record, **end})
    return bool(end["state"] == "COMPLETED")


def _start_script(folder: Path, log_path: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the script of a run, whose output is added to a log."""
    argv = ["bash", str(folder / SCRIPT)]
    with log_path.open("ab") as log:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, umask=_umask
        )


def _end_of(status: int, ended_by: list[str], limit_s: int) -> dict[str, Any]:
    """Return the part of a record that says how the script ended.

    Args:
        status: the status of the script in Popen's form.
        ended_by: the state of a job that was ended, ``CANCELLED`` or ``TIMEOUT``; empty if the
            script ended by itself.
        limit_s: the time limit of the job, in seconds.
    """
    end: dict[str, Any] = {"status": status, "signal": None}
    if status < 0:
        end = {"status": 128 - status, "signal": -status}
    end["state"] = _state(ended_by, succeeded=status == 0)
    end["reason"] = None
    if end["state"] == "TIMEOUT":
        end["reason"] = f"over its time limit of {limit_s} s"
    end["ended"] = time.time()
    return end


def _state(ended_by: list[str], *, succeeded: bool) -> str:
    if ended_by:
        return ended_by[0]
    return "COMPLETED" if succeeded else "FAILED"


def supervise_sweep(
    folder: Path, limit_s: int, warn_s: int, elements: list[int], at_once: int
) -> None:
    """Run ``folder/script.sh`` once for each element, each with its own supervisor.

    Args:
        folder: the folder of the run.
        limit_s: seconds that each attempt of an element may take, as in ``supervise``.
        warn_s: seconds between SIGUSR1 and the limit for each element, as in ``supervise``.
        elements: the numbers of the elements to run.
        at_once: how many may run at the same time.
    """
    ended_by = _take_orphans_and_term()
    record = _new_record(limit_s)
    _write(folder, record)
    waiting = list(elements)
    living = set[int]()
    good = True
    passed_on = False
    while living or (waiting and not ended_by):
        while waiting and len(living) < at_once and not ended_by:
            element = waiting.pop(0)
            supervisor_pid = _start_element(folder, limit_s, warn_s, element, record["job_id"])
            if supervisor_pid is not None:
                living.add(supervisor_pid)
        if ended_by and not passed_on:
            passed_on = True
            for pid in living:
                os.kill(pid, signal.SIGTERM)
        if not living:
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in living:
            living.remove(pid)
            good = good and status == 0
        elif pid == 0:
            time.sleep(0.05)
    state = _state(ended_by, succeeded=good)
    _write(folder, {**record, "state": state, "ended": time.time()})


def _start_element(folder: Path, limit_s: int, warn_s: int, index: int, job_id: str) -> int | None:
    """Start the supervisor of one element, and return its process id.

    Returns None if the element was cancelled before.
    """
    home = folder / ELEMENT.format(index)
    own_id = f"{job_id}_{index}"
    if (home / CANCELLED).exists():
        _write(home, {**_new_record(limit_s, own_id), "state": "CANCELLED", "ended": time.time()})
        return None
    # Until the new process has its own handler, SIGTERM would be noted in the list of this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return pid
    status = 1
    try:
        if supervise(folder, limit_s, warn_s, index, own_id):
            status = 0
    finally:
        os._exit(status)


def _indices(text: str) -> list[int]:
    """Read ``0-3,7``."""
    indices: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        indices += range(int(first), int(last or first) + 1)
    return indices


def _wait(
    script: subprocess.Popen[bytes],
    ended_by: list[str],
    started: float,
    limit_s: int,
    warn_s: int,
) -> int:
    """Wait for the script; warn it, forward SIGTERM, then kill it.

    Return its status in Popen's form.
    """
    deadline: float | None = None
    warn_at: float | None = None
    insist_at: float | None = None
    if limit_s:
        deadline = started + limit_s
        if warn_s:
            warn_at = deadline - warn_s
    while True:
        try:
            return script.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            now = time.time()
        if warn_at is not None and now > warn_at:
            script.send_signal(signal.SIGUSR1)
            warn_at = None
        if deadline is not None and now > deadline and not ended_by:
            ended_by.append("TIMEOUT")
        if ended_by and insist_at is None:
            script.send_signal(signal.SIGTERM)
            insist_at = now + GRACE_S
        if insist_at is not None and now > insist_at:
            _signal_all(signal.SIGKILL)


if __name__ == "__main__":
    # a shell has started this program in the background: sh(1)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    _umask = os.umask(0o077)  # of the script
    os.umask(_umask | 0o022)  # no other user can write the records and the logs
    run_folder = Path(sys.argv[1])
    limits = (int(sys.argv[2]), int(sys.argv[3]))
    if not _may_start(run_folder):
        sys.exit("this run was abandoned before its start")
    if len(sys.argv) > 4:
        supervise_sweep(run_folder, *limits, _indices(sys.argv[4]), int(sys.argv[5]))
    else:
        supervise(run_folder, *limits)
