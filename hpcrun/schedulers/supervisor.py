"""The supervisor of one local job: ``supervisor.py RUN_FOLDER LIMIT_S``.

It starts the script, records how it ended, enforces the time limit, and leaves no process of the job behind.
Standard library only, and no import of hpcrun: it is run by its path and outlives the program that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

RECORD = "supervisor.json"
GRACE_S = 10.0
"""How long ranks have to end after SIGTERM, in seconds, before SIGKILL."""

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def boot_id() -> str:
    """Return an id of this boot of this machine; process ids mean nothing after another."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def start_ticks(pid: int) -> int | None:
    """Return when a living process started, in clock ticks since boot; None for one that is gone or a zombie.

    Together with the pid it names a process for good: pids are used again.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # the command before it may hold anything; see proc(5)
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _write(folder: Path, record: dict[str, Any]) -> None:
    aside = folder / f".{RECORD}"
    aside.write_text(json.dumps(record) + "\n", "utf-8")
    aside.replace(folder / RECORD)


def _descendants() -> list[int]:
    """Return every process below this one; as subreaper it inherits the orphans of the job too."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_bytes()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _signal_all(number: int) -> bool:
    pids = [pid for pid in _descendants() if start_ticks(pid) is not None]
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return bool(pids)


def _clear_away() -> None:
    """End whatever the job left running, as Slurm does at the end of a job."""
    deadline = time.monotonic() + GRACE_S
    _signal_all(signal.SIGTERM)
    while _signal_all(0) and time.monotonic() < deadline:
        time.sleep(0.05)
    while _signal_all(signal.SIGKILL):
        time.sleep(0.05)


def supervise(folder: Path, limit_s: int) -> None:
    """Run ``folder/script.sh`` to its end and record it in ``folder/supervisor.json``."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    told: list[str] = []

    def on_term(_number: int, _frame: FrameType | None) -> None:
        told.append("CANCELLED")

    signal.signal(signal.SIGTERM, on_term)
    pid, started = os.getpid(), time.time()
    record: dict[str, Any] = {
        "job_id": f"L{pid}",
        "pid": pid,
        "start_ticks": start_ticks(pid),
        "boot_id": boot_id(),
        "host": socket.gethostname(),
        "started": started,
        "limit_s": limit_s,
    }
    env = {**os.environ, "HPCRUN_JOB_ID": record["job_id"]}
    with (folder / "batch.log").open("ab") as log:
        script = subprocess.Popen(
            ["bash", str(folder / "script.sh")], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
    _write(folder, record)
    status = _wait(script, told, started + limit_s if limit_s else None)
    _clear_away()
    ended = {"status": status if status >= 0 else 128 - status, "signal": -status if status < 0 else None}
    reason = {"TIMEOUT": f"over its time limit of {limit_s} s"}.get(told[0]) if told else None
    state = told[0] if told else "COMPLETED" if status == 0 else "FAILED"
    _write(folder, {**record, **ended, "state": state, "reason": reason, "ended": time.time()})


def _wait(script: subprocess.Popen[bytes], told: list[str], deadline: float | None) -> int:
    """Wait for the script; pass on the wish to end it, then insist. Returns its status as Popen gives it."""
    insist_at: float | None = None
    while True:
        try:
            return script.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            now = time.time()
        if deadline is not None and now > deadline and not told:
            told.append("TIMEOUT")
        if told and insist_at is None:
            script.send_signal(signal.SIGTERM)
            insist_at = now + GRACE_S
        if insist_at is not None and now > insist_at:
            _signal_all(signal.SIGKILL)


if __name__ == "__main__":
    if os.fork():  # the caller waits for this one only, and keeps no child
        os._exit(0)
    supervise(Path(sys.argv[1]), int(sys.argv[2]))
