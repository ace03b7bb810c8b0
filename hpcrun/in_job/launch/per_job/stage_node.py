"""One node copies the data of --stage onto its disk: ``launch stage --node``.

The folder of the job's data, HPCRUN_STAGE, is made first: another user who sees its name in the
list of processes can take no other name from the job. It is complete when its mode says so. With
--keep, the data lie in folders of their own (kept_data.py), and links lead to them.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from contextlib import suppress
from typing import Any

from .. import node_folder, records, slurm_requests
from . import kept_data, node_step
from .node_step import HERE, is_local, megabytes, tell
from .staged_files import NAMES, FileListing, StageError

PREFIX = node_folder.STAGE_PREFIX
INCOMPLETE = 0o1700
COMPLETE = 0o700
"""The modes of the folder: it has the sticky bit, which means nothing here, until all is there."""
LISTS = "stage-list"
SOURCES = "sources"
"""In the folder of an attempt: the lists of the sources, and the record of what is copied."""
LACKS = "lacks"
COPIED = "copied"
NOTE = "note"
"""The kinds of lines to the head node: the bytes that this node has before its turn, and those that
it has now; a line for the log.
"""
PROGRESS_S = 10.0
WRITABLE = "u+rwX"
READ_ONLY = "u=rX,go="
"""The modes of copies, as tar has them: of the job's own, and of those that are kept."""
_READ = (
    "tar",
    "--create",
    "--file=-",
    "--dereference",
    "--sparse",
    "--no-recursion",
    "--format=posix",  # with nanoseconds
    "--null",
)
# the files of a read-only folder follow those of the folders in it
_WRITE = ("tar", "--extract", "--file=-", "--delay-directory-restore")
_CHANGED = 1
"""The exit status of GNU tar if a file has changed while it was read."""
_ELSEWHERE = (
    "--env HPCRUN_STAGE_DIR=/path names another folder, which each node has on its own disk"
)


def copy_here() -> None:
    """Copy the data to this node, unless they are there.

    Raises:
        OSError: a folder cannot be made.
        StageError: the data cannot be copied.
    """
    record = records.read(SOURCES, lists_folder())
    if record is None:
        raise StageError(f"{HERE} cannot read the list of the data in the run's folder")
    _NodeCopy(record).make()


def lists_folder() -> str:
    """Return the folder with the lists of the sources, which all nodes see."""
    return os.path.join(records.attempt_dir(), LISTS)


