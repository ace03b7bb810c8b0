"""Saves a file that users write: completely or not at all, and one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hpcrun.errors import ProfileError
from hpcrun.writing import flocked, make_folder, replace_file

WAIT_S = 10.0
"""How long to wait for a lock, which is held for the moment of reading, checking and replacing one small file."""


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold the lock of a user's files; ProfileError if another program holds it for longer than a change takes."""
    with ExitStack() as held:
        with saving(lock):
            make_folder(lock.parent)
            is_free = held.enter_context(flocked(lock, WAIT_S))
        if not is_free:
            raise ProfileError(
                "the profile or configuration is being changed by another program", hint="try again when it has ended"
            )
        yield


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file, or make it, or raise ProfileError: then the old file has not changed.

    Its permissions stay, and a link still points to it. The umask reduces the mode of a new file: hpcrun would not use
    one that other users can write.
    """
    with saving(path):
        path = path.resolve()
        make_folder(path.parent)
        replace_file(path, text, mode=mode, keep_mode=True)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a message with the state of the file."""
    try:
        yield
    except OSError as error:
        became = "; the file is unchanged" if os.path.exists(path) else ""
        raise ProfileError(
            f"{path} cannot be saved: {error.strerror}{became}",
            hint=f"see who may write to {path.parent} (ls -ld) and whether there is space (df)",
        ) from None
