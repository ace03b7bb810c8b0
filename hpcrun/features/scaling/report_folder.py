"""Saving a report's files: all of them or none, and never over what somebody else wrote."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.reading import read_text
from hpcrun.writing import replace_file

MARK = ".hpcrun-report"
"""Lists the files of a report in its folder: where nothing else is there, the folder may be replaced."""


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder with files that no report wrote, before any work is done.

    Raises:
        PlanError: it has such files and ``force`` was not given, or it is no folder.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise PlanError(f"{folder} is not a folder", hint="choose another one with --out DIR")
    others = _others(folder)
    if others and not force:
        raise PlanError(
            f"{folder} contains other files: {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}",
            hint="choose another folder with --out DIR, or keep these files and write with --force",
        )


def save_report(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a report.

    A new folder appears whole. In one that is there each file is replaced, what a report before it wrote besides is
    removed, and what others wrote stays; on a full disk it stays as it was.

    Raises:
        PlanError: they cannot be written.
    """
    folder = folder.resolve()
    marked = {**files, MARK: "".join(f"{name}\n" for name in sorted(files)).encode()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
            fresh = Path(beside, "new")
            fresh.mkdir(mode=0o755)
            for name, content in marked.items():
                replace_file(fresh / name, content, durable=False, mode=0o644)  # only its owner may write to it
            if not folder.exists():
                fresh.rename(folder)
                return
            for name in {entry.name for entry in folder.iterdir()} - {*_others(folder), *marked}:
                (folder / name).unlink()
            for name in marked:
                os.replace(fresh / name, folder / name)
    except OSError as error:
        raise PlanError(f"cannot write {folder}: {error.strerror}", hint="choose another one with --out DIR") from None


def _others(folder: Path) -> list[str]:
    """Return what lies in a folder and no report wrote."""
    try:
        own = {MARK, *read_text(folder / MARK).splitlines()}
    except OSError:
        own = set()
    # a report has no folders: one that its list names is somebody's all the same
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in own or entry.is_dir())
