"""hpcrun's own programs of jobs in the runs folder: one copy for all runs of one version of hpcrun.

The name of the copy is the hash of its files, and each run has a link to it. So an upgrade of
hpcrun changes no pending job, and the first job's Python compiles them for all runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpcrun.files.ownership import danger_in
from hpcrun.files.writing import write_file
from hpcrun.job.run_paths import RunFolder, RunsFolder
from hpcrun.runs.folder_checks import UnsafeFolderError, private_hint
from hpcrun.runs.removal import NotRemovedError, remove_tree


def put_programs(runs: RunsFolder, files: Mapping[str, bytes]) -> Path:
    """Return the copy of the programs; make it if there is none, or none that may be run as it is.

    Args:
        runs: the runs folder, which has the copies.
        files: path below the copy → content.

    Raises:
        UnsafeFolderError: another user could change the copies.
        OSError: the copy cannot be written.
    """
    import hashlib  # with OpenSSL; status imports this module and makes no copy

    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    version = digest.hexdigest()[:16]
    copies = runs.programs()
    copy = runs.programs(version)
    copies.mkdir(mode=0o700, exist_ok=True)
    danger = danger_in(copies, copies.stat())
    if danger:
        raise UnsafeFolderError(
            f"the programs of jobs are not used: {danger}", hint=private_hint(copies)
        )
    with suppress(FileNotFoundError):
        os.utime(copy)  # first: from now on clean keeps it
    if not _is_whole(copy, files):
        made = _aside(runs, version)
        damaged = _aside(runs, version)
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
    """Return whether a copy has all files with their content.

    Only this user may have been able to put more files into the copy.
    """
    folders = {copy, *((copy / name).parent for name in files)}
    try:
        if any(danger_in(folder, folder.stat()) for folder in folders):
            return False
        return all((copy / name).read_bytes() == files[name] for name in files)
    except OSError:
        return False


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(mode=0o700)
    RunFolder(folder).marker.touch(0o600)
    for name, content in files.items():
        path = folder / name
        # each folder by itself: mkdir gives the parents that it makes the rights of the umask
        for parent in reversed(path.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(mode=0o700, exist_ok=True)
        # a program that compiles has its own umask
        (path.parent / "__pycache__").mkdir(mode=0o700, exist_ok=True)
        write_file(path, content)


def remove_unused_programs(runs: RunsFolder, before_s: float) -> None:
    """Remove the copies that no run has used since a time, and that no run links to.

    The time is in seconds since the epoch.
    """
    with suppress(OSError):
        for name in os.listdir(runs.programs()):
            copy = runs.programs(name)
            aside = _aside(runs, name.strip(".")[:16])
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
