"""The folder of the ranks of one node, on the node's own disk.

The names of its empty files are what its ranks share.

``rank-N.PID`` is the running program of rank N. ``stop-REASON`` asks all ranks to stop. ``heard-N``
records that rank N knows this: it has asked, or was signalled and has a handler. ``warned-PID`` and
``ended-N`` record that a process of a rank was sent the warning, or the program SIGTERM. So only
one process of a node reads the shared file system for all of its ranks, and
hpcrun_runtime.should_stop() lists this folder.

Each process of the node finds the folder by its name, which follows from the attempt and the node;
the first one makes it. A folder of another user with this name is not used: then the ranks meet in
another place. Each process that uses the folder holds a lock on it, which ends with the process,
however it ends. The last one to leave the folder gets the lock alone, and removes it. After all
were killed, the next job of the same user on this node removes it.
"""

from __future__ import annotations

import binascii
import fcntl
import os
import stat
import time

from . import records
from .processes import catches, environments, ignores, signal, variable

FOLDER = "HPCRUN_NODE_DIR"
"""The variable with its path."""
RANK = "HPCRUN_RANK"
"""The variable with the number of the rank, for its program."""
PREFIX = "hpcrun-node-"
COMPILED_PREFIX = "hpcrun-compiled-"
"""How the names of these folders begin, and those of the folders of compiled files."""
COMPILED_LEFT_S = 600.0
"""A folder of compiled files is filled so long before the ranks start and hold it."""
STAGE = "HPCRUN_STAGE"
STAGE_PREFIX = "hpcrun-stage-"
KEPT = "hpcrun-kept-"
"""The variable with the folder of a job's data, how its name begins, and how the names of folders
begin that stay for later jobs: per_job/kept_data.py.
"""
PLACES = ("/tmp", "/dev/shm")
"""In this order: systemd-logind may empty /dev/shm when a user logs out of the node (RemoveIPC=,
logind.conf(5)).
"""
NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "weka",
    "panfs",
    "pvfs",
    "fuse",
    "afs",
)
"""How the types of file systems begin that are not a node's own."""
YOUNG_S = 60.0
"""A folder without a lock is left alone for so long: who has made it is about to lock it."""


