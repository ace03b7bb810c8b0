"""Copy data onto the nodes' own disks, before the ranks start.

The command is ``launch stage NODES NAME/SRC ...``.

The head node lists the files once, and starts a step with ``launch stage --node`` on each node. If
all have enough room, they copy by tar, some at a time (node_step.py). sbcast would read the storage
once, but took ten times as long (1 GiB to four nodes), goes over the network of slurmd, which is
slow at many sites, and fails as a whole with one node.

The folder of a copy, HPCRUN_STAGE, is made first: another user who sees its name in the list of
processes can take no other name from the job. It is complete when its mode says so. The job
removes it at its end (``launch stage --remove``), its node after SIGTERM, and after all were
killed, the next job of the same user that copies data to this node.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .. import node_folder, records, slurm_requests
from ..processes import launch_program
from . import node_step
from .node_step import HERE, NodeLine, NodeStep, count, is_local, megabytes, room, tell

if TYPE_CHECKING:
    from ..job_step import JobStep

STAGE = "HPCRUN_STAGE"
PREFIX = "hpcrun-stage-"
"""The variable with the folder of the copy; how its name begins, before the job id."""
INCOMPLETE = 0o1700
COMPLETE = 0o700
"""The modes of the folder: it has the sticky bit, which means nothing here, until all is there."""
RECORD = "stage"
LIST = "stage-list"
"""In the folder of an attempt: why the data could not be copied, and what is copied."""
NODE = "--node"
REMOVE = "--remove"
PROGRESS_S = 10.0
_READ = (
    "tar",
    "--create",
    "--file=-",
    "--dereference",
    "--sparse",
    "--no-recursion",
    "--mode=u+rwX",
    "--null",
)
MOST_PATHS = 1000
"""The paths by which links may lead to one folder: nested links double them at each level."""
_CHANGED = 1
"""The exit status of GNU tar if a file has changed while it was read."""
_ELSEWHERE = (
    "--env HPCRUN_STAGE_DIR=/path names another folder, which each node has on its own disk"
)


@dataclass(frozen=True)
class FileListing:
    """What is copied.

    Attributes:
        files: the number of files.
        size: their bytes on the disk.
        skipped: the links that lead nowhere, or to a folder above them.
    """

    files: int
    size: int
    skipped: int


class StageError(Exception):
    """The data cannot be copied; the message says why."""


def main(arguments: list[str]) -> int:
    """Copy the data to the nodes, copy it here, or remove it here; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    try:
        if arguments[0] == REMOVE:
            node_folder.remove(os.environ[STAGE])  # srun kills what still copies
        elif arguments[0] == NODE:
            _copy_here(int(arguments[1]))
        elif not is_local():
            _copy_to(arguments[0].split(","), arguments[1:])
        elif os.environ["HPCRUN_NODE_RANK"] == "0":  # the nodes of this machine share its disk
            _copy_to([HERE], arguments[1:])
    except (StageError, OSError) as error:
        if arguments[0] == NODE:
            node_step.tell_failure(error)
        else:
            records.write(RECORD, {"message": f"cannot copy the data of --stage: {error}"})
        return 1
    return 0


# --- the job -------------------------------------------------------------------------------------


class StagedData:
    """The copies of the data of --stage on the disks of the nodes.

    Args:
        sources: the data, as NAME/SRC.
    """

    def __init__(self, sources: list[str]) -> None:
        self._sources = sources
        # the copies on this machine, locked until the job ends: other jobs leave them there
        self._held: list[int] = []

    def copy(self, step: JobStep, nodes: list[str]) -> str:
        """Copy the data onto the nodes that do not have the data.

        The result says why the copy failed, or is the empty string.
        """
        command = [*launch_program(), "stage", ",".join(nodes), *self._sources]
        status = step.run_other(command, nodes)
        if status:
            record = records.read(RECORD) or {}
            message = str(record.get("message") or f"copying the data ended with status {status}")
            records.say(message)
            return message
        if is_local():
            self._held.append(node_folder.hold(os.environ[STAGE]))
        return ""

    def remove(self, nodes: list[str], replaced: list[str], most_s: float) -> None:
        """Remove the copies at the end of the job.

        Args:
            nodes: the nodes that have the copies.
            replaced: nodes that are not used any more, and may be dead.
            most_s: the time for it; 0 if Slurm is ending this job, and the nodes do it themselves.
        """
        while self._held:
            os.close(self._held.pop())
        if is_local():
            node_folder.remove(os.environ[STAGE])
            return
        if not most_s:
            return
        for some in (nodes, replaced):
            if some:
                _remove_from(some, most_s)


