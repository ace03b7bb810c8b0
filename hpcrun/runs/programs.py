"""The programs that run inside jobs: one copy in a runs folder for all runs of one version of hpcrun.

The name of the copy is the hash of its files, and each run has a link to it. So an upgrade of hpcrun changes no pending
job, and the first job's Python compiles them for all runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpcrun.job.layout import RunFolder, RunsFolder
from hpcrun.ownership import danger_in
from hpcrun.runs.permissions import UnsafeFolderError, private_hint
from hpcrun.runs.removal import NotRemovedError, remove_tree
from hpcrun.writing import write_file


def put_programs(runs: RunsFolder, files: Mapping[str, bytes]) -> Path:
    """Return the copy of the programs; make it if there is none, or none that may be run as it is.

    Args:
        files: path below the copy, in one folder → content.

    Raises:
        UnsafeFolderError: another user could change the copies.
        OSError: the copy cannot be written.
    """
    lengths = (f"{name} {len(content)}\n".encode() + content for name, content in sorted(files.items()))
    version = hashlib.sha256(b"".join(lengths)).hexdigest()[:16]
    copies, copy = runs.programs(), runs.programs(version)
    copies.mkdir(mode=0o700, exist_ok=True)
    if danger := danger_in(copies, copies.stat()):
        raise UnsafeFolderError(f"the programs of jobs are not used: {danger}", hint=private_hint(copies))
    with suppress(FileNotFoundError):
        os.utime(copy)  # first: from now on clean keeps it
    if not _is_whole(copy, files):
        made, damaged = _aside(runs, version), _aside(runs, version)
        _write(made, files)
        with suppress(FileNotFoundError):
            copy.rename(damaged)
        with suppress(OSError):  # another process may be faster
            made.rename(copy)
        for left in (made, damaged):
            with suppress(NotRemovedError):  # clean tries again
                remove_tree(left)
    return copy


def _aside(runs: RunsFolder, version: str) -> Path:
    return runs.programs_aside(version, int.from_bytes(os.urandom(4), "big"))


def _is_whole(copy: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a copy has all files with their content, and only this user could have put more into it."""
    folders = {copy, *((copy / name).parent for name in files)}
    try:
        return not any(danger_in(folder, folder.stat()) for folder in folders) and all(
            (copy / name).read_bytes() == content for name, content in files.items()
        )
    except OSError:
        return False


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(mode=0o700)
    RunFolder(folder).marker.touch(0o600)
    for name, content in files.items():
        path = folder / name
        for needed in (path.parent, path.parent / "__pycache__"):  # a program that compiles has its own umask
            needed.mkdir(mode=0o700, exist_ok=True)
        write_file(path, content)


def remove_unused_programs(runs: RunsFolder, before_s: float) -> None:
    """Remove the copies that no run has used since a time, in seconds since the epoch, and that no run links to."""
    with suppress(OSError):
        for name in os.listdir(runs.programs()):
            copy, aside = runs.programs(name), _aside(runs, name.strip(".")[:16])
            if copy.lstat().st_mtime >= before_s or _is_used(runs, name):
                continue
            copy.rename(aside)
            if _is_used(runs, name):  # by a run that was submitted meanwhile
                aside.rename(copy)
            else:
                with suppress(NotRemovedError):
                    remove_tree(aside)


def _is_used(runs: RunsFolder, copy: str) -> bool:
    """Whether a run links to a copy; also if a run cannot be reached now."""
    for run in map(runs.run, os.listdir(runs.path)):
        try:
            if os.path.basename(os.readlink(run.programs())) == copy:
                return True
        except OSError:  # most often the run of an older hpcrun
            if run.path.is_symlink() and not run.path.exists():
                return True
    return False