class NodeFolder:
    """A folder that exists, held until ``leave`` or the end of this process.

    Raises:
        FileNotFoundError: it does not exist here.
        BlockingIOError: it is being removed.
        OSError: it belongs to another user.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._held = _open(path)
        self._claimed: set[str] = set()
        self._watching: int | None = None
        self._has_failed = False
        self._data: list[int] = []
        try:
            fcntl.flock(self._held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a shared file system without locks, see make(): the folder is not removed
            return
        if not os.path.samestat(os.stat(path), os.fstat(self._held)):
            raise BlockingIOError(f"{path} was removed before it was locked")

    def hold_data(self) -> NodeFolder:
        """Hold what the job reads on this node, until this process ends; return this folder."""
        if STAGE in os.environ:
            self._data = hold_kept(os.environ[STAGE])
        return self

    def claim(self, name: str) -> bool:
        """Make a file; return whether it is new.

        The process that makes it does the action that the file stands for.

        An error is reported once: the training must continue.
        """
        if name in self._claimed:
            return False
        self._claimed.add(name)
        path = os.path.join(self.path, name)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        except OSError as error:
            if not self._has_failed and os.environ.get("LOCAL_RANK", "0") == "0":
                self._has_failed = True
                where = f"{os.environ['HPCRUN_NODE']} cannot write to {self.path}: {error.strerror}"
                records.say(f"{where}; its ranks may not learn of requests to stop, and run on")
        return True

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        return os.path.exists(os.path.join(self.path, name))

    def is_stopping(self) -> bool:
        """Whether the ranks have been asked to stop."""
        return any(name.startswith("stop-") for name in records.names_in(self.path))

    def note_heard(self, rank: int, pid: int, number: int) -> None:
        """Record that a program learns of the stop from a signal.

        SIGTERM ends a program that has no handler for it.
        """
        if number == signal.SIGTERM:
            learns = not ignores(pid, number)
        else:
            learns = catches(pid, number)
        if learns:
            self.claim(f"heard-{rank}")

    def programs(self) -> dict[int, int]:
        """Return the running programs: rank → process id."""
        programs = {}
        for name in records.names_in(self.path):
            if name.startswith("rank-"):
                rank, pid = name[len("rank-") :].split(".")
                programs[int(rank)] = int(pid)
        return programs

    def rank_processes(self) -> dict[int, int]:
        """Return all processes of the running programs: process id → rank.

        A program may run behind a shell, and have child processes.
        """
        programs = self.programs()
        processes = {}
        for pid, environ in environments():
            rank = variable(environ, RANK)
            if rank.isdecimal() and variable(environ, FOLDER) == self.path:
                processes[pid] = int(rank)
        return {pid: rank for pid, rank in processes.items() if rank in programs}

    def leads(self) -> bool:
        """Return whether this process watches for its node.

        One process watches at a time, and when it has ended, another process does.
        """
        try:
            if self._watching is None:
                path = os.path.join(self.path, "watch")
                self._watching = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._watching, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # without room, or locks, better each than none
            return not isinstance(error, BlockingIOError)
        return True

    def leave(self, *names: str) -> None:
        """Remove files, and the folder itself if no other process uses it."""
        for name in names:
            records.remove(os.path.join(self.path, name))
        env = os.environ
        is_terminated = self.has(f"stop-{records.TERMINATED}")
        is_last = remove_held(self.path, self._held)
        # a script may go on without its ranks
        needs_data = "HPCRUN_LAUNCH" in env or not is_terminated
        if is_last and not needs_data and STAGE in env:
            remove(env[STAGE])


def make() -> NodeFolder:
    """Return the folder of this node in this attempt, which the first of its processes makes.

    Raises:
        OSError: it can be made nowhere, not even in the run's folder.
    """
    env = os.environ
    attempt = records.attempt_dir()
    checksum = binascii.crc32(os.fsencode(attempt))
    name = f"{PREFIX}{env['HPCRUN_JOB_ID']}-{env['HPCRUN_NODE']}-{checksum:08x}"
    try:
        return enter(name).hold_data()
    except OSError as error:
        problem = error.strerror or error
    where = f"{env['HPCRUN_NODE']} cannot use {' or '.join(PLACES)} ({problem})"
    message = f"{where}; its ranks use the run's folder instead"
    return _enter(os.path.join(attempt, name), message).hold_data()


def enter(name: str) -> NodeFolder:
    """Return a folder on the node's own disk, whose name begins with ``PREFIX``.

    Raises:
        OSError: it can be made nowhere.
    """
    problem = OSError()
    for place in PLACES:
        try:
            return _enter(os.path.join(place, name))
        except OSError as error:
            problem = error
    raise problem


def _enter(path: str, message: str = "") -> NodeFolder:
    """Return a folder, and make it if necessary; one in the run's folder has a message.

    Raises:
        OSError: it cannot be made here.
    """
    place = os.path.dirname(path)
    try:
        return NodeFolder(path)
    except FileNotFoundError:
        if not message and is_shared(place):
            raise OSError("not on the node's own disk") from None
    if not message:
        sweep(place, PREFIX, YOUNG_S)
        sweep(place, COMPILED_PREFIX, COMPILED_LEFT_S)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return NodeFolder(path)
    if message:
        records.say(message)
    return NodeFolder(path)


def create(path: str, mode: int = 0o700) -> int:
    """Make a folder that only this user can enter; return a descriptor that holds it.

    Raises:
        OSError: something has this name already, or the folder cannot be made.
    """
    os.mkdir(path, mode)
    return hold(path)


def hold(path: str) -> int:
    """Return a descriptor of a folder of this user.

    While the descriptor is open, ``remove`` leaves the folder there.

    Raises:
        FileNotFoundError: there is no such folder.
        BlockingIOError: it is being removed.
        OSError: it belongs to another user, or it is no folder.
    """
    return _lock(path, fcntl.LOCK_SH)


def hold_alone(path: str) -> int:
    """Return a descriptor of a folder of this user that no other process holds.

    Raises:
        BlockingIOError: another process holds it.
        OSError: there is no such folder, or it belongs to another user.
    """
    return _lock(path, fcntl.LOCK_EX)


def _lock(path: str, how: int) -> int:
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        if not os.path.samestat(os.lstat(path), os.fstat(descriptor)):
            raise BlockingIOError(f"{path} was removed before it was locked")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def hold_kept(stage: str) -> list[int]:
    """Return descriptors that hold the kept folders to which a job's data are links.

    Folders that are not there, or cannot be held, are left out.
    """
    held = []
    for path in _kept_in(stage):
        try:
            held.append(hold(path))
        except OSError:
            continue
    return held


def kept_of_jobs(place: str) -> set[str]:
    """Return the names of the kept folders to which data of this user's jobs here are links."""
    used = set[str]()
    for name in records.names_in(place):
        if name.startswith(STAGE_PREFIX):
            for path in _kept_in(os.path.join(place, name)):
                used.add(os.path.basename(path))
    return used