def _remove_from(nodes: list[str], most_s: float) -> None:
    argv, env = slurm_requests.small_step(*nodes)
    argv += [*launch_program(), "stage", REMOVE]
    # srun cannot start a step on a dead node, and says so
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(argv, env=env, check=False, timeout=most_s, stderr=subprocess.DEVNULL)


# --- the head node -------------------------------------------------------------------------------


def _copy_to(nodes: list[str], sources: list[str]) -> None:
    """List the files, and copy them to the nodes; say how far it is, from time to time.

    Raises:
        StageError: a node could not copy them.
    """
    folder = os.path.join(records.attempt_dir(), LIST)
    began = time.monotonic()
    report_at = began + PROGRESS_S
    try:
        listing = list_files(folder, sources)
        copies = _Copies(listing, nodes)
        with NodeStep(nodes, ["stage", NODE, str(listing.size)]) as step:
            for report in step.reports():
                copies.read(report)
                if not step.are_all_ready():
                    continue
                copies.say_what()
                if time.monotonic() > report_at:
                    report_at = time.monotonic() + PROGRESS_S
                    copies.say_progress()
            status = step.wait()
        if status:
            raise StageError(f"the step of the nodes ended with status {status}")
        copies.say_end(time.monotonic() - began)
    finally:
        node_folder.remove(folder)


class _Copies:
    """What the nodes report of the copies, and what the log says of it."""

    def __init__(self, listing: FileListing, nodes: list[str]) -> None:
        self._listing = listing
        self._nodes = nodes
        self._copied: dict[str, int] = {}  # node → bytes
        self._lacking = 0
        self._what = ""

    def read(self, report: NodeLine) -> None:
        """Read what a node reports.

        Raises:
            StageError: the node could not copy the data.
        """
        if report.kind == node_step.FAILED:
            raise StageError(f"{report.node}: {report.text}")
        self._copied[report.node] = int(report.text)
        if report.kind == "lacks":
            self._lacking += 1

    def say_what(self) -> None:
        """Say what is copied, once, unless all nodes have the data."""
        if self._what or not self._lacking:
            return
        listing = self._listing
        files = f"{count(listing.files, 'file')}, {megabytes(listing.size)}"
        self._what = f"{files}, to {count(self._lacking, 'node')}"
        text = f"--stage copies {self._what}, into {os.environ[STAGE]}"
        if listing.skipped:
            text += f"; {listing.skipped} links that lead nowhere, or back, are left out"
        records.say(text)

    def say_progress(self) -> None:
        """Say how much of all copies is done."""
        copied = megabytes(sum(self._copied.values()))
        whole = megabytes(self._listing.size * len(self._nodes))
        records.say(f"--stage: {copied} of {whole}")

    def say_end(self, seconds: float) -> None:
        """Say how long the copies took, if there were any."""
        if self._what:
            rate = f"{megabytes(self._listing.size / seconds)}/s for each"
            records.say(f"--stage copied {self._what} in {seconds:.1f} s, {rate}")


