"""Deletes a folder tree: the only module of hpcrun that does so, and only for trees that hpcrun itself has made.

It deletes only the folder of a run that is being made or deleted, ``.RUNID`` or ``.RUNID.gone``: a real folder of this
user that contains a marker or the run's record. It opens each folder relative to the descriptor of its parent and never
through a link, so a rename meanwhile cannot lead it elsewhere. It keeps two descriptors open, however deep the tree is.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.job.layout import WITHIN, parse_aside
from hpcrun.runs.folder_checks import mounts_in

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a FIFO would wait for its writer
_LONGEST_RECORD = 64 * 2**20


class NotRemovedError(PlanError):
    """A folder that was not deleted, or not completely."""


def remove_tree(folder: Path) -> None:
    """Delete the folder of a run that is being made or deleted, with its contents. A missing folder is no error.

    The marker and the record are deleted last: if the process is killed meanwhile, the rest can still be deleted. It
    raises NotRemovedError if hpcrun did not make the folder, and so does not change it, or if a part of it remains.
    """
    with ExitStack() as opened:
        try:
            parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, parent)
            top = _open_folder(folder.name, parent)
            opened.callback(os.close, top)
        except FileNotFoundError:
            return
        except OSError as error:
            raise NotRemovedError(f"{folder} was not removed: {_open_problem(error)}") from None
        if problem := _stranger(folder.name, top):
            raise NotRemovedError(f"{folder} was not removed: {problem}")
        problems = _empty(top) or _remove_signs(folder.name, top, parent)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise NotRemovedError(
            f"{folder} was not removed wholly: {problems[0]}{more}",
            hint="hpcrun clean tries again after a day; or remove it by hand",
        )


def why_not_ours(folder: Path) -> str | None:
    """Return why :func:`remove_tree` would not delete a folder, None if it would."""
    try:
        top = os.open(folder, _FOLDER)
    except OSError as error:
        return _open_problem(error)
    try:
        return _stranger(folder.name, top)
    finally:
        os.close(top)


def holds_record(folder: Path, run_id: str) -> bool:
    """Whether a folder belongs to this user and contains the record of this run."""
    try:
        top = os.open(folder, _FOLDER)
    except OSError:
        return False
    try:
        return os.fstat(top).st_uid == os.geteuid() and _has_record(top, run_id)
    finally:
        os.close(top)


def _open_problem(error: OSError) -> str:
    # open(2): O_NOFOLLOW with O_DIRECTORY returns ENOTDIR for a link
    link = isinstance(error, NotADirectoryError)
    return "not a folder, or a symbolic link" if link else error.strerror or str(error)


def _stranger(name: str, top: int) -> str | None:
    """Return why hpcrun must not delete an open folder, None if it may."""
    run_id = parse_aside(name)
    if run_id is None:
        return "its name is not the name of a run"
    if (owner := os.fstat(top).st_uid) != os.geteuid():
        return f"it belongs to another user (uid {owner})"
    if mounts := mounts_in(Path(os.readlink(f"/proc/self/fd/{top}"))):
        return f"another file system is mounted at {mounts[0]}"
    if not os.listdir(top) or _has_marker(top) or _has_record(top, run_id):
        return None  # a process killed between mkdir and the marker leaves an empty folder
    return "it has no record of hpcrun"


def _has_marker(top: int) -> bool:
    try:
        status = os.stat(WITHIN.marker, dir_fd=top, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _has_record(top: int, run_id: str) -> bool:
    """Whether an open folder contains a run's record, damaged or not, with the line of its id."""
    try:
        descriptor = os.open(WITHIN.record, _FILE, dir_fd=top)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return False
        return f'"run_id": {json.dumps(run_id)},'.encode() in file.read(_LONGEST_RECORD)


@dataclass(slots=True)
class _Level:
    """A folder on the path: its name in the parent, its identity, and its folders that are still to be deleted."""

    name: str
    identity: tuple[int, int]
    folders: list[str]


def _empty(top: int) -> list[str]:
    """Delete everything in an open folder except marker and record; return what could not be deleted, and why."""
    problems: list[str] = []
    here = os.dup(top)
    try:
        levels = [_Level("", _identity(here), _unlink_files(here, {WITHIN.marker.name, WITHIN.record.name}, problems))]
        while True:
            level = levels[-1]
            if level.folders:
                name = level.folders.pop()
                below = _enter(name, here, problems)
                if below is not None:
                    os.close(here)
                    here = below
                    levels.append(_Level(name, _identity(here), _unlink_files(here, set(), problems)))
                continue
            levels.pop()
            if not levels:
                return problems
            above = os.open("..", _FOLDER, dir_fd=here)
            os.close(here)
            here = above
            if _identity(here) != levels[-1].identity:  # never continue in a folder that is not on the path
                return [*problems, f"{level.name}: it was moved during the removal"]
            _try(os.rmdir, level.name, here, problems)
    except OSError as error:
        return [*problems, error.strerror or str(error)]
    finally:
        os.close(here)


def _unlink_files(folder: int, keep: set[str], problems: list[str]) -> list[str]:
    """Delete the files, links and FIFOs in an open folder; return the names of its folders."""
    with os.scandir(folder) as entries:
        is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries if entry.name not in keep}
    for name in is_folder:
        if not is_folder[name]:
            _try(os.unlink, name, folder, problems)
    return [name for name in is_folder if is_folder[name]]


def _try(remove: Callable[..., None], name: str, folder: int, problems: list[str]) -> None:
    try:
        remove(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{name}: {error.strerror}")


def _enter(name: str, here: int, problems: list[str]) -> int | None:
    """Open a folder in an open folder; None if this fails, or if it is on another file system."""
    try:
        below = _open_folder(name, here)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"{name}: {_open_problem(error)}")
        return None
    if os.fstat(below).st_dev == os.fstat(here).st_dev:
        return below
    os.close(below)
    problems.append(f"{name}: another file system is mounted there")
    return None


def _open_folder(name: str, parent: int) -> int:
    """Open a folder, never through a link, and restore its owner's rights to empty it; OSError if that fails."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        folder = _open_closed(name, parent)
    status = os.fstat(folder)
    if status.st_uid == os.geteuid() and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(folder, stat.S_IRWXU)
    return folder


def _open_closed(name: str, parent: int) -> int:
    """Open a folder that this user may not read.

    A descriptor with open(2)'s O_PATH needs no rights; chmod(2) through its entry in /proc changes exactly this folder,
    and not a link that has replaced it.
    """
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{path}", stat.S_IRWXU)
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _remove_signs(name: str, top: int, parent: int) -> list[str]:
    """Delete the marker and the record, then the empty folder."""
    problems: list[str] = []
    for sign in (WITHIN.record, WITHIN.marker):
        _try(os.unlink, sign.name, top, problems)
    if not problems:
        _try(os.rmdir, name, parent, problems)
    return problems
