"""The plan of a snapshot: where in a copy of the code a job starts, and what it imports from there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the code in the run's folder, as the script sees it. Paths count from the copy's root.

    Attributes:
        folder: where the job starts; ``.`` for the root.
        paths: folders that stand first on PYTHONPATH, in this order.
        script: the program, where it is one of the copied files.
    """

    folder: str
    paths: tuple[str, ...]
    script: str | None = None
