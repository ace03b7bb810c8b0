"""Copy data onto the nodes' own disks, before the ranks start: --stage.

The command is ``launch stage NODES KEEP NAME/SRC ...``; KEEP is the number of days for which the
copies stay for later jobs, or 0.

The head node lists the files once (staged_files.py), and starts a step with ``launch stage --node``
on each node (stage_node.py). If all have enough room, they copy by tar, some at a time
(node_step.py). sbcast would read the storage once, but took ten times as long (1 GiB to four
nodes), goes over the network of slurmd, which is slow at many sites, and fails as a whole with one
node.

The job removes the folder of its data, HPCRUN_STAGE, at its end (``launch stage --remove``), its
node after SIGTERM, and after all were killed, the next job of the same user that copies data to
this node. What --keep keeps stays (kept_data.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from .. import node_folder, records, slurm_requests
from ..processes import launch_program
from . import node_step
from .node_step import HERE, NodeLine, NodeStep, count, is_local, megabytes
from .stage_node import LACKS, NOTE, PROGRESS_S, SOURCES, copy_here, lists_folder
from .staged_files import FileListing, StageError, list_source

if TYPE_CHECKING:
    from ..job_step import JobStep

STAGE = node_folder.STAGE
RECORD = "stage"
"""In the folder of an attempt: why the data could not be copied."""
NODE = "--node"
REMOVE = "--remove"


def main(arguments: list[str]) -> int:
    """Copy the data to the nodes, copy it here, or remove it here; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    try:
        if arguments[0] == REMOVE:
            node_folder.remove(os.environ[STAGE])  # srun kills what still copies
        elif arguments[0] == NODE:
            copy_here()
        elif not is_local():
            _copy_to(arguments[0].split(","), int(arguments[1]), arguments[2:])
        elif os.environ["HPCRUN_NODE_RANK"] == "0":  # the nodes of this machine share its disk
            _copy_to([HERE], int(arguments[1]), arguments[2:])
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
        keep_days: how long the copies stay for later jobs; 0 if they do not.
    """

    def __init__(self, sources: list[str], keep_days: int) -> None:
        self._sources = sources
        self._keep_days = keep_days
        # the copies on this machine, locked until the job ends: other jobs leave them there
        self._held: list[int] = []

    def copy(self, step: JobStep, nodes: list[str]) -> str:
        """Copy the data onto the nodes that do not have the data.

        The result says why the copy failed, or is the empty string.
        """
        what = [",".join(nodes), str(self._keep_days), *self._sources]
        command = [*launch_program(), "stage", *what]
        status = step.run_other(command, nodes)
        if status:
            record = records.read(RECORD) or {}
            message = str(record.get("message") or f"copying the data ended with status {status}")
            records.say(message)
            return message
        if is_local():
            self._held.append(node_folder.hold(os.environ[STAGE]))
        self._held += node_folder.hold_kept(os.environ[STAGE])
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


def _copy_to(nodes: list[str], keep_days: int, sources: list[str]) -> None:
    """List the files, and copy them to the nodes; say how far it is, from time to time.

    Raises:
        StageError: a node could not copy them.
    """
    began = time.monotonic()
    report_at = began + PROGRESS_S
    try:
        listings = _list_sources(sources, keep_days)
        copies = _Copies(listings, nodes, keeps=keep_days > 0)
        with NodeStep(nodes, ["stage", NODE]) as step:
            for line in step.reports():
                copies.read(line)
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
        node_folder.remove(lists_folder())


def _list_sources(sources: list[str], keep_days: int) -> list[FileListing]:
    """List the files of the sources, for all nodes.

    Raises:
        OSError: a folder cannot be read.
        StageError: a source cannot be copied, or the disk of the run is full.
    """
    folder = lists_folder()
    listings = []
    for number, source in enumerate(sources):
        listings.append(list_source(os.path.join(folder, str(number)), source))
    record = {"sources": [asdict(listing) for listing in listings], "keep": keep_days}
    if not records.write(SOURCES, record, folder):
        raise StageError("the list of the data cannot be written to the run's folder")
    return listings


class _Copies:
    """What the nodes report of the copies, and what the log says of it."""

    def __init__(self, listings: list[FileListing], nodes: list[str], *, keeps: bool) -> None:
        self._files = sum(listing.files for listing in listings)
        self._size = sum(listing.size for listing in listings)
        self._skipped = sum(listing.skipped for listing in listings)
        self._nodes = nodes
        self._keeps = keeps
        self._copied: dict[str, int] = {}  # node → bytes
        self._lacking = 0
        self._has_said = False

    def read(self, line: NodeLine) -> None:
        """Read what a node reports.

        Raises:
            StageError: the node could not copy the data.
        """
        if line.kind == node_step.FAILED:
            raise StageError(f"{line.node}: {line.text}")
        if line.kind == NOTE:
            records.say(f"--stage: {line.node}: {line.text}")
            return
        self._copied[line.node] = int(line.text)
        if line.kind == LACKS:
            self._lacking += 1

    def say_what(self) -> None:
        """Say once what is copied, and with --keep which nodes have the data."""
        if self._has_said:
            return
        self._has_said = True
        if self._keeps:
            total = len(self._nodes)
            verb = "has" if total == 1 else "have"
            have = f"{total - self._lacking} of {count(total, 'node')}"
            records.say(f"--stage: {have} {verb} it already")
        if not self._lacking:
            return
        text = f"--stage copies {self._what()}, into {os.environ[STAGE]}"
        if self._skipped:
            text += f"; {self._skipped} links that lead nowhere, or back, are left out"
        records.say(text)

    def _what(self) -> str:
        files = f"{count(self._files, 'file')}, {megabytes(self._size)}"
        return f"{files}, to {count(self._lacking, 'node')}"

    def say_progress(self) -> None:
        """Say how much of all copies is done."""
        copied = megabytes(sum(self._copied.values()))
        whole = megabytes(self._size * len(self._nodes))
        records.say(f"--stage: {copied} of {whole}")

    def say_end(self, seconds: float) -> None:
        """Say how long the copies took, if there were any."""
        if self._lacking:
            rate = f"{megabytes(self._size / seconds)}/s for each"
            records.say(f"--stage copied {self._what()} in {seconds:.1f} s, {rate}")
