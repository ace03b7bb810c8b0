"""Who else can write to a folder: hpcrun reads, and runs, only what no other user could have put there."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from hpcrun.errors import PlanError

ELSEWHERE = "HPCRUN_RUNS=/path names another folder"


class UnsafeFolderError(PlanError):
    """A runs folder in which another user could have put something."""


def danger_in(folder: Path) -> str | None:
    """Say how a user other than this one and root could write to a folder, None where none can.

    A sticky bit does not help: files can still be added, and hpcrun would read or run them.

    Raises:
        OSError: it is not there, or may not be looked at.
    """
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0):
        return f"{folder} belongs to another user (uid {found.st_uid})"
    mode = stat.S_IMODE(found.st_mode)
    return f"other users can write to {folder} (mode {mode:04o})" if mode & 0o022 else None


def check_private(root: Path) -> None:
    """Refuse a runs folder that others can write to.

    Raises:
        UnsafeFolderError: they can.
    """
    with suppress(OSError):
        if danger := danger_in(root):
            raise UnsafeFolderError(f"the runs folder is not used: {danger}", hint=private_hint(root))


def check_parent(parent: Path) -> None:
    """Refuse to put a run's folder where anybody could put another in its place; a project's group is trusted.

    Raises:
        UnsafeFolderError: anybody could.
    """
    mode = stat.S_IMODE(parent.stat().st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise UnsafeFolderError(f"anybody can write to {parent} (mode {mode:04o})", hint=f"chmod o-w {parent}")


def private_hint(folder: Path) -> str:
    """Return what to do about a folder that others can write to."""
    mine = folder.stat().st_uid == os.geteuid()
    return f"look into it, then: chmod go-w {shlex.quote(str(folder))}" if mine else ELSEWHERE