def _kept_in(stage: str) -> set[str]:
    """Return the kept folders to which links in a folder of this user lead."""
    kept = set[str]()
    try:
        descriptor = _open(stage)
    except OSError:  # there is none, or it is another user's
        return kept
    for name in os.listdir(descriptor):
        try:
            target = os.readlink(name, dir_fd=descriptor)
        except OSError:
            continue  # no link
        folder = os.path.dirname(os.path.dirname(target))  # FOLDER/data/NAME
        if os.path.basename(folder).startswith(KEPT):
            kept.add(folder)
    os.close(descriptor)
    return kept


def remove(path: str) -> None:
    """Remove a folder of this user with all in it, unless a process holds it."""
    try:
        remove_held(path, _open(path))
    except OSError:  # there is none, or it is another user's
        return


def _open(path: str) -> int:
    """Open a folder of this user, and never what a link leads to.

    Raises:
        PermissionError: if the folder belongs to another user.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(descriptor).st_uid != os.getuid():
        os.close(descriptor)
        raise PermissionError(f"{path} belongs to another user")
    return descriptor


def remove_held(path: str, descriptor: int) -> bool:
    """Close a folder, and remove it if no other process holds it; return whether it is removed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(descriptor)
        os.rmdir(path)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _empty(top: int) -> None:
    """Remove all in an open folder, also in read-only ones, and never what a link leads to.

    Of each folder, the folders inside are moved up first: so however deep they lie, one is open.
    """
    os.fchmod(top, 0o700)
    waiting = _remove_files(top)
    while waiting:
        try:
            waiting += _remove_one(waiting.pop(), top)
        except OSError:  # another user's
            continue


def _remove_files(place: int) -> list[str]:
    """Remove the files of an open folder; return the names of its folders."""
    folders = []
    for name in os.listdir(place):
        try:
            os.unlink(name, dir_fd=place)
        except IsADirectoryError:
            folders.append(name)
        except OSError:
            continue
    return folders


def _remove_one(name: str, top: int) -> list[str]:
    """Remove a folder of an open one; return the names there of the folders that were inside."""
    _open_up(name, top)
    place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    moved = []
    try:
        for inside in _remove_files(place):
            _open_up(inside, place)
            moved.append(os.urandom(8).hex())
            os.rename(inside, moved[-1], src_dir_fd=place, dst_dir_fd=top)
    finally:
        os.close(place)
    os.rmdir(name, dir_fd=top)
    return moved


def _open_up(name: str, place: int) -> None:
    """Let this user read and change a folder of an open one."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=place)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
    finally:
        os.close(descriptor)


def sweep(place: str, prefix: str, least_age_s: float) -> None:
    """Remove the folders of this user that killed jobs have left here: no process holds them.

    Args:
        place: where they lie.
        prefix: how their names begin.
        least_age_s: a younger folder stays: who has made it may be about to hold it.
    """
    for name in records.names_in(place):
        path = os.path.join(place, name)
        if name.startswith(prefix) and not is_young(path, least_age_s):
            remove(path)


def is_young(path: str, least_age_s: float = YOUNG_S) -> bool:
    """Whether the process that has made a folder may be about to hold it."""
    try:
        return time.time() - os.lstat(path).st_mtime <= least_age_s
    except OSError:
        return False  # just removed


def room(place: str) -> int:
    """Return the free bytes on the disk of a folder."""
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def swap_problem(place: str) -> str:
    """Return that anybody can put something else in the place of a folder here; empty if not."""
    mode = os.stat(place).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return f"others can move what lies in {place}, which has no sticky bit"
    return ""


def is_shared(place: str) -> bool:
    """Whether a folder is on a network file system, by proc_pid_mountinfo(5)."""
    device = os.stat(place).st_dev
    mounts = records.read_text("mountinfo", "/proc/self")
    return network_mount(mounts, f"{os.major(device)}:{os.minor(device)}")


def network_mount(mounts: str, device: str) -> bool:
    """Whether a device, as ``MAJOR:MINOR``, is a network file system."""
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split(" ", 3)[2] == device and kind.startswith(NETWORK):
            return True
    return False
