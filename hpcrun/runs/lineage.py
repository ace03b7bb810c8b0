"""What a run shares with earlier runs: the folder of checkpoints, and the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcrun.job.layout import AttemptFolder, RunFolder
from hpcrun.reading import Kind, optional, read_fields, read_object, table, text

_IMPORTS: dict[str, Kind] = {"folder": text, "script": optional(text), "imports": optional(table())}


def checkpoints_folder(run_folder: Path, element: int = 0) -> Path:
    """Return the folder of checkpoints of a run's element; a link if the run continues another run."""
    return RunFolder(run_folder).element(element).checkpoints


def share_checkpoints(run_folder: Path, earlier: Path, element: int = 0) -> None:
    """Let a new run's element keep its checkpoints in an earlier run's folder, which is made if it does not exist.

    The link leads to the folder itself, so that runs in between may be removed.

    Raises:
        OSError: it could not be made.
    """
    theirs = checkpoints_folder(earlier, element)
    theirs.mkdir(mode=0o700, parents=True, exist_ok=True)
    mine = checkpoints_folder(run_folder, element)
    mine.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mine.symlink_to(theirs.resolve())


def share_code(run_folder: Path, earlier: Path) -> None:
    """Let a new run use the snapshot of code of an earlier one.

    Raises:
        OSError: there is no snapshot, or the link could not be made.
    """
    theirs = RunFolder(earlier).code.resolve(strict=True)
    RunFolder(run_folder).code.symlink_to(theirs)


def load_imports(folder: AttemptFolder) -> dict[str, Any]:
    """Return an attempt's record of its code: ``folder``, ``script``, ``imports``; empty if there is none."""
    try:
        known, _ = read_fields(read_object(folder.imports), _IMPORTS)
    except (OSError, ValueError):
        return {}
    return known
