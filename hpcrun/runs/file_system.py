"""The runs folder: whether hpcrun and other users can write to it, its file system, and its free space."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hpcrun.runs.permissions import other_use
from hpcrun.writing import replace_file

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
    error: OSError | None  # why a file could not be written, None if a file could be written and renamed
    mode: int  # permission bits of the folder
    owner: int  # uid of its owner
    mount: Mount | None
    # free_bytes, free_files: free for an ordinary user; files are None if the file system does not count them
    free_bytes: int
    free_files: int | None
    # another use of the folder, because of which it cannot hold runs; None if there is none
    other_use: str | None = None


def look_at_place(root: Path) -> RunsFolderFacts:
    """Check a runs folder; write and rename a file there, and remove it again."""
    tested = next((folder for folder in (root, *root.parents) if os.path.exists(folder)), Path("/"))
    error = _write_error(tested)
    found = tested.stat()
    space = os.statvfs(tested)
    return RunsFolderFacts(
        tested,
        tested == root,
        error,
        stat.S_IMODE(found.st_mode),
        found.st_uid,
        mount_of(tested),
        space.f_bavail * space.f_frsize,
        space.f_favail if space.f_files else None,
        other_use(root),
    )


def mount_of(path: Path) -> Mount | None:
    """Return the file system of a path, None if this machine does not show it."""
    return find_mount(path, _mounts("replace"))


def mounts_in(folder: Path) -> list[str]:
    """Return the mount points at or below a folder; none if this machine does not show them."""
    return [mount.point for mount in _mounts("surrogateescape") if Path(mount.point).is_relative_to(folder)]


def _mounts(errors: str) -> list[Mount]:
    try:
        return parse_mounts(_MOUNTS.read_text("utf-8", errors=errors))
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
        fields = line.split()
        if len(fields) >= 3:
            source, point, kind = fields[:3]
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
