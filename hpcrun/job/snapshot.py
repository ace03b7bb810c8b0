"""The plan of a snapshot: the folder in the copy of the code where a job starts, and its imports from the copy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the code in the run's folder, for the script. Paths are relative to the copy's root.

    Attributes:
        folder: where the job starts; ``.`` for the root.
        paths: folders that come first on PYTHONPATH, in this order.
        script: the program, if it is one of the copied files.
    """

    folder: str
    paths: tuple[str, ...]
    script: str | None = None
