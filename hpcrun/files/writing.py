"""Writing files that others read meanwhile: each is the old one or the new one, whole.

And holding a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def for_oneself(path: str, flags: int) -> int:
    """Open a file for ``open``: no other user can write a new one, whatever the umask."""
    return os.open(path, flags, 0o644)


def make_folder(folder: Path, mode: int = 0o755) -> None:
    """Make a folder and its missing parents, to which other users cannot write.

    The umask has no effect.

    Raises:
        NotADirectoryError: the path leads to something that is no folder.
    """
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):  # one by one: mkdir makes parents with the umask
        part.mkdir(mode=mode, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def write_file(path: Path | int, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file.

    Args:
        path: the file, or a descriptor, which is closed.
        content: what is written; text is encoded as UTF-8.
        durable: wait until it is on the disk, so that not even a power failure loses it.

    Raises:
        OSError: the file could not be written.
    """
    with open(path, "wb", opener=None if isinstance(path, int) else for_oneself) as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def replace_file(
    path: Path,
    content: str | bytes,
    *,
    durable: bool = True,
    mode: int = 0o600,
    keep_mode: bool = False,
) -> None:
    """Replace a file, or make it, by one that is whole before it takes the name.

    Args:
        path: the file to replace or to make.
        content: what is written; text is encoded as UTF-8.
        durable: wait until the file is on the disk, as in ``write_file``.
        mode: of the file, less what the umask takes.
        keep_mode: a file that is replaced keeps its permissions, and its owner where this user may
            give files away.

    Raises:
        OSError: the file could not be written; the old file is untouched.
    """
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_file(descriptor, content, durable=durable)
        if keep_mode:
            with suppress(FileNotFoundError):
                _copy_mode(path.stat(), aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: str, wait_s: float = 2.0) -> None:
    """Append a line to a file that several processes write, or make the file.

    The line is whole or not there. Where the lock is held for too long, or the file system has no
    locks, the line is written without one.

    Raises:
        OSError: the line could not be written, or the path is no regular file.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        _lock(descriptor, wait_s)
        size = os.fstat(descriptor).st_size
        data = line.encode("utf-8", "replace") + b"\n"
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data  # the line before was cut off
        if os.write(descriptor, data) < len(data):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait_s: float) -> None:
    """Wait for the lock of a file, which ends when the file is closed."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return


def _copy_mode(old: os.stat_result, new: Path) -> None:
    with suppress(OSError):  # root's, when it changes a person's file
        os.chown(new, old.st_uid, old.st_gid)
    new.chmod(old.st_mode & 0o777)


@contextmanager
def flocked(path: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock of a file, flock(2), which ends with the process.

    Where the file system has no locks, the caller goes on without one.

    Yields:
        whether the caller may go on; False where another process has held the lock for all that
        time.

    Raises:
        OSError: the file cannot be made.
    """
    deadline = time.monotonic() + wait_s
    with open(path, "wb", opener=for_oneself) as file:
        free = False
        while not free:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.1)
            except OSError:
                free = True
        yield free
