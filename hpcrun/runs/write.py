"""Writes below a runs folder: a reader sees the old file or the new file, and an error of the disk is a message."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.runs.rights import ELSEWHERE


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn an error of the disk into a message.

    Raises:
        PlanError: there was one.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"free some space there; {ELSEWHERE}" if full else ELSEWHERE
        raise PlanError(f"cannot write to the runs folder {root}: {error.strerror}", hint=hint) from None


def write_file(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file.

    Args:
        durable: wait until it is on the disk, so that not even a power failure loses it.

    Raises:
        OSError: it could not be written.
    """
    with path.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def replace_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file by a complete new one, with a rename.

    Args:
        durable: as for ``write_file``.

    Raises:
        OSError: it could not be written; the old file has not changed.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    try:
        write_file(Path(name), text, durable=durable)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
