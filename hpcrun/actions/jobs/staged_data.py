"""--stage: the files and folders that a job copies to its nodes, as they are at submission."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hpcrun.errors import UsageError

_WALK_S = 0.2
"""A larger folder is not measured to its end: a submission does not wait for it."""


def find_data(texts: Iterable[str], folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the name and the path of each ``SRC[:NAME]``; refuse a source that does not exist, or a name twice."""
    data: dict[str, str] = {}
    for text in texts:
        source, colon, name = text, "", ""
        if not os.path.lexists(folder / os.path.expanduser(text)):  # a file's own name may have a colon
            source, colon, name = text.rpartition(":")
            source = source if colon else text
        path = os.path.abspath(folder / os.path.expanduser(source))
        name = name if colon else os.path.basename(path)
        if not os.path.exists(path):
            raise UsageError(f"--stage {text}: there is no {path}", hint="write --stage SRC, or --stage SRC:NAME")
        if not os.access(path, os.R_OK):
            raise UsageError(f"--stage {text}: you may not read {path}")
        if name in ("", ".", "..") or "/" in name or len(os.fsencode(name)) > 255:
            raise UsageError(f"--stage {text}: {name!r} is not a name", hint="write --stage SRC:NAME, NAME without /")
        if name in data:
            raise UsageError(f"--stage: {data[name]} and {path} are both {name}", hint=f"write --stage {path}:NAME")
        data[name] = path
    return tuple(data.items())


def measure(paths: Iterable[str]) -> tuple[int, bool]:
    """Return the bytes of files and folders, and whether these are all: a large folder is not read to its end."""
    until, size = time.monotonic() + _WALK_S, 0
    for path in paths:
        files = iter([path]) if os.path.isfile(path) else _files(path)
        for file in files:
            if time.monotonic() > until:
                return size, False
            with suppress(OSError):  # a link to nothing
                size += os.stat(file).st_size
    return size, True


def _files(path: str) -> Iterator[str]:
    for folder, _, names in os.walk(path, followlinks=True):
        yield folder  # a loop of links without files has an end, too
        yield from (os.path.join(folder, name) for name in names)
