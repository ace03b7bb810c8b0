"""``launch receive [--remove]``: one node's copy of the data of --stage, on its own disk.

stage.py sends the parts of a tar into a folder beside the copy. Each part is given to a tar here, and a line tells the
head node what is done. The copy is complete or missing: it gets its name, HPCRUN_STAGE, when all of it is there. The
job removes it at its end, its node after SIGTERM, and after all were killed, the next job of the same user that
copies data to this node.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress

from . import records, slurm
from .node_folder import is_shared

STAGE, PREFIX = "HPCRUN_STAGE", "hpcrun-stage-"
"""The variable with the folder of the copy, and how its name begins; the job id follows."""
PART = 64 << 20
"""The bytes of a part; only the last one is smaller."""
POLL_S = 0.02


class StageError(Exception):
    """The data cannot be copied; the message says why."""


def main(arguments: list[str]) -> int:
    """Receive the data, or remove it; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    if arguments:
        remove()
        return 0
    return _receive()


def remove_after_signal() -> None:
    """Remove the copy on this node, as its last process after SIGTERM; a script may go on without its ranks."""
    if "HPCRUN_LAUNCH" not in os.environ:
        remove()


def remove(path: str | None = None) -> None:
    """Remove the copy on this node, or what is left of one."""
    for each in [path] if path else [os.environ[STAGE] + ending for ending in ("", ".part", ".send")]:
        if is_own_folder(each):
            shutil.rmtree(each, ignore_errors=True)  # noqa: TID251 - the copy of this job


def is_own_folder(path: str) -> bool:
    """Whether a path is a folder of this user, and no link to one."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def _receive() -> int:
    """Receive the parts on this node, and print a line for what the head node waits for."""
    folder = os.environ[STAGE]
    if is_own_folder(folder):
        return _tell("has", "")
    inbox, place = folder + ".part", os.path.dirname(folder)
    try:
        if is_shared(place):
            raise StageError(
                f"{place} is no disk of its own; --env HPCRUN_STAGE_DIR=/path names one that each node has"
            )
        _sweep(place)
        remove(inbox)
        data = os.path.join(inbox, "data")
        os.mkdir(inbox, 0o700)
        os.mkdir(data, 0o700)
        room = os.statvfs(place)
        _tell("room", f"{room.f_bavail * room.f_frsize} {os.environ.get('SLURM_STEP_ID', '')}")
        _unpack(inbox, data)
        os.rename(data, folder)
        return 0
    except (StageError, OSError) as error:
        _tell("failed", " ".join(str(error).splitlines()))
        return 1
    finally:
        remove(inbox)


def _tell(kind: str, text: str) -> int:
    node = os.environ.get("SLURMD_NODENAME") if "SLURM_STEP_ID" in os.environ else None
    sys.stdout.write(f"{node or os.environ.get('HPCRUN_NODE')} {kind} {text}\n")
    sys.stdout.flush()
    return 0


def _unpack(inbox: str, data: str) -> None:
    tar = subprocess.Popen(["tar", "--extract", "--file=-", f"--directory={data}"], stdin=subprocess.PIPE)
    assert tar.stdin is not None
    number, size, parent = 0, PART, os.getppid()
    try:
        while size == PART:
            path, size = _next_part(inbox, number, parent)
            with open(path, "rb") as file:
                shutil.copyfileobj(file, tar.stdin, 1 << 20)
            os.unlink(path)
            _tell("part", str(number))
            number += 1
        tar.stdin.close()
        if tar.wait():
            raise BrokenPipeError
    except BrokenPipeError:
        room = os.statvfs(inbox)
        full = "its disk is full" if room.f_bavail * room.f_frsize < PART or not room.f_favail else "the log says why"
        raise StageError(f"tar cannot write to {os.path.dirname(inbox)}: {full}") from None
    finally:
        if tar.poll() is None:
            tar.kill()
            tar.wait()


def _next_part(inbox: str, number: int, parent: int) -> tuple[str, int]:
    """Wait until a part is complete; return its path and size, which stands in its name."""
    while os.getppid() == parent:
        for name in os.listdir(inbox):
            path, (head, _, size) = os.path.join(inbox, name), name.partition(".")
            if head == str(number) and os.stat(path).st_size == int(size):
                return path, int(size)
        time.sleep(POLL_S)
    raise StageError("the head node has stopped to send")


def _sweep(place: str) -> None:
    """Remove what jobs of this user have left here that were killed."""
    states: dict[str, bool] = {}
    for name in records.names_in(place):
        job_id = name[len(PREFIX) :].rpartition("-")[0]
        path = os.path.join(place, name)
        is_this = name.partition(".")[0] == os.path.basename(os.environ[STAGE])
        if is_this or not name.startswith(f"{PREFIX}{job_id}-") or not is_own_folder(path):
            continue
        if job_id not in states:
            states[job_id] = job_id == os.environ["HPCRUN_JOB_ID"] or _is_over(job_id, path)
        if states[job_id]:
            remove(path)


def _is_over(job_id: str, path: str) -> bool:
    if not job_id.startswith("L"):
        return slurm.is_over(job_id)
    with suppress(OSError):
        hold(path, fcntl.LOCK_EX)
        return True
    return False


def hold(path: str, kind: int = fcntl.LOCK_SH) -> int:
    """Lock the copy of a job on this machine, as long as this process has it; return the descriptor.

    Raises:
        OSError: another process has it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    return descriptor
