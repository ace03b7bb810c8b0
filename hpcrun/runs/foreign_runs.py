"""Runs that are only read, such as a colleague's: ``--runs FOLDER``.

Whose they are does not matter: their owner may change them while they are read. So nothing in them
is believed further than its own text, no link is followed (hpcrun/files/foreign_folder.py), and
nothing is written.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from hpcrun.errors import NotFoundError, PlanError, UsageError
from hpcrun.files.foreign_folder import ForeignFolder
from hpcrun.files.reading import list_folder, open_regular
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore, UnsafeRunError


@dataclass(frozen=True, slots=True)
class ForeignRuns(RunStore):
    """The runs below a folder that is only read."""

    is_read_only: ClassVar[bool] = True

    def _check_owner(self) -> None:
        """Accept any owner."""

    def _check_run(self, run_id: str) -> None:
        """Refuse a run that is elsewhere, or that this user may not read.

        Raises:
            UnsafeRunError: the run is a link, or not readable.
            OSError: there is no such run, or its record is no regular file.
        """
        folder = self.folder(run_id)
        if folder.is_symlink():
            raise UnsafeRunError(
                f"run {run_id} is ignored: it is a link, and links in {self.root} are not followed",
                hint="--runs FOLDER with the folder to which it leads",
            )
        try:
            open_regular(RunFolder(folder).record).close()
        except PermissionError:
            raise UnsafeRunError(
                f"run {run_id} is ignored: you may not read it", hint=readable_hint(folder)
            ) from None

    def active_ids(self) -> list[str]:
        """Return the ids of the runs that have not ended; none if these are not readable."""
        try:
            return RunStore.active_ids(self)
        except PlanError:
            return []

    def change(self, run: Run, **fields: Any) -> Run:
        """Write nothing; return the run with the fields changed."""
        return replace(run, **fields)

    def note_job(self, run: Run) -> None:
        """Write nothing."""

    def save_status(self, run_id: str, status: LastStatus) -> None:
        """Write nothing."""

    def leave_active(self, run_id: str) -> None:
        """Write nothing."""


def open_foreign_runs(folder: Path) -> ForeignRuns:
    """Return the runs of a folder; from now on this process follows no link in the folder.

    Raises:
        UsageError: the folder is the root of all files.
        NotFoundError: there is no such folder.
        PlanError: the folder is not readable.
    """
    if folder == Path("/"):
        raise UsageError("--runs /: this is not a folder of runs")
    try:
        list_folder(folder)
    except PermissionError:
        raise PlanError(
            f"--runs {folder}: you may not read it", hint=readable_hint(folder)
        ) from None
    except OSError as error:
        raise NotFoundError(
            f"--runs {folder}: {error.strerror}", hint="--runs takes the folder with the runs"
        ) from None
    ForeignFolder.path = str(folder)
    return ForeignRuns(folder)


def readable_hint(folder: Path) -> str:
    """Return what the owner of a folder can do so that the group may read the folder."""
    return f"its owner can let the group read it: chmod -R g+rX {shlex.quote(str(folder))}"
