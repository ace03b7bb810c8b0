"""``launch stage NODES NAME/SRC ...``: copies data onto the nodes' own disks, before the ranks start.

The head node lists the files once, and starts a step with ``launch stage --node`` on each node. Every node tells its
room. If all have enough, they copy by tar, some at a time, so that the shared storage is not flooded: a node begins
when the number on its stdin is above its own. sbcast would read the storage once, but took ten times as long (1 GiB to
four nodes), goes over the network of slurmd, which is slow at many sites, and fails as a whole with one node.

A copy is complete or missing: it gets its name, HPCRUN_STAGE, when all of it is there. The job removes it at its end
(``launch stage --remove``), its node after SIGTERM, and after all were killed, the next job of the same user that
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
from typing import TYPE_CHECKING

from . import records, slurm
from .node_folder import is_shared
from .processes import launch_program

if TYPE_CHECKING:
    from .step import JobStep

STAGE, PREFIX = "HPCRUN_STAGE", "hpcrun-stage-"
"""The variable with the folder of the copy, and how its name begins; the job id follows."""
RECORD, LIST = "stage", "stage-list"
"""In the folder of an attempt: why the data could not be copied, and what is copied."""
AT_ONCE = 16
"""The nodes that copy at a time: more would only slow each other down at a usual file server."""
PROGRESS_S = 10.0
_READ = ("tar", "--create", "--file=-", "--dereference", "--sparse", "--no-recursion", "--mode=u+rwX", "--null")
_CHANGED = 1
"""The exit status of GNU tar if a file has changed while it was read."""
_ELSEWHERE = "--env HPCRUN_STAGE_DIR=/path names another folder, which each node has on its own disk"


class StageError(Exception):
    """The data cannot be copied; the message says why."""


def main(arguments: list[str]) -> int:
    """Copy the data to the nodes, copy it here, or remove it here; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    if arguments == ["--remove"]:
        remove()
        return 0
    nodes = [] if arguments == ["--node"] else arguments[0].split(",")
    try:
        if not nodes:
            _copy_here()
        elif not _is_local() or os.environ["HPCRUN_NODE_RANK"] == "0":  # the nodes of this machine share its disk
            _copy_to(nodes[:1] if _is_local() else nodes, arguments[1:])
    except (StageError, OSError) as error:
        if nodes:
            records.write(RECORD, {"message": f"cannot copy the data of --stage: {error}"})
        else:
            _tell("failed", " ".join(str(error).splitlines()))
        return 1
    return 0


# --- the job ----------------------------------------------------------------------------------------------------------


def copy(step: JobStep, nodes: list[str], sources: list[str]) -> str:
    """Copy the data onto the nodes that do not have it; return why it failed, or the empty string."""
    status = step.run_other([*launch_program(), "stage", ",".join(nodes), *sources], nodes)
    if not status and _is_local():
        _hold(os.environ[STAGE], fcntl.LOCK_SH)
    message = str((records.read(RECORD) or {}).get("message") or f"copying the data ended with status {status}")
    if status:
        records.say(message)
    return message if status else ""


def remove_from(nodes: list[str], replaced: list[str], most_s: float) -> str:
    """Remove the copies at the end of the job; return the empty string.

    Args:
        replaced: nodes that are not used any more, and may be dead.
        most_s: the time for it; 0 if Slurm is ending this job, and the nodes do it themselves.
    """
    if _is_local():
        remove()
    for some in () if _is_local() or not most_s else (nodes, replaced):
        argv, env = slurm.small_step(*some)
        argv += [*launch_program(), "stage", "--remove"]
        with suppress(OSError, subprocess.TimeoutExpired):
            if some:  # srun cannot start a step on a dead node, and says so
                subprocess.run(argv, env=env, check=False, timeout=most_s, stderr=subprocess.DEVNULL)
    return ""


# --- the head node ----------------------------------------------------------------------------------------------------


