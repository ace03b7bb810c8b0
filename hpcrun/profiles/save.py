"""Saves a file that users write: completely or not at all, and one process at a time.

Home directories are NFS or Lustre, where flock may not work between hosts. O_EXCL does, since NFSv3 (open(2)).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOTDIR
from pathlib import Path

from hpcrun.errors import ProfileError
from hpcrun.reading import read_text
from hpcrun.writing import replace_file

# A lock is held for the moment of reading, checking and replacing one small file.
WAIT_S = 10.0
STALE_S = 60.0


@contextmanager
def locked(path: Path, host: str) -> Iterator[None]:
    """Hold the lock of a file; ProfileError if another program holds it for longer than a change takes."""
    lock = path.with_name(f".{path.name}.lock")
    token = f"{host} {os.getpid()} {os.urandom(4).hex()}"
    deadline = time.monotonic() + WAIT_S
    with saving(path):
        make_folder(path.parent)
        while not _take(lock, token):
            _remove_stale(lock, host)
            if time.monotonic() > deadline:
                raise ProfileError(
                    f"{path} is being changed by another program ({_content(lock) or 'unknown'})",
                    hint=f"if that program no longer runs: rm {lock}",
                )
            time.sleep(random.uniform(0.01, 0.05))
    try:
        yield
    finally:
        if _content(lock) == token:
            lock.unlink(missing_ok=True)


def _take(lock: Path, token: str) -> bool:
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
    except OSError:
        lock.unlink(missing_ok=True)
        raise
    return True


def _content(lock: Path) -> str:
    try:
        return read_text(lock)
    except OSError:
        return ""


def _remove_stale(lock: Path, host: str) -> None:
    """Remove a lock whose holder has ended, or, on another host, has held it longer than any change takes."""
    seen = _content(lock)
    if not _is_stale(lock, seen, host):
        return
    aside = lock.with_name(f"{lock.name}.{os.urandom(4).hex()}")
    with suppress(OSError):
        lock.rename(aside)
        if _content(aside) != seen:  # another process was faster, and this lock belongs to a running process
            os.link(aside, lock)
        aside.unlink()


def _is_stale(lock: Path, content: str, host: str) -> bool:
    words = content.split()
    is_ours = len(words) == 3 and words[0] == host and words[1].isdecimal()
    try:
        if is_ours:
            os.kill(int(words[1]), 0)
        return not is_ours and time.time() - lock.stat().st_mtime > STALE_S
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False


def make_folder(folder: Path, mode: int = 0o755) -> None:
    """Make a folder and its missing parents, to which other users cannot write, whatever the umask."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):  # one by one: mkdir makes parents with the umask
        part.mkdir(mode=mode, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder))


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file, or make it, or raise ProfileError: then the old file has not changed.

    Its permissions stay, and a link still points to it. The umask reduces the mode of a new file: hpcrun would not use
    one that other users can write.
    """
    with saving(path):
        path = path.resolve()
        make_folder(path.parent)
        replace_file(path, text, mode=mode, keep_mode=True)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a message with the state of the file."""
    try:
        yield
    except OSError as error:
        became = "; the file is unchanged" if os.path.exists(path) else ""
        raise ProfileError(
            f"{path} cannot be saved: {error.strerror}{became}",
            hint=f"see who may write to {path.parent} (ls -ld) and whether there is space (df)",
        ) from None
