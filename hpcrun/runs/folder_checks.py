"""The runs folder: other users' access, other uses, the file system and the free space.

hpcrun reads, and runs, only what no other user could have put there.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.files.ownership import danger_in, replacer_of
from hpcrun.files.writing import replace_file

_OF_REPOSITORIES = (".git", ".hg", ".svn", ".jj")
ELSEWHERE = "HPCRUN_RUNS=/path uses another folder"


class UnsafeFolderError(PlanError):
    """A runs folder in which another user could have written files."""


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn what the disk refuses into a PlanError.

    Raises:
        PlanError: the runs folder cannot be written to.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"free some space there; {ELSEWHERE}" if full else ELSEWHERE
        raise PlanError(
            f"cannot write to the runs folder {root}: {error.strerror}", hint=hint
        ) from None


def check_private(root: Path) -> None:
    """Refuse a runs folder that others can write to.

    Raises:
        UnsafeFolderError: another user can write to the folder.
    """
    with suppress(OSError):
        danger = danger_in(root, root.stat())
        if danger:
            raise UnsafeFolderError(
                f"the runs folder is not used: {danger}", hint=private_hint(root)
            )


def check_dedicated(root: Path) -> None:
    """Refuse to keep runs in a folder that also has another use.

    Raises:
        UnsafeFolderError: the folder has another use.
    """
    use = other_use(root)
    if use:
        dedicated = shlex.quote(str(root / "hpcrun-runs"))
        raise UnsafeFolderError(
            f"runs are not kept in {root}: it is {use}",
            hint=f"use a folder only for runs: HPCRUN_RUNS={dedicated}, or runs: in config.yaml",
        )


def other_use(root: Path) -> str | None:
    """Return another use of a runs folder, None if it is only for runs or does not exist yet."""
    real = Path(os.path.realpath(root))
    try:
        status = real.stat()
    except OSError:
        return None
    if os.path.ismount(real):
        return "the top of a file system"
    for home in (Path.home, lambda: Path(pwd.getpwuid(os.geteuid()).pw_dir)):
        with suppress(OSError, RuntimeError, KeyError):
            if os.path.samestat(home().stat(), status):
                return "a home folder"
    # a bare repository of git
    bare = all(os.path.lexists(real / name) for name in ("HEAD", "objects", "refs"))
    if bare or any(os.path.lexists(real / name) for name in _OF_REPOSITORIES):
        return "a repository"
    return None


def check_path(folder: Path, elsewhere: str = ELSEWHERE) -> None:
    """Refuse to put runs where another user could replace a folder on the path.

    The job will run the programs of the runs.

    Raises:
        UnsafeFolderError: another user could replace a folder on the path.
        OSError: the folder does not exist, or cannot be checked.
    """
    replacer = replacer_of(folder)
    if replacer:
        place, danger = replacer
        raise UnsafeFolderError(
            f"runs are not kept in {folder}: {danger}", hint=private_hint(place, elsewhere)
        )


def private_hint(folder: Path, elsewhere: str = ELSEWHERE) -> str:
    """Return what to do about a folder that others can write to."""
    mine = folder.stat().st_uid == os.geteuid()
    if mine:
        return f"check its contents, then: chmod go-w {shlex.quote(str(folder))}"
    return elsewhere


_MOUNTS = Path("/proc/mounts")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system as /proc/mounts lists it."""

    source: str
    point: str
    kind: str


@dataclass(frozen=True, slots=True)
class RunsFolderFacts:
    """The facts about a runs folder."""

    tested: Path  # the folder itself or, if it does not exist yet, the nearest existing parent
    exists: bool  # whether the folder itself exists
    # why a file could not be written, None if a file could be written and renamed
    error: OSError | None
    # why no run is made there, None if no other user can change it
    unsafe: UnsafeFolderError | None
    mount: Mount | None
    # free_bytes, free_files: free for an ordinary user; files are None if the file system does not
    # count them
    free_bytes: int
    free_files: int | None
    # another use of the folder, because of which it cannot hold runs; None if there is none
    other_use: str | None = None


def look_at_place(root: Path) -> RunsFolderFacts:
    """Check a runs folder; write and rename a file there, and remove it again."""
    tested = next((folder for folder in (root, *root.parents) if os.path.exists(folder)), Path("/"))
    error = _write_error(tested)
    unsafe = None
    space = os.statvfs(tested)
    try:
        if tested == root:
            check_private(root)
        check_path(tested)
    except UnsafeFolderError as problem:
        unsafe = problem
    return RunsFolderFacts(
        tested=tested,
        exists=tested == root,
        error=error,
        unsafe=unsafe,
        mount=mount_of(tested),
        free_bytes=space.f_bavail * space.f_frsize,
        free_files=space.f_favail if space.f_files else None,
        other_use=other_use(root),
    )


def mount_of(path: Path) -> Mount | None:
    """Return the file system of a path, None if this machine does not show it."""
    return find_mount(path, _mounts())


def mounts_in(folder: Path) -> list[str]:
    """Return the mount points at or below a folder; none if this machine does not show them."""
    return [mount.point for mount in _mounts() if Path(mount.point).is_relative_to(folder)]


def _mounts() -> list[Mount]:
    try:
        return parse_mounts(_MOUNTS.read_text("utf-8", errors="surrogateescape"))
    except OSError:  # no Linux
        return []


def _write_error(folder: Path) -> OSError | None:
    """Do what a run does: write a file aside, on to the disk, and rename it."""
    path = folder / f".hpcrun-doctor.{os.urandom(4).hex()}"
    try:
        replace_file(path, b"x" * 4096)
        path.unlink()
    except OSError as error:
        return error
    return None


def parse_mounts(text: str) -> list[Mount]:
    """Read /proc/mounts; blanks in names are octal escapes there (proc(5))."""
    mounts = []
    for line in text.splitlines():
        columns = line.split()
        if len(columns) >= 3:
            source, point, kind = columns[:3]
            mounts.append(Mount(_unescaped(source), _unescaped(point), kind))
    return mounts


def _unescaped(text: str) -> str:
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, char)
    return text


def find_mount(path: Path, mounts: list[Mount]) -> Mount | None:
    """Return the mount of a path: the deepest one, and of several at one point the last."""
    real = Path(os.path.realpath(path))
    over = [mount for mount in mounts if real.is_relative_to(mount.point)]
    return max(reversed(over), key=lambda mount: len(mount.point), default=None)