def _copy_to(nodes: list[str], sources: list[str]) -> None:
    folder, began = os.path.join(records.attempt_dir(), LIST), time.monotonic()
    argv, env = ([], dict(os.environ)) if _is_local() else slurm.small_step(*nodes)
    argv += [*launch_program(), "stage", "--node"]
    files, size, skipped = list_files(folder, sources)
    rooms: dict[str, int] = {}  # of the nodes that lack the data
    copied: dict[str, int] = {}
    done = limit = 0
    report_at = began + PROGRESS_S
    step = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True, bufsize=1)
    try:
        for line in step.stdout or ():
            node, kind, text = line.rstrip("\n").split(" ", 2)
            if kind == "failed":
                raise StageError(f"{node}: {text}")
            rooms |= {node: int(text)} if kind == "room" else {}
            copied[node] = size if kind == "done" else int(text) if kind == "copied" else 0
            done += kind == "done"
            if len(copied) == len(nodes) and rooms and not limit:
                _check_rooms(rooms, size)
                left_out = f"; {skipped} links that lead nowhere, or back, are left out" if skipped else ""
                what = f"{_count(files, 'file')}, {_mb(size)}, to {_count(len(rooms), 'node')}"
                records.say(f"--stage copies {what}, into {os.environ[STAGE]}{left_out}")
            if len(copied) == len(nodes) and AT_ONCE + done > limit:
                limit = AT_ONCE + done
                with suppress(BrokenPipeError):  # the last nodes have ended
                    step.stdin.write(f"{limit}\n") if step.stdin else None
            if time.monotonic() > report_at:
                report_at = time.monotonic() + PROGRESS_S
                total, so_far = size * len(nodes), sum(copied.values())
                left_s = (total - so_far) * (time.monotonic() - began) / max(so_far, 1)
                records.say(f"--stage: {_mb(so_far)} of {_mb(total)}, {left_s:.0f} s left")
        if status := step.wait():
            raise StageError(f"the step of the nodes ended with status {status}")
        if rooms:
            seconds = time.monotonic() - began
            records.say(f"--stage copied {what} in {seconds:.1f} s, {_mb(size / seconds)}/s for each")
    finally:
        step.terminate()
        step.wait()
        remove(folder)


def _check_rooms(rooms: dict[str, int], size: int) -> None:
    full = sorted((room, node) for node, room in rooms.items() if room < size)
    if full:
        others = f", and {len(full) - 1} more nodes have too little" if len(full) > 1 else ""
        least = f"{full[0][1]} has {_mb(full[0][0])} free{others}"
        raise StageError(f"{_mb(size)} are needed in {os.path.dirname(os.environ[STAGE])}, and {least}. {_ELSEWHERE}")


def list_files(folder: str, sources: list[str]) -> tuple[int, int, int]:
    """Make a folder with a link to each source under its name, and a list of the files below, for tar.

    Links are followed. Other kinds of entries, as sockets, cannot be copied.

    Returns:
        The number of files, their bytes on the disk, and the links that lead nowhere, or to a folder above them.
    """
    remove(folder)
    root = os.fsencode(os.path.join(folder, "data"))
    os.makedirs(root)
    for name, _, source in (text.partition("/") for text in sources):
        if not os.path.exists(source):
            raise StageError(f"there is no {source} on {os.uname().nodename}")
        os.symlink(source, os.path.join(root, os.fsencode(name)))
    files = size = skipped = 0
    counted: set[tuple[int, int]] = set()  # files with several names, or links to them, take their room once
    folders: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(b".", frozenset())]
    with open(os.path.join(folder, "names"), "wb") as names:
        while folders:
            place, above = folders.pop()
            for entry in os.scandir(os.path.join(root, place)):
                path = os.path.join(place, entry.name)
                above = _folders_above(entry.path) if place == b"." else above
                try:
                    info = entry.stat()
                except OSError:
                    skipped += 1
                    continue
                key = (info.st_dev, info.st_ino)
                if stat.S_ISDIR(info.st_mode) and key in above:
                    skipped += 1
                elif stat.S_ISDIR(info.st_mode):
                    folders.append((path, above | {key}))
                    names.write(path + b"\0")
                elif stat.S_ISREG(info.st_mode):
                    names.write(path + b"\0")
                    files += 1
                    size += 0 if key in counted else min(info.st_size, 512 * info.st_blocks)
                    counted.add(key)
    return files, size, skipped


