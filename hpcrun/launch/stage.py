"""``launch stage NODES NAME/SRC ...``: copies data onto the nodes' own disks, before the ranks start.

One tar on the head node reads the shared storage once. Its output is cut into parts. sbcast sends each part, through
Slurm's own tree of nodes, to a step with one receiver on each node (receive.py), which prints a line when the part is
on its disk: so the parts on their way need little room. If the head node is the only one, parts are renamed, not sent.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from . import records, slurm
from .processes import launch_program
from .receive import PART, STAGE, StageError, hold, remove

if TYPE_CHECKING:
    from .step import JobStep

RECORD = "stage"
"""The record of an attempt whose data could not be copied."""
IN_FLIGHT = 4
"""The parts that a disk holds at most, besides the copy: two that are sent, two that have arrived."""
PROGRESS_S, REMOVE_S = 10.0, 60
_TAR = ("tar", "--create", "--file=-", "--dereference", "--sparse", "--no-recursion", "--mode=u+rwX", "--null")
_CHANGED = 1
"""The exit status of GNU tar if a file has changed while it was read."""


def main(arguments: list[str]) -> int:
    """Copy the data; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    if _is_local() and os.environ["HPCRUN_NODE_RANK"] != "0":
        return 0  # the nodes of this machine share its disk
    nodes = arguments[0].split(",")
    try:
        _send(nodes[:1] if _is_local() else nodes, arguments[1:])
    except (StageError, OSError) as error:
        records.write(RECORD, {"message": f"cannot copy the data of --stage: {error}"})
        return 1
    return 0


def copy(step: JobStep, nodes: list[str], sources: list[str]) -> str:
    """Copy the data onto the nodes that do not have it, as the job; return why it failed, or the empty string."""
    status = step.run_other([*launch_program(), "stage", ",".join(nodes), *sources], nodes)
    if not status and _is_local():
        hold(os.environ[STAGE])
    message = str((records.read(RECORD) or {}).get("message") or f"copying the data ended with status {status}")
    if status:
        records.say(message)
    return message if status else ""


def remove_from(nodes: list[str], *, in_haste: bool) -> str:
    """Remove the copies, as the job, which is about to end, and does not wait long; return the empty string.

    Args:
        in_haste: Slurm is ending this job: there is no time, and the nodes do it themselves.
    """
    if _is_local():
        remove()
    elif not in_haste:
        argv, env = slurm.small_step(*nodes)
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([*argv, *launch_program(), "receive", "--remove"], env=env, check=False, timeout=REMOVE_S)
    return ""


@dataclass(frozen=True)
class Data:
    """What is copied: the files, their bytes on the disk, and the links that lead nowhere, or back."""

    files: int
    size: int
    skipped: int


# --- the head node ----------------------------------------------------------------------------------------------------


def _send(nodes: list[str], sources: list[str]) -> None:
    receivers = _Receivers(nodes)
    lacking = [node for node, room in receivers.rooms.items() if room is not None]
    if len(lacking) < len(nodes):
        receivers.end()
        if not lacking:
            return
        receivers = _Receivers(lacking)
    folder, began = os.environ[STAGE] + ".send", time.monotonic()
    tar = None
    try:
        data = _list(folder, sources)
        what = f"{size_text(data.size)} in {data.files} files to {len(lacking)} nodes"
        _check_rooms(receivers.rooms, data.size)
        records.say(f"--stage copies {what}, below {os.environ[STAGE]}")
        if data.skipped:
            records.say(f"{data.skipped} links that lead nowhere, or back to a folder above them, are left out")
        names = f"--files-from={os.path.join(folder, 'names')}"
        tar = subprocess.Popen([*_TAR, f"--directory={folder}/data", names], stdout=subprocess.PIPE)
        receivers.send(_cut(tar, folder), data.size)
        receivers.finish()
        seconds = time.monotonic() - began
        records.say(f"--stage copied {what} in {seconds:.0f} s ({size_text(data.size / seconds)}/s)")
    finally:
        if tar and tar.poll() is None:
            tar.kill()
        receivers.end()
        remove(folder)


def _list(folder: str, sources: list[str]) -> Data:
    """Make a folder with a link to each source under its name, and the list of the files that tar reads through it."""
    remove(folder)
    os.mkdir(folder, 0o700)
    root = os.fsencode(os.path.join(folder, "data"))
    os.mkdir(root)
    for source in sources:
        name, _, path = source.partition("/")
        if not os.path.exists(path):
            raise StageError(f"there is no {path} on {os.uname().nodename}")
        os.symlink(path, os.path.join(root, os.fsencode(name)))
    with open(os.path.join(folder, "names"), "wb") as names:
        return _walk(root, names)


def _walk(root: bytes, names: IO[bytes]) -> Data:
    """Write the names of folders and files, links followed; other kinds, as sockets, cannot be copied."""
    files = size = skipped = 0
    counted: set[tuple[int, int]] = set()  # hard links, and links that lead to the same file, take its room once
    folders: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(b".", frozenset())]
    while folders:
        folder, above = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
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
    return Data(files, size, skipped)


