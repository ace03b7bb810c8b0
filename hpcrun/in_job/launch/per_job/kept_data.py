"""The copies of --stage that stay on a node's disk for later jobs of the same user: --keep.

Each source has a folder of its own: so jobs with one large and different small sources share the
large one, and $HPCRUN_STAGE/NAME is a link to its data. The folder of a source is ``PREFIX``, the
user's id and a code of the source's list: its path, and the name, size and time of each file. A
source that has changed is another folder. In it are ``data``, and ``list``, by which a job verifies
the data: the code of the list is the folder's name.

The folder is copied as NAME.part and renamed, so that a copy of which a part is missing is never
used. It is read-only: no job changes what the next one reads. It is held by a shared lock of each
process that uses it: while its data are verified or copied by ``launch stage``, then by the
processes of the node and of the ranks (node_folder.py). The job's own folder is older than they,
and its links say the same until the job is over: between two attempts, and while a script works
without its ranks.

Only its owner removes a folder, when another copy needs the room. The last use is the time of the
folder, and the end of the days for which it is kept is that of its list.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import node_folder, records
from .node_step import megabytes

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = node_folder.KEPT
LIST = "list"
DATA = "data"
PART = ".part"
OLD = ".old"
"""How the names end of a folder that is being copied, and of one that is being removed."""
MODE = 0o500
DAY_S = 86400
SECOND_NS = 10**9
CODE_LENGTH = 32
"""Characters of the code of a list, in hexadecimal."""
STALLED_S = 30.0
"""A copy of another job that stands still for so long is not waited for: Slurm may have suspended
the job.
"""
LOOK_S = 0.2
_OTHERS_MAY_WRITE = 0o022


class UnusableError(Exception):
    """The folder of a source cannot be used or made; the message says why."""


# --- the list of a source ------------------------------------------------------------------------


class ListCode:
    """The code of a list, from its records."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, record: bytes) -> None:
        """Add the next record."""
        self._sum.update(record)

    def text(self) -> str:
        """Return the code of all records until now."""
        return self._sum.hexdigest()[:CODE_LENGTH]


def source_record(source: str) -> bytes:
    """Return the first record of a list: the path of the source."""
    return os.fsencode(source) + b"\0"


def entry_record(name: bytes, info: os.stat_result) -> bytes:
    """Return the record of one file or folder: size and time in ns, or ``-`` for a folder.

    Args:
        name: its path below the folder of the data, which begins with ``./``.
        info: what is known of it.
    """
    what = "- -"
    if stat.S_ISREG(info.st_mode):
        what = f"{info.st_size} {info.st_mtime_ns}"
    return what.encode() + b" " + name + b"\0"