def _folders_above(source: bytes) -> frozenset[tuple[int, int]]:
    path, above = os.path.realpath(source), set()
    while path != b"/":
        path = os.path.dirname(path)
        info = os.stat(path)
        above.add((info.st_dev, info.st_ino))
    return frozenset(above)


# --- each node --------------------------------------------------------------------------------------------------------


def _copy_here() -> None:
    folder = os.environ[STAGE]
    part, place = folder + ".part", os.path.dirname(folder)
    if is_own_folder(folder):
        return _tell("done")
    if is_shared(place):
        raise StageError(f"{place} is not on its own disk. {_ELSEWHERE}")
    _sweep(place)
    remove(part)
    os.mkdir(part, 0o700)
    try:
        _tell("room", _room(place))
        number = 0 if _is_local() else int(os.environ["SLURM_PROCID"])
        while int(sys.stdin.readline() or sys.exit(1)) <= number:
            pass
        _tar(part)
        os.rename(part, folder)
        return _tell("done")
    finally:
        remove(part)


def _tar(target: str) -> None:
    folder, before = os.path.join(records.attempt_dir(), LIST), _room(target)
    read = [*_READ, f"--directory={folder}/data", f"--files-from={folder}/names"]
    with subprocess.Popen(read, stdout=subprocess.PIPE) as reader:
        writer = subprocess.Popen(["tar", "--extract", "--file=-", f"--directory={target}"], stdin=reader.stdout)
        assert reader.stdout is not None
        reader.stdout.close()
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    status = writer.wait(PROGRESS_S / 2)
                    break
                _tell("copied", max(0, before - _room(target)))
        finally:
            writer.kill()
            reader.kill() if writer.wait() else None
    if status:
        full = os.statvfs(target).f_bavail < 256
        raise StageError(f"tar cannot write to {target}: {'its disk is full' if full else 'the log has its messages'}")
    if reader.returncode not in (0, _CHANGED):
        raise StageError("tar cannot read the data: the log has its messages")


def _tell(kind: str, text: object = "") -> None:
    sys.stdout.write(f"{os.environ.get('SLURMD_NODENAME', 'local')} {kind} {text}\n")
    sys.stdout.flush()


def _room(path: str) -> int:
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def remove_after_signal() -> None:
    """Remove the copy on this node, as its last process after SIGTERM; a script may go on without its ranks."""
    if "HPCRUN_LAUNCH" not in os.environ:
        remove()


def remove(path: str | None = None) -> None:
    """Remove the copy on this node, complete or not, or another folder of this user."""
    for each in [path] if path else [os.environ[STAGE], os.environ[STAGE] + ".part"]:
        if is_own_folder(each):
            shutil.rmtree(each, ignore_errors=True)  # noqa: TID251 - what this job has made


def is_own_folder(path: str) -> bool:
    """Whether a path is a folder of this user, and no link to one."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def _sweep(place: str) -> None:
    """Remove what killed jobs of this user have left here."""
    over: dict[str, bool] = {}
    for name in records.names_in(place):
        job_id, path = name[len(PREFIX) :].rpartition("-")[0], os.path.join(place, name)
        is_this = name.partition(".")[0] == os.path.basename(os.environ[STAGE])
        if is_this or not name.startswith(f"{PREFIX}{job_id}-") or not is_own_folder(path):
            continue
        if job_id not in over:
            over[job_id] = job_id == os.environ["HPCRUN_JOB_ID"] or _is_over(job_id, path)
        if over[job_id]:
            remove(path)


def _is_over(job_id: str, path: str) -> bool:
    if not job_id.startswith("L"):
        return slurm.is_over(job_id)
    with suppress(OSError):
        os.close(_hold(path, fcntl.LOCK_EX))
        return True
    return False


def _hold(path: str, kind: int) -> int:
    """Lock the copy of a job on this machine until this process ends; raise OSError if another one has locked it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    return descriptor


def _is_local() -> bool:
    return os.environ["HPCRUN_JOB_ID"].startswith("L")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