def _check_rooms(rooms: dict[str, int | None], size: int) -> None:
    needed = size + IN_FLIGHT * min(PART, size)
    full = sorted((room, node) for node, room in rooms.items() if room is not None and room < needed)
    if full:
        least = f"{full[0][1]} has {size_text(full[0][0])} free"
        others = f" (and {len(full) - 1} more nodes have too little)" if len(full) > 1 else ""
        place = os.path.dirname(os.environ[STAGE])
        advice = "--env HPCRUN_STAGE_DIR=/path names another folder that each node has on its own disk"
        raise StageError(f"{size_text(needed)} are needed in {place}, and {least}{others}. {advice}")


def _cut(tar: subprocess.Popen[bytes], folder: str) -> Iterator[tuple[str, int]]:
    """Yield the path and the size of each part of tar's output; the last part only if tar has read everything."""
    assert tar.stdout is not None
    number, size = 0, PART
    while size == PART:
        path, size = os.path.join(folder, str(number)), 0
        with open(path, "wb") as file:
            while size < PART and (data := tar.stdout.read(min(1 << 20, PART - size))):
                size += file.write(data)
            if not size:
                size = file.write(bytes(512))  # tar ignores zeros at the end, and sbcast sends no empty file
        if size < PART and tar.wait() not in (0, _CHANGED):
            raise StageError("it could not be read: the log has tar's messages")
        yield path, size
        number += 1


class _Receivers:
    """The step of the receivers, one on each node.

    Attributes:
        rooms: the free bytes of each node; None if it has the data already.
    """

    def __init__(self, nodes: list[str]) -> None:
        receive = [*launch_program(), "receive"]
        self._alone = _is_local() or nodes == [os.environ.get("SLURMD_NODENAME")]
        argv, env = ([], dict(os.environ)) if self._alone else slurm.small_step(*nodes)
        self._process = subprocess.Popen([*argv, *receive], stdout=subprocess.PIPE, env=env, text=True)
        self._lines = dict.fromkeys(nodes, 0)
        self._step, self._path = "", ""
        self._sending: subprocess.Popen[bytes] | None = None
        self.rooms: dict[str, int | None] = {}
        self._wait(1)

    def send(self, parts: Iterator[tuple[str, int]], size: int) -> None:
        """Send the parts, each while the next one is cut, and report the progress."""
        began = report_at = time.monotonic()
        sent = 0
        for number, (path, length) in enumerate(parts):
            self._wait(number)  # the part before the last one is on all disks
            self._sent()
            self._start(path, os.path.join(os.environ[STAGE] + ".part", f"{number}.{length}"))
            sent += length
            now = time.monotonic()
            if now > report_at + PROGRESS_S:
                report_at, rate = now, sent / (now - began)
                left = max(0, size - sent)
                speed = f"{size_text(rate)}/s, {left / rate:.0f} s left"
                records.say(f"--stage: {size_text(sent)} of {size_text(size)}, {speed}")
        self._sent()

    def finish(self) -> None:
        """Wait until the last part is on all disks."""
        if self._process.stdout:
            for line in self._process.stdout:
                self._read(line)
        if self._process.wait():
            raise StageError(f"the step of the receivers ended with status {self._process.returncode}")

    def end(self) -> None:
        """End them."""
        processes: list[subprocess.Popen[Any]] = [self._process, *([self._sending] if self._sending else [])]
        for process in processes:
            if process.poll() is None:
                process.terminate()
            process.wait()

    def _start(self, path: str, target: str) -> None:
        if self._alone:
            os.rename(path, target)
            return
        step = f"{os.environ['SLURM_JOB_ID']}.{self._step}"
        self._sending = subprocess.Popen(["sbcast", f"--jobid={step}", path, target])
        self._path = path

    def _sent(self) -> None:
        """Wait for the part that is being sent."""
        if self._sending:
            if self._sending.wait():
                raise StageError("sbcast could not send it: the log has its messages")
            os.unlink(self._path)
            self._sending = None

    def _wait(self, lines: int) -> None:
        """Wait until each node has printed so many lines."""
        while min(self._lines.values()) < lines:
            line = self._process.stdout.readline() if self._process.stdout else ""
            if not line:
                raise StageError(f"the step of the receivers ended with status {self._process.wait()}")
            self._read(line)

    def _read(self, line: str) -> None:
        node, kind, text = line.rstrip("\n").split(" ", 2)
        if kind == "failed":
            raise StageError(f"{node}: {text}")
        self._lines[node] += 1
        if kind == "room":
            room, _, self._step = text.partition(" ")
            self.rooms[node] = int(room)
        elif kind == "has":
            self.rooms[node], self._lines[node] = None, sys.maxsize


def _is_local() -> bool:
    return os.environ["HPCRUN_JOB_ID"].startswith("L")


def size_text(size: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