def list_files(folder: str, sources: list[str]) -> FileListing:
    """Make a folder with a link to each source under its name, and a list of the files.

    The list has the files below the sources, for tar.

    Links are followed. Other kinds of entries, as sockets, cannot be copied.

    Raises:
        OSError: a folder cannot be read.
        StageError: if a source does not exist, or links lead to a folder in too many ways.
    """
    root = os.fsencode(os.path.join(folder, "data"))
    os.makedirs(root)
    for text in sources:
        label, _, source = text.partition("/")
        if not os.path.exists(source):
            raise StageError(f"there is no {source} on {os.uname().nodename}")
        os.symlink(source, os.path.join(root, os.fsencode(label)))
    files = 0
    skipped = 0
    # files with several names, or links to them, take their room once
    sizes: dict[tuple[int, int], int] = {}
    paths = Counter[tuple[int, int]]()  # of each folder
    with open(os.path.join(folder, "names"), "wb") as listed:
        for place, folders, names in os.walk(root, onerror=_fail, followlinks=True):
            back = {name for name in folders if _leads_back(root, os.path.join(place, name))}
            folders[:] = [name for name in folders if name not in back]
            skipped += len(back)
            for name in (*folders, *names):
                path = os.path.join(place, name)
                try:
                    info = os.stat(path)
                except OSError:
                    skipped += 1
                    continue
                place_on_disk = (info.st_dev, info.st_ino)
                if stat.S_ISREG(info.st_mode):
                    files += 1
                    sizes[place_on_disk] = min(info.st_size, 512 * info.st_blocks)
                elif stat.S_ISDIR(info.st_mode):
                    paths[place_on_disk] += 1
                    if paths[place_on_disk] > MOST_PATHS:
                        real = os.fsdecode(os.path.realpath(path))
                        raise StageError(f"more than {MOST_PATHS:,} paths of links lead to {real}")
                else:
                    continue
                listed.write(b"." + path[len(root) :] + b"\0")
    return FileListing(files, sum(sizes.values()), skipped)


def _fail(error: OSError) -> None:
    raise error


@lru_cache(maxsize=1000)
def _real(folder: bytes) -> bytes:
    return os.path.realpath(folder)


def _leads_back(root: bytes, path: bytes) -> bool:
    """Whether a path is a link to a folder above it."""
    place = os.path.dirname(path)
    if place == root or not os.path.islink(path):
        return False
    target = os.path.realpath(path)
    while place != root and os.path.commonpath([target, _real(place)]) != target:
        place = os.path.dirname(place)
    return place != root


# --- each node -----------------------------------------------------------------------------------


def _copy_here(size: int) -> None:
    folder = os.environ[STAGE]
    place = os.path.dirname(folder)
    with suppress(FileNotFoundError):
        os.close(node_folder.hold(folder))
        if _is_complete(folder):
            return tell(node_step.DONE, size)
    if node_folder.is_shared(place):
        raise StageError(f"{place} is not on its own disk. {_ELSEWHERE}")
    _sweep(place)
    free = room(place)
    if free < size:
        lack = f"{megabytes(size)} are needed in {place}, and {HERE} has {megabytes(free)} free"
        raise StageError(f"{lack}. {_ELSEWHERE}")
    held = node_folder.create(folder, INCOMPLETE)
    try:
        tell("lacks", 0)
        node_step.wait_for_turn()
        _tar(folder)
        os.fchmod(held, COMPLETE)
        return tell(node_step.DONE, size)
    finally:
        os.close(held)
        if not _is_complete(folder):
            node_folder.remove(folder)


def _is_complete(folder: str) -> bool:
    return stat.S_IMODE(os.lstat(folder).st_mode) == COMPLETE


def _tar(target: str) -> None:
    folder = os.path.join(records.attempt_dir(), LIST)
    before = room(target)
    read = [*_READ, f"--directory={folder}/data", f"--files-from={folder}/names"]
    with subprocess.Popen(read, stdout=subprocess.PIPE) as reader:
        write = ["tar", "--extract", "--file=-", f"--directory={target}"]
        writer = subprocess.Popen(write, stdin=reader.stdout)
        assert reader.stdout is not None
        reader.stdout.close()
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    status = writer.wait(PROGRESS_S / 2)
                    break
                tell("copied", max(0, before - room(target)))
        finally:
            writer.kill()
            writer.wait()
    if status or reader.returncode not in (0, _CHANGED):
        what = f"write to {target}" if status else "read the data"
        raise StageError(f"tar cannot {what}: the log has its messages")


def _sweep(place: str) -> None:
    """Remove what killed jobs of this user, and earlier starts of this one, have left here."""
    names = [name for name in records.names_in(place) if name.startswith(PREFIX)]
    running = None
    if names and not is_local():
        running = slurm_requests.jobs_with_nodes()
    for name in names:
        job_id = name[len(PREFIX) :].rpartition("-")[0]
        is_over = job_id.startswith("L") or (running is not None and job_id not in running)
        if is_over or job_id == os.environ["HPCRUN_JOB_ID"]:
            node_folder.remove(os.path.join(place, name))
