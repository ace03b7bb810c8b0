"""One archive of compiled files, as ``.tar.gz``: plain files only, complete or not used.

Only archives of this user are read that no other user may write. An archive is unpacked into a
folder that nobody uses yet: gzip's checksum of all stands at its end.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import stat
import tarfile
import time
import zlib
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from .generations import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT = "hpcrun.root"
"""The header with the folder in which the files were compiled."""
_GROUP = "__grp__"
"""How the names of Triton's lists begin: they name the files of a kernel by absolute paths
(triton/runtime/cache.py, put_group)."""


class DamagedArchiveError(Exception):
    """An archive is cut, changed, or has what no archive of compiled files has."""


def write(
    path: str, aside: str, folder: str, names: Iterable[str], within_s: float | None = None
) -> None:
    """Write an archive of some files.

    Args:
        path: the archive, which is complete when it has this name.
        aside: its name before.
        folder: the folder of the files.
        names: the files, relative to the folder; one that is gone is left out.
        within_s: the time for it in seconds; None for no limit.

    Raises:
        OSError: it cannot be written, or not in time; nothing of it is left.
    """
    until = None if within_s is None else time.monotonic() + within_s
    try:
        headers = {_ROOT: folder}
        with tarfile.open(
            aside, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT, pax_headers=headers
        ) as tar:
            for name in names:
                with suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
                    tar.addfile(_member(name, os.fstat(file.fileno())), _Timed(file, until))
        os.chmod(aside, 0o600)
        os.replace(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


def _member(name: str, info: os.stat_result) -> tarfile.TarInfo:
    """Return the entry of a plain file, without its owner; links to one file are several files."""
    member = tarfile.TarInfo(name)
    member.size = info.st_size
    member.mode = stat.S_IMODE(info.st_mode)
    member.mtime = info.st_mtime
    return member


class _Timed(io.RawIOBase):
    """A file that can be read for a limited time.

    Args:
        file: the file.
        until: the end of the time, by the monotonic clock; None for no limit.
    """

    def __init__(self, file: IO[bytes], until: float | None) -> None:
        super().__init__()
        self._file = file
        self._until = until

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            TimeoutError: the time is over.
        """
        if self._until is not None and time.monotonic() > self._until:
            raise TimeoutError("that takes too long")
        return self._file.read(size)


def unpack(path: str, folder: str, root: str) -> list[str]:
    """Unpack an archive; return the names of the files that are new in the folder.

    Args:
        path: the archive.
        folder: where the files are written; a file that is there stays.
        root: the name that the folder is about to get.

    Raises:
        DamagedArchiveError: the archive is damaged, or others may have written it.
        OSError: the archive cannot be read, or the files cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not is_own(os.fstat(descriptor)):
            raise DamagedArchiveError("others may have written it")
        try:
            with gzip.GzipFile(fileobj=file) as data:
                return _unpack_all(data, folder, root)
        except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise DamagedArchiveError(f"it is damaged ({error})") from None


def _unpack_all(data: gzip.GzipFile, folder: str, root: str) -> list[str]:
    names = []
    with tarfile.open(fileobj=data, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None or not _is_inside(member.name):
                raise DamagedArchiveError(f"it has {member.name!r}")
            before = str(tar.pax_headers.get(_ROOT, ""))
            if _place(member, content, folder, (before, root)):
                names.append(member.name)
    while data.read(1 << 20):
        continue
    return names


def _is_inside(name: str) -> bool:
    return name.isprintable() and not name.startswith("/") and ".." not in name.split("/")


def _place(
    member: tarfile.TarInfo, content: IO[bytes], folder: str, roots: tuple[str, str]
) -> bool:
    """Write one file, and return whether it is new."""
    path = os.path.join(folder, member.name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        with open(path, "xb") as target:
            if os.path.basename(path).startswith(_GROUP):
                target.write(_moved_group(content.read(), *roots))
            else:
                shutil.copyfileobj(content, target)
    except FileExistsError:
        return False
    os.chmod(path, member.mode & 0o700)
    os.utime(path, (member.mtime, member.mtime))
    return True


def _moved_group(text: bytes, before: str, root: str) -> bytes:
    """Return a list of Triton with the paths of a folder that has another name now.

    A path outside this folder, where any user may have made a file, is left out: Triton compiles
    what the list lacks.
    """
    try:
        group = json.loads(text)
        paths = {name: str(path) for name, path in group["child_paths"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b'{"child_paths": {}}'
    moved = {}
    for name, path in paths.items():
        relative = path[len(before) + 1 :]
        if before and path.startswith(f"{before}/") and _is_inside(relative):
            moved[name] = os.path.join(root, relative)
    return json.dumps({"child_paths": moved}).encode()
