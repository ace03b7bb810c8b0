"""How the code of two runs differs: the files of their snapshots, as text.

Snapshots may be another user's: no link is followed, and only plain files are read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from hpcrun.errors import HpcrunError
from hpcrun.files.reading import read_bytes, walk_folder
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

NEW = "new"
GONE = "gone"
_MOST_BYTES = 1 << 20
"""Of a larger file only the size is compared."""
_MOST_LINES = 5_000  # difflib needs the square of that at worst
_MOST_RUNS = 100  # that used one another's snapshot, one after another
_CACHE = "__pycache__"


def snapshot_folder(run: Run, store: RunStore) -> Path | None:
    """Return the folder of the snapshot that a run used: its own, or an earlier run's.

    The result is None if there is none. A link is none: it could lead to any folder.
    """
    for _ in range(_MOST_RUNS):
        if not run.code_of:
            break
        try:
            run = store.load(run.code_of)
        except HpcrunError:
            return None
    folder = RunFolder(store.folder(run.run_id)).code
    return folder if folder.is_dir() and not folder.is_symlink() else None


def changed_files(before: Path, after: Path) -> dict[str, str]:
    """Return the files that differ in two folders.

    Returns:
        The path of a file → ``new``, ``gone``, or how many lines came and went: ``+1 -1``.
    """
    old = _files(before)
    new = _files(after)
    changed: dict[str, str] = {}
    for path in sorted(old | new):
        if path not in old:
            changed[path] = NEW
        elif path not in new:
            changed[path] = GONE
        else:
            change = _change(before / path, after / path)
            if change:
                changed[path] = change
    return changed


def diff_lines(before: Path, after: Path, labels: tuple[str, str]) -> Iterator[str]:
    """Yield the difference between two folders as ``diff -u`` writes it.

    Args:
        before: a folder.
        after: the folder with which it is compared.
        labels: what stands before the paths in each.
    """
    for path, change in changed_files(before, after).items():
        old = [] if change == NEW else _lines(before / path)
        new = [] if change == GONE else _lines(after / path)
        if old is None or new is None:
            yield f"{path}: {change}"
        else:
            names = [f"{label}/{path}" for label in labels]
            yield from unified_diff(old, new, names[0], names[1], lineterm="")


def _files(folder: Path) -> set[str]:
    """Return the paths of what is in a folder and is no folder."""
    paths = set()
    for parent, folders, files in walk_folder(folder):
        folders[:] = [name for name in folders if name != _CACHE]
        for name in files:
            paths.add(os.path.relpath(os.path.join(parent, name), folder))
    return paths


def _change(before: Path, after: Path) -> str:
    """Return how a file has changed, in words; empty if it has not."""
    try:
        old = before.lstat()
        new = after.lstat()
        if stat.S_ISLNK(old.st_mode) and stat.S_ISLNK(new.st_mode):
            return "" if os.readlink(before) == os.readlink(after) else "another link"
    except OSError:
        return "cannot be read"
    if not (stat.S_ISREG(old.st_mode) and stat.S_ISREG(new.st_mode)):
        return "not a plain file"
    if (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns):
        return ""  # a snapshot keeps the times of its files
    old_bytes = _content(before)
    new_bytes = _content(after)
    if old_bytes is None or new_bytes is None:
        return "differs" if old.st_size != new.st_size else "not compared"
    if old_bytes == new_bytes:
        return ""
    return _change_of_text(_lines_in(old_bytes), _lines_in(new_bytes))


def _change_of_text(old: list[str] | None, new: list[str] | None) -> str:
    if old is None or new is None:
        return "differs"
    changed = list(unified_diff(old, new, n=0, lineterm=""))[2:]
    added = sum(line.startswith("+") for line in changed)
    removed = sum(line.startswith("-") for line in changed)
    return f"+{added} -{removed}"


def _content(path: Path) -> bytes | None:
    """Return the content of a plain file; None for a file that is too large or cannot be read."""
    try:
        return read_bytes(path, _MOST_BYTES)
    except OSError:
        return None


def _lines(path: Path) -> list[str] | None:
    """Return the lines of a file that is no link; None for a file that is too large or no text."""
    content = _content(path)
    return None if content is None else _lines_in(content)


def _lines_in(content: bytes) -> list[str] | None:
    if b"\0" in content:
        return None
    text = content.decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n") if text else []
    return lines if len(lines) <= _MOST_LINES else None
