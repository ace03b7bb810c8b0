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
from hpcrun.ownership import danger_in, replacer_of

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


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, for this user alone: pathlib makes those above with the umask."""
    for place in reversed(folder.parents):
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def check_private(root: Path) -> None:
    """Refuse a runs folder that others can write to.

    Raises:
        UnsafeFolderError: they can.
    """
    with suppress(OSError):
        if danger := danger_in(root, root.stat()):
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


def check_path(folder: Path, elsewhere: str = ELSEWHERE) -> None:
    """Refuse to put runs, whose programs the job will run, where another user could replace a folder on the path.

    Raises:
        UnsafeFolderError: another user could.
        OSError: it does not exist, or cannot be checked.
    """
    if replacer := replacer_of(folder):
        place, danger = replacer
        raise UnsafeFolderError(f"runs are not kept in {folder}: {danger}", hint=private_hint(place, elsewhere))


def private_hint(folder: Path, elsewhere: str = ELSEWHERE) -> str:
    """Return what to do about a folder that others can write to."""
    mine = folder.stat().st_uid == os.geteuid()
    return f"check its contents, then: chmod go-w {shlex.quote(str(folder))}" if mine else elsewhere
