"""One archive of compiled files, as ``.tar.gz``: plain files only, complete or not used.

Only archives of this user are read that no other user may write. An archive is unpacked into a
folder that nobody uses yet: gzip's checksum of all stands at its end.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
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


def write(path: str, folder: str, names: Iterable[str]) -> int:
    """Write an archive of some files; return its size in bytes.

    Args:
        path: the archive, which is complete when it has this name.
        folder: the folder of the files.
        names: the files, relative to the folder; one that is gone is left out.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    aside = f"{path}.{os.uname().nodename}.{os.getpid()}"
    try:
        headers = {_ROOT: folder}
        with tarfile.open(
            aside, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT, pax_headers=headers
        ) as tar:
            for name in names:
                with suppress(FileNotFoundError):
                    tar.add(os.path.join(folder, name), name, recursive=False)
        os.chmod(aside, 0o600)
        size = os.stat(aside).st_size
        os.replace(aside, path)
        return size
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


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
            if not os.path.basename(path).startswith(_GROUP):
                shutil.copyfileobj(content, target)
            else:
                target.write(_moved_group(content.read(), *roots))
    except FileExistsError:
        return False
    os.chmod(path, member.mode & 0o700)
    os.utime(path, (member.mtime, member.mtime))
    return True


def _moved_group(text: bytes, before: str, root: str) -> bytes:
    """Return a list of Triton with the paths of a folder that has another name now.

    Raises:
        DamagedArchiveError: it names a file outside this folder, which any user may have made.
    """
    try:
        group = json.loads(text)
        paths = {name: str(path) for name, path in group["child_paths"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedArchiveError(f"it has a list of Triton's that is none ({error})") from None
    moved = {}
    for name, path in paths.items():
        relative = path[len(before) + 1 :]
        if not before or not path.startswith(before + "/") or not _is_inside(relative):
            raise DamagedArchiveError(f"it has a list of Triton's with {path!r}")
        moved[name] = os.path.join(root, relative)
    return json.dumps({**group, "child_paths": moved}).encode()
