"""Who can write to a folder: hpcrun reads, and runs, only what no other user could have put there."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpcrun.errors import PlanError

ELSEWHERE = "HPCRUN_RUNS=/path uses another folder"


class UnsafeFolderError(PlanError):
    """A runs folder in which another user could have written files."""


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn what the disk refuses into a message.

    Raises:
        PlanError: it refused.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"free some space there; {ELSEWHERE}" if full else ELSEWHERE
        raise PlanError(f"cannot write to the runs folder {root}: {error.strerror}", hint=hint) from None


def danger_in(folder: Path) -> str | None:
    """Return how a user other than this one and root could write to a folder, None if none can.

    A sticky bit does not help: files can still be added, and hpcrun would read or run them.

    Raises:
        OSError: it does not exist, or cannot be checked.
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


def check_dedicated(root: Path) -> None:
    """Refuse to keep runs in a folder that also has another use.

    Raises:
        UnsafeFolderError: it is a home, a repository, the top of a file system, or another user's link.
    """
    if use := other_use(root):
        own = shlex.quote(str(root / "hpcrun-runs"))
        raise UnsafeFolderError(
            f"runs are not kept in {root}: it is {use}",
            hint=f"use a folder only for runs: HPCRUN_RUNS={own}, or runs: in config.yaml",
        )


def other_use(root: Path) -> str | None:
    """Return another use of a runs folder, None if it is only for runs or does not exist yet."""
    if link := foreign_link(root):
        return link
    real = Path(os.path.realpath(root))
    try:
        found = real.stat()
    except OSError:
        return None
    if os.path.ismount(real):
        return "the top of a file system"
    for home in _homes(found.st_uid):
        with suppress(OSError):
            if os.path.samestat(home.stat(), found):
                return "a home folder"
    return "a repository" if _is_repository(real) else None


def _homes(owner: int) -> list[Path]:
    """Return the home folders of this user and of an owner. Folders of other users are never used."""
    homes = []
    with suppress(RuntimeError):
        homes.append(Path.home())
    for uid in {os.geteuid(), owner}:
        with suppress(KeyError):
            homes.append(Path(pwd.getpwuid(uid).pw_dir))
    return homes


def _is_repository(folder: Path) -> bool:
    if any(os.path.lexists(folder / name) for name in (".git", ".hg", ".svn", ".jj")):
        return True
    return all(os.path.lexists(folder / name) for name in ("HEAD", "objects", "refs"))  # a bare repository of git


def foreign_link(path: Path) -> str | None:
    """Return another user's link on a path, None if there is none.

    A link may belong to the owner of its folder, like links that a site makes: this is the rule of the
    kernel's protected_symlinks, proc_sys_fs(5), here for every folder.
    """
    trusted = (os.geteuid(), 0)
    whole = Path(os.path.abspath(path))
    for step in (*reversed(whole.parents), whole):
        with suppress(OSError):
            found = step.lstat()
            if not stat.S_ISLNK(found.st_mode) or found.st_uid in trusted:
                continue
            if step == whole or found.st_uid != step.parent.stat().st_uid:
                return f"reached through {step}, a link of another user (uid {found.st_uid})"
    return None


def check_parent(parent: Path) -> None:
    """Refuse to put a run's folder where any user could replace it; a project's group is trusted.

    Raises:
        UnsafeFolderError: any user could.
    """
    mode = stat.S_IMODE(parent.stat().st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise UnsafeFolderError(f"everyone can write to {parent} (mode {mode:04o})", hint=f"chmod o-w {parent}")


def private_hint(folder: Path) -> str:
    """Return what to do about a folder that others can write to."""
    mine = folder.stat().st_uid == os.geteuid()
    return f"check its contents, then: chmod go-w {shlex.quote(str(folder))}" if mine else ELSEWHERE
