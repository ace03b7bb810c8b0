"""A folder that another person may change while hpcrun reads it: no link in it is followed.

The commands with ``--runs FOLDER`` name such a folder, one for the whole process. A look at a path
before it is opened is not enough, since a part of the path can be replaced in between. So each
folder on the way is opened by itself, and never by way of a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST = 4 << 30
"""How many bytes a file in such a folder may have: a hole of a terabyte costs its owner nothing."""
_WAY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignFolder:
    """The folder of this process that another person may change."""

    path = ""  # empty if there is none


def is_foreign(path: str | os.PathLike[str]) -> bool:
    """Return whether a path begins with the folder that another person may change."""
    folder = ForeignFolder.path
    return bool(folder) and os.fspath(path).startswith(f"{folder}/")


@contextmanager
def opened_parent(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open the folder of a foreign path, without a link below the foreign folder.

    The descriptor gives no right to read: it is for ``dir_fd``.

    Raises:
        OSError: a part of the way is a link (ELOOP), is no folder, or cannot be reached.
    """
    *folders, _ = parts_below(path)
    place = ForeignFolder.path
    current = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folders:
            place = f"{place}/{name}"
            below = _open_folder(name, place, current, os.O_PATH)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def parts_below(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of a foreign path, from the foreign folder on.

    A ``..`` takes away the name before it: what is there is never a link.

    Raises:
        OSError: the path leads out of the folder.
    """
    relative = os.path.normpath(os.fspath(path)[len(ForeignFolder.path) + 1 :])
    parts = relative.split("/")
    if ".." in parts:
        raise OSError(errno.EACCES, "leads out of the folder", os.fspath(path))
    return parts


def names_in_foreign(path: str | os.PathLike[str]) -> list[str]:
    """Return the names in a foreign folder.

    Raises:
        OSError: a part of the way is a link (ELOOP), is no folder, or cannot be read.
    """
    with opened_parent(path) as parent:
        folder = _open_folder(parts_below(path)[-1], os.fspath(path), parent, os.O_RDONLY)
        try:
            return os.listdir(folder)
        finally:
            os.close(folder)


def _open_folder(name: str, place: str, parent: int, how: int) -> int:
    try:
        return os.open(name, how | _WAY, dir_fd=parent)
    except NotADirectoryError:
        # open(2): O_NOFOLLOW with O_DIRECTORY returns ENOTDIR for a link, too
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "is a symbolic link", place) from None
        raise
