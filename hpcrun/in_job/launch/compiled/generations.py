"""The generations of compiled files of one program, on the shared storage.

A generation is what the nodes of one attempt have compiled: a folder ``TIME.RUN.ATTEMPT`` with

* NODE.CODE.BYTES.set: which set of compiled files a node has, and their size; an empty file, made
  when the node has something new;
* CODE.claim: a link that names the node that saves the set: no other node with the same set does;
* CODE.tar.gz: the files of the set.

It is complete if each set that a node has named is there. Only complete ones are used, so a node
that is killed while it saves harms nobody. The generation before stays: a job may be about to read
it.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass

from .. import records

ENDING = ".tar.gz"
CLAIM = ".claim"
KEPT = 2
"""The complete generations of a program that stay."""
MOST_BYTES = 2 << 30
"""A larger generation is not used: a node that has more saves what is new alone (saving.py)."""
MOST_OF_ALL_BYTES = 10 << 30
"""The generations of all programs together; the oldest go first."""
MOST_SETS = 256
"""The different sets of one generation: as many nodes write to the shared storage at once."""
UNFINISHED_S = 3600.0
"""An incomplete generation is left alone for so long: its job may be about to complete it."""
_SET = re.compile(r"(?P<node>.+)\.(?P<code>[0-9a-f]{16})\.(?P<size>\d{1,15})\.set")
"""The name of a node's set."""
_NAME = re.compile(r"\d{16,20}\..+\.\d+")
"""The name of a generation."""


@dataclass(frozen=True)
class Generation:
    """A complete generation.

    Attributes:
        path: its folder.
        run: the run that has compiled its files.
        parts: its archives.
        size: the bytes of its files when they are unpacked.
    """

    path: str
    run: str
    parts: list[str]
    size: int


def new(folder: str) -> str:
    """Return the path of the generation of this attempt; it is made when a node saves.

    It is newer than all that are there, also than those of a clock that was ahead.
    """
    run = os.path.basename(os.path.realpath(os.environ["HPCRUN_RUN_DIR"]))
    time_ns = time.time_ns()
    for path in _generations(folder):
        time_ns = max(time_ns, int(os.path.basename(path).partition(".")[0]) + 1)
    return os.path.join(folder, f"{time_ns}.{run}.{os.environ['HPCRUN_ATTEMPT']}")


def newest(folder: str) -> Generation | None:
    """Return the newest generation that is complete and may be used; None if there is none."""
    for path in reversed(_generations(folder)):
        generation = complete(path)
        if generation:
            return generation
    return None


def enter(path: str, node: str, code: str, size: int) -> bool:
    """Record which set of files a node has; return whether this node saves the set.

    Raises:
        OSError: the generation cannot be written, others may write to it, or the nodes have too
            many different sets.
    """
    for folder in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path), path):
        _make_own(folder)
    names = records.names_in(path)
    for name in names:
        match = _SET.fullmatch(name)
        is_cut_off = name.endswith(aside("", node))
        if is_cut_off or (match and match["node"] == node):
            records.remove(os.path.join(path, name))  # of this node, from when it saved before
    _touch(os.path.join(path, f"{node}.{code}.{size}.set"))
    claims = [name for name in names if name.endswith(CLAIM)]
    if len(claims) >= MOST_SETS:
        raise OSError(f"the nodes have more than {MOST_SETS} different sets of compiled files")
    try:
        os.symlink(node, os.path.join(path, f"{code}{CLAIM}"))
    except FileExistsError:
        return _was_cut_off(path, node, code)
    return True


def _was_cut_off(path: str, node: str, code: str) -> bool:
    """Return whether this node has begun to save a set before, and was killed."""
    is_mine = os.readlink(os.path.join(path, f"{code}{CLAIM}")) == node
    return is_mine and not os.path.exists(part(path, code))


def _touch(path: str) -> None:
    """Make an empty file.

    Raises:
        FileExistsError: it is there.
        OSError: it cannot be made.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def part(path: str, code: str) -> str:
    """Return the path of the archive of a set."""
    return os.path.join(path, f"{code}{ENDING}")


def aside(path: str, node: str) -> str:
    """Return the path of an archive that a node writes, until it is complete."""
    return f"{path}.{node}.part"


def is_own(info: os.stat_result) -> bool:
    """Return whether a file or folder is this user's, and no other user may write it."""
    return info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def evict(folder: str) -> None:
    """Remove old generations: of this program, and if all are too large, of all programs."""
    _evict_program(folder)
    everything = os.path.dirname(folder)
    sizes = {}
    for program in records.names_in(everything):
        for path in _generations(os.path.join(everything, program)):
            sizes[path] = _size_on_disk(path)
    total = sum(sizes.values())
    newest_last = sorted(sizes, key=os.path.basename)
    for path in newest_last[:-1]:
        if total <= MOST_OF_ALL_BYTES:
            break
        total -= sizes[path]
        _remove(path)


def _generations(folder: str) -> list[str]:
    """Return the generations of a program, the oldest first.

    None if another user could have led this folder, or the one above, elsewhere.
    """
    if not is_own_folder(os.path.dirname(folder)) or not is_own_folder(folder):
        return []
    names = [name for name in records.names_in(folder) if _NAME.fullmatch(name)]
    return [os.path.join(folder, name) for name in names]


def _evict_program(folder: str) -> None:
    kept = 0
    for path in reversed(_generations(folder)):
        if complete(path):
            kept += 1
            if kept > KEPT:
                _remove(path)
        elif _is_given_up(path):
            _remove(path)


def complete(path: str) -> Generation | None:
    """Return a generation; None if it is incomplete, too large, or not this user's alone."""
    if not is_own_folder(path):
        return None
    sets: dict[str, int] = {}
    for name in records.names_in(path):
        match = _SET.fullmatch(name)
        if match:
            sets[match["code"]] = int(match["size"])
    parts = [part(path, code) for code in sorted(sets)]
    if not parts or not all(os.path.isfile(archive) for archive in parts):
        return None
    total = sum(sets.values())
    if total > MOST_BYTES:
        return None
    run = os.path.basename(path).partition(".")[2].rpartition(".")[0]
    return Generation(path, run, parts, total)


def _make_own(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not is_own_folder(path):
            raise PermissionError(f"{path} is no folder that only you can write to") from None


def is_own_folder(path: str) -> bool:
    """Return whether a folder, no link to one, is this user's, and no other user may write it."""
    try:
        return is_own(os.lstat(path)) and not os.path.islink(path)
    except OSError:
        return False


def _is_given_up(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime > UNFINISHED_S
    except OSError:
        return False


def _remove(path: str) -> None:
    """Remove a generation, as far as possible; its files lie side by side."""
    for name in records.names_in(path):
        records.remove(os.path.join(path, name))
    with suppress(OSError):
        os.rmdir(path)


def _size_on_disk(path: str) -> int:
    size = 0
    for name in records.names_in(path):
        try:
            size += os.lstat(os.path.join(path, name)).st_size
        except OSError:
            continue
    return size