def read_list(descriptor: int) -> list[bytes]:
    """Return the records of the list in an open folder, the source first.

    Raises:
        OSError: there is none.
    """
    # a FIFO does not block
    number = os.open(LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
    with open(number, "rb") as file:
        return file.read().split(b"\0")[:-1]


def difference(descriptor: int, code: str) -> str:
    """Return in what an open folder differs from its list; empty if in nothing."""
    try:
        lines = read_list(descriptor)
    except OSError as error:
        return f"its list cannot be read ({error.strerror})"
    list_code = ListCode()
    for line in lines:
        list_code.add(line + b"\0")
    if list_code.text() != code:
        return "its list has changed"
    listed = {}
    for line in lines[1:]:
        size, time_ns, name = line.split(b" ", 2)
        listed[name] = (size, time_ns)
    for place, folders, files, place_descriptor in os.fwalk(os.fsencode(DATA), dir_fd=descriptor):
        inside = b"." + place[len(DATA) :]
        for entry in (*folders, *files):
            name = inside + b"/" + entry
            try:
                info = os.stat(entry, dir_fd=place_descriptor, follow_symlinks=False)
            except OSError as error:
                return f"{_shown(name)} cannot be read ({error.strerror})"
            if not _is_as_listed(info, listed.pop(name, None)):
                return f"{_shown(name)} is not as in the list"
    if listed:
        return f"{_shown(min(listed))} is missing"
    return ""


def _is_as_listed(info: os.stat_result, record: tuple[bytes, bytes] | None) -> bool:
    if record is None:
        return False
    size, time_ns = record
    if size == b"-":
        return stat.S_ISDIR(info.st_mode)
    if not stat.S_ISREG(info.st_mode) or info.st_size != int(size):
        return False
    seconds, part_ns = divmod(info.st_mtime_ns, SECOND_NS)
    if part_ns == 0:  # not all file systems have more than seconds
        return seconds == int(time_ns) // SECOND_NS
    return info.st_mtime_ns == int(time_ns)


def _shown(path: bytes | str) -> str:
    """Return a path for one line of a log."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "?" for char in text)


# --- a folder ------------------------------------------------------------------------------------


def path_of(place: str, code: str) -> str:
    """Return the folder of a source on this node."""
    return os.path.join(place, f"{PREFIX}{os.getuid()}-{code}")


def hold_verified(path: str, days: int, say: Callable[[str], None]) -> int | None:
    """Return a descriptor that holds a folder whose data are as listed; None if there is none.

    A folder whose data are not as listed is removed.

    Args:
        path: the folder of the source.
        days: the folder is kept for so long from now.
        say: gets a line about a folder that is removed.

    Raises:
        UnusableError: something else has this name, or another job uses damaged data.
    """
    try:
        descriptor = node_folder.hold(path)
    except (FileNotFoundError, BlockingIOError):  # or it is being removed
        return None
    except OSError:
        raise UnusableError(_what_is_wrong(path)) from None
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode != MODE:
        os.close(descriptor)
        raise UnusableError(f"{path} has the mode {mode:o} instead of {MODE:o}: remove it")
    problem = difference(descriptor, path.rpartition("-")[2])
    if not problem:
        _keep(descriptor, days)
        return descriptor
    if not discard(path, descriptor):
        raise UnusableError(f"{problem} in {path}, which another job uses")
    say(f"{problem} in {path}: copied anew")
    return None


def _what_is_wrong(path: str) -> str:
    """Return why something is not used that has the name of a folder of this user."""
    try:
        info = os.lstat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if info.st_uid != os.getuid():
        return f"{path} belongs to the user with the id {info.st_uid}"
    if stat.S_ISDIR(info.st_mode):
        return f"{path} cannot be opened: remove it"
    return f"{path} is no folder: remove it"


def _keep(descriptor: int, days: int) -> None:
    """Note the use of an open folder, and the days for which it is kept."""
    now_s = time.time()
    before_s = os.stat(LIST, dir_fd=descriptor, follow_symlinks=False).st_mtime
    until_s = max(before_s, now_s + days * DAY_S)
    os.utime(LIST, (now_s, until_s), dir_fd=descriptor, follow_symlinks=False)
    os.utime(descriptor)


def discard(path: str, descriptor: int) -> bool:
    """Close an open folder, and remove it unless another process uses it.

    Its name is taken from it first: what is left if this process is killed is not used.
    """
    aside = f"{path}.{os.urandom(4).hex()}{OLD}"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.lstat(path), os.fstat(descriptor)):
            return False
        os.rename(path, aside)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    node_folder.remove(aside)
    return True


# --- a copy --------------------------------------------------------------------------------------


@dataclass
class CopyPart:
    """The folder of a copy that is being made, held by this process until ``close``."""

    path: str
    descriptor: int
    is_complete: bool = False

    def make_data(self) -> str:
        """Make the folder for the data, and return it."""
        os.mkdir(DATA, 0o700, dir_fd=self.descriptor)
        return os.path.join(self.path, DATA)

    def refresh(self) -> None:
        """Show the jobs that wait for this copy that this process goes on."""
        os.utime(self.descriptor)

    def complete(self, list_path: str, days: int) -> str:
        """Give the folder its own name, if the data are as listed.

        Args:
            list_path: the list of the source.
            days: how long to keep the data.

        Returns:
            In what the data differ from the list; empty if they do not, and a folder has the name.

        Raises:
            OSError: the disk is full.
        """
        target = os.open(LIST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.descriptor)
        with open(list_path, "rb") as source, open(target, "wb") as copy:
            for block in iter(lambda: source.read(1 << 20), b""):
                copy.write(block)
        path = self.path[: -len(PART)]
        problem = difference(self.descriptor, path.rpartition("-")[2])
        if problem:
            return problem
        os.chmod(LIST, 0o400, dir_fd=self.descriptor)
        os.chmod(DATA, MODE, dir_fd=self.descriptor)
        _keep(self.descriptor, days)
        os.fchmod(self.descriptor, MODE)
        try:
            os.rename(self.path, path)
            self.is_complete = True
        except OSError:
            if not os.path.lexists(path):  # otherwise another job was faster
                raise
        return ""

    def give_away(self, label: str, folder: str) -> None:
        """Move the data into the folder of the job."""
        data = os.path.join(self.path, DATA, label)
        if os.path.isdir(data):
            os.chmod(data, 0o700)  # its entry for the folder above it changes
        os.rename(data, os.path.join(folder, label))

    def close(self) -> None:
        """Remove the folder if it has not got its own name; otherwise hold it no longer."""
        os.close(self.descriptor)
        if not self.is_complete:
            node_folder.remove(self.path)


def is_being_copied(path: str) -> bool:
    """Whether a job copies the folder now; after ``sweep``."""
    return os.path.lexists(path + PART)


def begin_copy(path: str, say: Callable[[str], None]) -> CopyPart | None:
    """Make the folder for a copy, or wait until another job has made the same copy.

    Args:
        path: the folder of the source.
        say: gets a line if this process waits.

    Returns:
        The folder; None if another job may have completed the copy, which was not there before.

    Raises:
        UnusableError: the name is taken, or the copy of another job stands still.
        OSError: the disk is full.
    """
    part = path + PART
    seen_ns = -1
    moved_at = time.monotonic()
    while not os.path.lexists(path):
        node_folder.remove(part)  # unless a process copies into it
        with suppress(FileExistsError, FileNotFoundError, BlockingIOError):
            return CopyPart(part, node_folder.create(part))
        try:
            info = os.lstat(part)
        except FileNotFoundError:
            continue
        if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode):
            raise UnusableError(_what_is_wrong(part))
        if seen_ns < 0:
            say("another job copies the same data")
        if info.st_mtime_ns != seen_ns:
            seen_ns = info.st_mtime_ns
            moved_at = time.monotonic()
        elif time.monotonic() - moved_at > STALLED_S:
            raise UnusableError(f"the copy of another job to {part} stands still")
        time.sleep(LOOK_S)
    return None


# --- the folders of this user --------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A folder of this user on this node.

    Attributes:
        source: the path of what was copied.
        size: its bytes on the disk.
        used_s: the time of its last use, in seconds of the epoch.
        until_s: the end of the days for which it is kept.
    """

    path: str
    source: str
    size: int
    used_s: float
    until_s: float


def kept_here(place: str) -> list[Kept]:
    """Return the folders of this user below a folder of this node, the first to remove first.

    Those come first whose days are over, then those whose last use is longer ago.
    """
    folders = []
    now_s = time.time()
    for name in _names_of_user(place):
        path = os.path.join(place, name)
        if name.endswith((PART, OLD)):
            continue
        with suppress(OSError):
            descriptor = node_folder.hold(path)
            try:
                folders.append(_read_folder(path, descriptor))
            finally:
                os.close(descriptor)
    return sorted(folders, key=lambda kept: (kept.until_s > now_s, kept.used_s))


def _read_folder(path: str, descriptor: int) -> Kept:
    source = os.fsencode(path)
    until_s = 0.0
    with suppress(OSError, IndexError):  # a damaged list
        until_s = os.stat(LIST, dir_fd=descriptor, follow_symlinks=False).st_mtime
        source = read_list(descriptor)[0]
    used_s = os.fstat(descriptor).st_mtime
    return Kept(path, _shown(source), _size_on_disk(descriptor), used_s, until_s)


def _size_on_disk(descriptor: int) -> int:
    size = 0
    for _, _, names, place in os.fwalk(".", dir_fd=descriptor):
        for name in names:
            size += 512 * os.stat(name, dir_fd=place, follow_symlinks=False).st_blocks
    return size


def make_room(place: str, need: int) -> list[str]:
    """Remove folders of this user that no job uses until there is enough room.

    Nothing is removed if that would not be enough.

    Args:
        place: the folder on this node.
        need: bytes that must be free.

    Returns:
        What was removed, a line for each folder.
    """
    removed: list[str] = []
    if node_folder.room(place) >= need:
        return removed
    used = node_folder.kept_of_jobs(place)
    unused = [kept for kept in kept_here(place) if os.path.basename(kept.path) not in used]
    if node_folder.room(place) + sum(kept.size for kept in unused) < need:
        return removed
    now_s = time.time()
    for kept in unused:
        if node_folder.room(place) >= need:
            break
        with suppress(OSError):
            if discard(kept.path, node_folder.hold(kept.path)):
                age = f"last used {(now_s - kept.used_s) / DAY_S:.1f} days ago"
                removed.append(f"removed {kept.source} ({megabytes(kept.size)}, {age}) for room")
    return removed


def sweep(place: str) -> None:
    """Remove what killed jobs of this user have left of copies and removals."""
    for name in _names_of_user(place):
        if name.endswith((PART, OLD)):
            node_folder.remove(os.path.join(place, name))


def _names_of_user(place: str) -> list[str]:
    return [name for name in records.names_in(place) if name.startswith(f"{PREFIX}{os.getuid()}-")]
