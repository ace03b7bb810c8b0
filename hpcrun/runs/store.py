"""The runs folder: one folder per run, a marker for each that is not over. The folder is the truth.

No database: home directories are NFS or Lustre, where its locks do not hold. Files are replaced by a temporary
file and a rename, so that a reader sees the old one or the new one, never half of it.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import HpcrunError, NotFoundError, PlanError
from hpcrun.runs.record import LastStatus, Run, run_from_json, run_to_json, status_from_json, status_to_json

ACTIVE = "active"
SCRIPT = "script.sh"
BATCH_LOG = "batch.log"
_ELSEWHERE = "HPCRUN_RUNS=/path names another folder"


class DamagedRunError(HpcrunError):
    """A run whose record cannot be read."""


@dataclass(frozen=True, slots=True)
class RunStore:
    """The runs below one folder."""

    root: Path

    def folder(self, run_id: str) -> Path:
        """Return the folder of a run."""
        return self.root / run_id

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        return [name for name in _names(self.root) if name != ACTIVE and not name.startswith(".")]

    def active_ids(self) -> list[str]:
        """Return the ids of the runs that are not over, oldest first."""
        return _names(self.root / ACTIVE)

    def create(self, run: Run, script: str, elsewhere: Path | None = None) -> Path:
        """Make the folder of a run, whole or not at all; returns it.

        Args:
            elsewhere: put the folder there; the runs folder then holds a link to it.

        Raises:
            PlanError: the runs folder cannot be written to.
        """
        parent = elsewhere or self.root
        folder, aside = parent / run.run_id, parent / f".{run.run_id}"
        link, marker = self.folder(run.run_id), self.root / ACTIVE / run.run_id
        with _writing(parent), ExitStack() as undo:
            for needed in (parent, marker.parent):
                needed.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside.mkdir(mode=0o700)
            undo.callback(shutil.rmtree, aside, ignore_errors=True)
            _write(aside / "run.json", run_to_json(run))
            _write(aside / SCRIPT, script)
            marker.touch(exist_ok=False)
            undo.callback(marker.unlink, missing_ok=True)
            if elsewhere is not None:
                link.symlink_to(folder)
                undo.callback(link.unlink, missing_ok=True)
            aside.rename(folder)
            undo.pop_all()  # it is made: nothing is undone any more
        return folder

    def load(self, run_id: str) -> Run:
        """Read a run's record.

        Raises:
            NotFoundError: there is no such run.
            DamagedRunError: its record cannot be read.
        """
        path = self.folder(run_id) / "run.json"
        try:
            return run_from_json(path.read_text("utf-8"))
        except FileNotFoundError:
            raise NotFoundError(f"there is no run {run_id!r}", hint="hpcrun status --all lists them") from None
        except (OSError, ValueError) as error:
            raise DamagedRunError(f"{path} cannot be read: {error}") from None

    def save(self, run: Run) -> None:
        """Replace a run's record."""
        with _writing(self.root):
            replace_file(self.folder(run.run_id) / "run.json", run_to_json(run))

    def delete(self, run_id: str) -> None:
        """Remove a run of which no job came."""
        (self.root / ACTIVE / run_id).unlink(missing_ok=True)
        folder = self.folder(run_id)
        shutil.rmtree(folder.resolve(), ignore_errors=True)
        if folder.is_symlink():
            folder.unlink()

    def last_status(self, run_id: str) -> LastStatus | None:
        """Return what was last known of a run, None where nothing was or it cannot be read."""
        try:
            return status_from_json((self.folder(run_id) / "status.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def save_status(self, run_id: str, status: LastStatus) -> None:
        """Note what is known of a run; a final status takes the run off the active ones."""
        # A status is a view of the truth: on a full or read-only disk it is shown all the same, and asked again.
        with suppress(OSError):
            replace_file(self.folder(run_id) / "status.json", status_to_json(status), durable=False)
            if status.final:
                (self.root / ACTIVE / run_id).unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PlanError(f"cannot read the runs folder {folder}: {error.strerror}", hint=_ELSEWHERE) from None


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = f"free some space there; {_ELSEWHERE}" if full else _ELSEWHERE
        raise PlanError(f"cannot write to the runs folder {root}: {error.strerror}", hint=hint) from None


def _write(path: Path, text: str, *, durable: bool = True) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def replace_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file by one that is whole before it takes the name.

    Args:
        durable: wait until it is on the disk, so that not even a power failure loses it.

    Raises:
        OSError: it could not be written; the old file is untouched.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    try:
        _write(Path(name), text, durable=durable)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
