"""Save the compiled files of a node as a part of a generation."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import records
from . import archive, generations
from .folder import (
    CPU,
    FILES,
    INTO,
    QUIET_S,
    UNCLEAN,
    compiled_files,
    cpu_kind,
    unfinished_files,
    unpacked_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SAVE_S = 30.0
"""How long the end of a job waits for what it saves."""
MOST_FILES = 20_000
"""A node unpacks some 4,000 small files in a second."""
_BLOCK = 4096
_BY_PROCESS = ("fxgraph", "aotautograd")
"""Folders of Inductor whose files have a name of their own in each process: KEY/NAME."""
_STATE = "dynamo"
"""What Dynamo has learnt in a run: no compiled code."""


def save(path: str, *, at_end: bool) -> None:
    """Save the set of files of this node if some are new, unless another node saves the same set.

    Files that may be incomplete are left out, unless all processes have ended well.

    Args:
        path: the folder, which exists while this process runs.
        at_end: the processes of this node have ended.
    """
    if cpu_kind() != os.environ[CPU]:
        return  # the next job looks for files of its head node's kind
    all_complete = at_end and not os.path.exists(os.path.join(path, UNCLEAN))
    now = time.time()
    names = set()
    for name, changed_at in compiled_files(path):
        if all_complete or now - changed_at > QUIET_S:
            names.add(name)
    unpacked = unpacked_files(path)
    if names <= unpacked:
        return
    names -= unfinished_files(path)
    new = names - unpacked
    if not new:
        return
    files = os.path.join(path, FILES)
    try:
        size = _size(files, names)
        if size > generations.MOST_BYTES or len(names) > MOST_FILES:  # those of earlier jobs go
            names = new
            size = _size(files, names)
        _save(os.environ[INTO], files, sorted(names), size, within_s=SAVE_S if at_end else None)
    except OSError as error:
        records.say(f"--warm: {os.environ['HPCRUN_NODE']} cannot save compiled files: {error}")


def _size(files: str, names: Iterable[str]) -> int:
    """Return the bytes that files take on a disk."""
    size = 0
    for name in names:
        with suppress(FileNotFoundError):
            blocks = -(-os.stat(os.path.join(files, name)).st_size // _BLOCK)
            size += blocks * _BLOCK
    return size


def _save(generation: str, files: str, names: list[str], size: int, within_s: float | None) -> None:
    """Save a set of files.

    Raises:
        OSError: they are too many, or the archive cannot be written in time.
    """
    if size > generations.MOST_BYTES:
        raise OSError(f"they have more than {generations.MOST_BYTES >> 30} GiB")
    if len(names) > MOST_FILES:
        raise OSError(f"there are {len(names):,}, and more than {MOST_FILES:,} start no job sooner")
    code = code_of(names)
    node = os.environ["HPCRUN_NODE"]
    if generations.enter(generation, node, code, size):
        path = generations.part(generation, code)
        archive.write(path, generations.aside(path, node), files, names, within_s)
        generations.evict(os.path.dirname(generation))


def code_of(names: list[str]) -> str:
    """Return a code of what a set of files is good for: the same for nodes that compile alike."""
    keys = {_key_of(name) for name in names}
    text = "\n".join(sorted(keys))
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _key_of(name: str) -> str:
    """Return the part of a file's name that is the same in all processes; empty for a state."""
    _, _, below = name.partition("/")
    folder, _, _ = below.partition("/")
    if folder == _STATE:
        return ""
    return os.path.dirname(name) if folder in _BY_PROCESS else name
