"""Deletes a folder tree that hpcrun itself has made; no other module of hpcrun deletes trees.

It deletes only the folder of a run that is being made or deleted, ``.RUNID`` or ``.RUNID.gone``: a
real folder of this user that contains a marker or the run's record. It opens each folder relative
to the descriptor of its parent and never through a link, so a rename meanwhile cannot lead it
elsewhere.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.job.run_paths import WITHIN, parse_aside
from hpcrun.runs.folder_checks import mounts_in

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO would wait for its writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST_RECORD = 64 * 2**20
_SIGNS = (WITHIN.record.name, WITHIN.marker.name)
_DEEPEST = 200  # levels of folders, each of which keeps a descriptor open


class NotRemovedError(PlanError):
    """A folder that was not deleted, or not completely."""


def remove_tree(folder: Path) -> None:
    """Delete the folder of a run that is being made or deleted, with its contents.

    A missing folder is no error. The marker and the record are deleted last: if the process is
    killed meanwhile, the rest can still be deleted.

    Raises:
        NotRemovedError: hpcrun did not make the folder, and so does not change it, or a part of the
            folder remains.
    """
    problems: list[str] = []
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
        problem = _stranger(folder.name, top)
        if problem:
            raise NotRemovedError(f"{folder} was not removed: {problem}")
        with _noted(folder.name, problems):
            _empty(top, problems, keep=_SIGNS)
            if not problems:
                _empty(top, problems)
                os.rmdir(folder.name, dir_fd=parent)
    if problems:
        text = f"{folder} was not removed wholly: {problems[0]}"
        if len(problems) > 1:
            text += f" (and {len(problems) - 1} more)"
        hint = "hpcrun clean tries again after a day; or remove it by hand"
        raise NotRemovedError(text, hint=hint)


def why_not_ours(folder: Path) -> str | None:
    """Return why :func:`remove_tree` would not delete a folder, None if it would."""
    try:
        with _opened(folder) as top:
            return _stranger(folder.name, top)
    except OSError as error:
        return _open_problem(error)


def holds_record(folder: Path, run_id: str) -> bool:
    """Whether a folder belongs to this user and contains the record of this run."""
    try:
        with _opened(folder) as top:
            return os.fstat(top).st_uid == os.geteuid() and _has_record(top, run_id)
    except OSError:
        return False


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    top = os.open(folder, _FOLDER)
    try:
        yield top
    finally:
        os.close(top)


def _open_problem(error: OSError) -> str:
    # open(2): O_NOFOLLOW with O_DIRECTORY returns ENOTDIR for a link
    link = isinstance(error, NotADirectoryError)
    if link:
        return "not a folder, or a symbolic link"
    return error.strerror or str(error)


def _stranger(name: str, top: int) -> str | None:
    """Return why hpcrun must not delete an open folder, None if it may."""
    run_id = parse_aside(name)
    if run_id is None:
        return "its name is not the name of a run"
    owner = os.fstat(top).st_uid
    if owner != os.geteuid():
        return f"it belongs to another user (uid {owner})"
    mounts = mounts_in(Path(os.readlink(f"/proc/self/fd/{top}")))
    if mounts:
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


@contextmanager
def _noted(name: str, problems: list[str]) -> Iterator[None]:
    """Note why an entry could not be deleted; a missing entry is no problem."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{name}: {_open_problem(error)}")


def _empty(folder: int, problems: list[str], *, keep: Collection[str] = (), depth: int = 0) -> None:
    """Delete everything in an open folder except some entries."""
    are_folders = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in keep:
                are_folders[entry.name] = entry.is_dir(follow_symlinks=False)
    for name, is_folder in are_folders.items():
        with _noted(name, problems):
            if is_folder:
                _remove_folder(name, folder, problems, depth + 1)
            else:
                os.unlink(name, dir_fd=folder)


def _remove_folder(name: str, parent: int, problems: list[str], depth: int) -> None:
    before = len(problems)
    folder = _open_folder(name, parent)
    try:
        if os.fstat(folder).st_dev != os.fstat(parent).st_dev:
            raise OSError(errno.EXDEV, "another file system is mounted there")
        if depth > _DEEPEST:
            raise OSError(errno.EMFILE, f"more than {_DEEPEST} folders deep")
        _empty(folder, problems, depth=depth)
    finally:
        os.close(folder)
    if len(problems) == before:
        os.rmdir(name, dir_fd=parent)


def _open_folder(name: str, parent: int) -> int:
    """Open a folder, never through a link, and restore its owner's rights to empty the folder.

    Raises:
        OSError: that fails.
    """
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

    A descriptor with open(2)'s O_PATH needs no rights; chmod(2) through its entry in /proc changes
    exactly this folder, and not a link that has replaced it.
    """
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{path}", stat.S_IRWXU)
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)
