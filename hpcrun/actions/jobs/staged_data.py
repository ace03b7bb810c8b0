"""--stage: the files and folders that a job copies to its nodes, as they are at submission."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hpcrun.errors import UsageError
from hpcrun.job.text.spelling import spell


def find_data(texts: Iterable[str], folder: Path) -> tuple[tuple[str, str, int | None], ...]:
    """Return the name, the path and the size in bytes of the source in each ``SRC[:NAME]``.

    The size is None for a folder, which may be large.

    Raises:
        UsageError: a source does not exist or cannot be read, a name is not valid, or two sources
            have the same name.
    """
    data: dict[str, str] = {}
    for text in texts:
        path, name = _parse_source(text, folder)
        if not os.path.exists(path):
            raise UsageError(
                f"{spell('stage', text)}: there is no {path}",
                hint=f"write {spell('stage', 'SRC')}, or {spell('stage', 'SRC:NAME')}",
            )
        if not os.access(path, os.R_OK):
            raise UsageError(f"{spell('stage', text)}: you may not read {path}")
        if name in ("", ".", "..") or "/" in name or len(os.fsencode(name)) > 255:
            raise UsageError(
                f"{spell('stage', text)}: {name!r} is not a name",
                hint=f"write {spell('stage', 'SRC:NAME')}, NAME without /",
            )
        if name in data:
            raise UsageError(
                f"{spell('stage')}: {data[name]} and {path} are both {name}",
                hint=f"write {spell('stage', Path(f'{path}:NAME'))}",
            )
        data[name] = path
    return tuple((name, path, _size(path)) for name, path in data.items())


def _parse_source(text: str, folder: Path) -> tuple[str, str]:
    """Return the path and the name of a source: the name behind the colon, else the path's."""
    whole = folder / os.path.expanduser(text)
    source, colon, name = text.rpartition(":")
    if not colon or os.path.lexists(whole):  # a file's own name may have a colon
        path = os.path.abspath(whole)
        return path, os.path.basename(path)
    return os.path.abspath(folder / os.path.expanduser(source)), name


def _size(path: str) -> int | None:
    """Return the size of a file in bytes; None for a folder."""
    return os.stat(path).st_size if os.path.isfile(path) else None