class _NodeCopy:
    """The data of the job on this node.

    Args:
        record: the sources, as attributes of ``FileListing``, and for how many days to keep them.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self._folder = os.environ[node_folder.STAGE]
        self._place = os.path.dirname(self._folder)
        self._sources = [FileListing(**fields) for fields in record["sources"]]
        self._keep_days = int(record["keep"])
        self._notes: list[str] = []
        self._has_reported = False
        self._have = 0  # bytes of the sources that are on the node's disk
        self._held: list[int] = []  # the kept folders, while this process runs

    def make(self) -> None:
        """Make the folder of the job with all data.

        Raises:
            OSError: a folder cannot be made.
            StageError: the data cannot be copied.
        """
        with suppress(FileNotFoundError):
            os.close(node_folder.hold(self._folder))
            if _is_complete(self._folder):
                tell(node_step.DONE, sum(source.size for source in self._sources))
                return
        if node_folder.is_shared(self._place):
            raise StageError(f"{self._place} is not on its own disk. {_ELSEWHERE}")
        swap = node_folder.swap_problem(self._place)
        if swap:
            raise StageError(f"{swap}. {_ELSEWHERE}")
        _sweep(self._place)
        held = node_folder.create(self._folder, INCOMPLETE)
        try:
            self._fill()
            os.fchmod(held, COMPLETE)
            os.utime(held)
            tell(node_step.DONE, self._have)
        finally:
            os.close(held)
            if not _is_complete(self._folder):
                node_folder.remove(self._folder)

    def _fill(self) -> None:
        lacking = [source for source in self._sources if not self._has_kept(source)]
        if not lacking:
            return
        self._need_room(self._bytes_to_copy(lacking))
        tell(LACKS, self._have)
        self._has_reported = True
        for note in self._notes:
            tell(NOTE, note)
        node_step.wait_for_turn()
        for source in lacking:
            self._copy(source)

    def _bytes_to_copy(self, sources: list[FileListing]) -> int:
        """Return the bytes of the sources that no other job copies to this node now."""
        size = 0
        for source in sources:
            if not self._keep_days or not kept_data.is_being_copied(self._kept_path(source)):
                size += source.size
        return size

    def _need_room(self, size: int) -> None:
        """Remove kept data that no job uses, if necessary.

        Raises:
            StageError: there is not enough room.
        """
        for line in kept_data.make_room(self._place, size):
            self._say(line)
        free = node_folder.room(self._place)
        if free < size:
            lack = f"{megabytes(size)} are needed in {self._place}"
            raise StageError(f"{lack}, and {HERE} has {megabytes(free)} free. {_ELSEWHERE}")

    def _say(self, note: str) -> None:
        """Tell the head node a line for the log, after this node's first line."""
        if self._has_reported:
            tell(NOTE, note)
        else:
            self._notes.append(note)

    # --- one source ------------------------------------------------------------------------------

    def _kept_path(self, source: FileListing) -> str:
        return kept_data.path_of(self._place, source.code)

    def _has_kept(self, source: FileListing) -> bool:
        """Return whether the source was kept on this node, and can be used."""
        if not self._keep_days:
            return False
        try:
            return self._use_kept(source)
        except kept_data.UnusableError:
            return False  # _copy() says it

    def _use_kept(self, source: FileListing) -> bool:
        """Return whether the source was kept on this node; then the folder of the job has a link.

        Raises:
            UnusableError: it cannot be used, nor copied anew.
        """
        path = self._kept_path(source)
        held = kept_data.hold_verified(path, self._keep_days, self._say)
        if held is None:
            return False
        self._held.append(held)
        data = os.path.abspath(os.path.join(path, kept_data.DATA, source.label))
        os.symlink(data, os.path.join(self._folder, source.label))
        self._have += source.size
        return True

    def _copy(self, source: FileListing) -> None:
        """Copy a source into a folder that is kept, or into the folder of the job."""
        if self._keep_days:
            try:
                self._copy_to_keep(source)
                return
            except kept_data.UnusableError as error:
                self._say(f"{error}; this job gets a copy of its own")
            self._need_room(source.size)
        self._tar(source, self._folder, WRITABLE)
        self._have += source.size

    def _copy_to_keep(self, source: FileListing) -> None:
        """Copy a source into a folder that is kept, or wait until another job has done so.

        Raises:
            UnusableError: the folder cannot be used, nor made.
        """
        path = self._kept_path(source)
        while not self._use_kept(source):
            part = kept_data.begin_copy(path, self._say)
            if part is None:
                time.sleep(kept_data.LOOK_S)
                continue
            try:
                is_listed = self._fill_part(source, part)
            finally:
                part.close()
            if not is_listed:
                return

    def _fill_part(self, source: FileListing, part: kept_data.CopyPart) -> bool:
        """Copy a source, and return whether the copy is as listed.

        If it is not, the folder of the job has it: the source changes.
        """
        self._need_room(source.size)
        self._tar(source, part.make_data(), READ_ONLY, part)
        source_list = os.path.join(lists_folder(), source.folder, kept_data.LIST)
        problem = part.complete(source_list, self._keep_days)
        if not problem:
            return True
        part.give_away(source.label, self._folder)
        self._have += source.size
        self._say(f"{problem} after copying: this copy of {source.label!a} is not kept")
        return False

    def _tar(
        self,
        source: FileListing,
        target: str,
        modes: str,
        part: kept_data.CopyPart | None = None,
    ) -> None:
        """Copy a source into a folder.

        Raises:
            StageError: tar has failed.
        """
        folder = os.path.join(lists_folder(), source.folder)
        before = node_folder.room(target)
        names = f"--files-from={folder}/{NAMES}"
        read = [*_READ, f"--mode={modes}", f"--directory={folder}/{kept_data.DATA}", names]
        with subprocess.Popen(read, stdout=subprocess.PIPE) as reader:
            writer = subprocess.Popen([*_WRITE, f"--directory={target}"], stdin=reader.stdout)
            assert reader.stdout is not None
            reader.stdout.close()
            try:
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        status = writer.wait(PROGRESS_S / 2)
                        break
                    tell(COPIED, self._have + max(0, before - node_folder.room(target)))
                    if part:
                        part.refresh()
            finally:
                writer.kill()
                writer.wait()
        if status or reader.returncode not in (0, _CHANGED):
            what = f"write to {target}" if status else "read the data"
            raise StageError(f"tar cannot {what}: the log has its messages")


def _is_complete(folder: str) -> bool:
    return stat.S_IMODE(os.lstat(folder).st_mode) == COMPLETE


def _sweep(place: str) -> None:
    """Remove what killed jobs of this user, and earlier starts of this one, have left here."""
    kept_data.sweep(place)
    names = [name for name in records.names_in(place) if name.startswith(PREFIX)]
    running = None
    if names and not is_local():
        running = slurm_requests.jobs_with_nodes()
    for name in names:
        path = os.path.join(place, name)
        job_id = name[len(PREFIX) :].rpartition("-")[0]
        if job_id.startswith("L"):
            is_over = not node_folder.is_young(path)  # a job without Slurm holds its folder
        else:
            is_over = running is not None and job_id not in running
        if is_over or job_id == os.environ["HPCRUN_JOB_ID"]:
            node_folder.remove(path)
