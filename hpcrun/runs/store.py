"""The runs folder: one folder per run, a marker for each that is not over. The folder is the truth.

No database: home directories are NFS or Lustre, where its locks do not hold. Files are replaced by a temporary
file and a rename, so that a reader sees the old one or the new one, never half of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from hpcrun.errors import HpcrunError, NotFoundError, PlanError
from hpcrun.job.layout import RUN_ID, WITHIN, RunFolder, RunsFolder, parse_aside, parse_job_entry, run_names
from hpcrun.reading import read_bytes
from hpcrun.runs.failed_nodes import FailedNodes
from hpcrun.runs.job_index import forget_jobs, note_job, noted_jobs
from hpcrun.runs.record import LastStatus, RecordError, Run, load_run, run_to_json, status_from_json, status_to_json
from hpcrun.runs.removal import NotRemovedError, holds_record, remove_tree, why_not_ours
from hpcrun.runs.rights import (
    ELSEWHERE,
    check_dedicated,
    check_parent,
    check_private,
    danger_in,
    private_hint,
    writing,
)
from hpcrun.writing import replace_file, write_file


class DamagedRunError(HpcrunError):
    """A run whose record cannot be read; its folder may hold more.

    Attributes:
        legible: what can be read of the record all the same: field → text.
    """

    exit_code = NotFoundError.exit_code
    run_id: str | None = None
    legible: Mapping[str, str] = MappingProxyType({})


class NewerRunError(DamagedRunError):
    """A run whose record is whole, and was written by a newer hpcrun."""


class UnsafeRunError(DamagedRunError):
    """A run's folder in which another user could have put something."""

    exit_code = PlanError.exit_code


class RunExistsError(PlanError):
    """There is a run of that id already."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder with a name as hpcrun gives it to a run that is made or deleted, which a killed process left.

    Attributes:
        changed_s: when something in it was last added or removed, in seconds since the epoch.
        kept: why it is not deleted all the same, None where it is.
    """

    path: Path
    run_id: str
    changed_s: float
    kept: str | None


@dataclass(frozen=True, slots=True)
class RunStore:
    """The runs below one folder.

    Attributes:
        failed_nodes: where nodes are noted on which one of them failed.
    """

    root: Path
    failed_nodes: FailedNodes | None = None

    def folder(self, run_id: str) -> Path:
        """Return the folder of a run."""
        return self._runs.run(run_id).path

    @property
    def _runs(self) -> RunsFolder:
        return RunsFolder(self.root)

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, oldest first.

        Raises:
            UnsafeFolderError: another user could have changed them.
        """
        check_private(self.root)
        return run_names(_names(self.root))

    def active_ids(self) -> list[str]:
        """Return the ids of the runs that are not over, oldest first."""
        return [name for name in _names(self._runs.active) if RUN_ID.fullmatch(name)]

    def create(
        self,
        run: Run,
        script: str,
        elsewhere: Path | None = None,
        files: Mapping[str, str | bytes] | None = None,
        fill: Callable[[Path], None] | None = None,
    ) -> Path:
        """Make the folder of a run, whole or not at all; returns it.

        Args:
            elsewhere: put the folder there; the runs folder then holds a link to it.
            files: path below the folder → content, for what the job needs besides its script.
            fill: puts more into the folder; where it raises, no run is left.

        Raises:
            RunExistsError: there is a run of that id.
            UnsafeFolderError: another user could change it.
            PlanError: the runs folder cannot be written to.
        """
        parent = elsewhere or self.root
        folder, aside = parent / run.run_id, RunsFolder(parent).incomplete(run.run_id).path
        link, marker = self.folder(run.run_id), self._runs.active_marker(run.run_id)
        check_dedicated(self.root)
        with writing(parent), ExitStack() as undo:
            for needed in (self.root, parent, marker.parent):  # each by itself: mkdir makes parents by the umask
                needed.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(self.root)
            check_parent(parent)
            try:
                marker.touch(exist_ok=False)  # first: of several processes with the same id one has it
            except FileExistsError:
                raise RunExistsError(f"there is a run {run.run_id} already in {self.root}", hint="try again") from None
            undo.callback(marker.unlink, missing_ok=True)
            if link.is_symlink() or link.exists():
                raise RunExistsError(f"there is a run {run.run_id} already in {self.root}", hint="try again")
            if elsewhere is not None:
                _note_place(marker, parent)
            aside.mkdir(mode=0o700)
            undo.callback(_remove_quietly, aside)
            _fill_folder(aside, {str(WITHIN.record): run_to_json(run), str(WITHIN.script): script, **(files or {})})
            if fill is not None:
                fill(aside)
            aside.rename(folder)
            if elsewhere is not None:
                undo.callback(_remove_quietly, aside)
                undo.callback(folder.rename, aside)
                link.symlink_to(folder)  # last: a link to nothing would be a run that cannot be read
            undo.pop_all()  # it is made: nothing is undone any more
        with suppress(OSError):
            RunFolder(folder).marker.unlink()
        return folder

    def load(self, run_id: str) -> Run:
        """Read a run's record.

        Raises:
            NotFoundError: there is no such run.
            DamagedRunError: its record cannot be read.
            UnsafeRunError: another user could have written it.
        """
        path = self._runs.run(run_id).record
        try:
            if danger := danger_in(path.parent):
                raise UnsafeRunError(f"run {run_id} is ignored: {danger}", hint=private_hint(path.parent))
            run = load_run(path)
            if run.run_id != run_id:  # a copied folder: what is done to it would be done to the other
                raise RecordError(f"it is the record of {run.run_id}", {})
            return run
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"there is no run {run_id!r}", hint="hpcrun status --all lists them") from None
        except (OSError, RecordError) as error:
            raise _damaged(run_id, path, error) from None

    def save(self, run: Run) -> None:
        """Replace a run's record, and note its job id in the index."""
        with writing(self.root):
            replace_file(self._runs.run(run.run_id).record, run_to_json(run))
        self.note_job(run)

    def note_job(self, run: Run) -> None:
        """Note a run's job id in the index, so that it is found without reading other runs."""
        if run.job_id is not None:
            note_job(self.root, run.job_id, run.run_id)

    def noted_jobs(self) -> Mapping[str, frozenset[str]]:
        """Return run id → job ids of the index. It may lack runs and be wrong: compare a run's record."""
        return noted_jobs(self.root)

    def is_own_folder(self, run_id: str) -> bool:
        """Whether a run's folder is this user's and holds this run and no other: a link may lead anywhere."""
        real = self.folder(run_id).resolve()
        return real.name == run_id and holds_record(real, run_id)

    def delete(self, run_id: str) -> None:
        """Remove a run; one that is gone is no error. Killed meanwhile, it leaves a run or none, and a hidden folder.

        Raises:
            PlanError: its folder cannot be written to, is not this run's, or a part of it remains.
        """
        folder, marker = self.folder(run_id), self._runs.active_marker(run_id)
        real = folder.resolve()
        aside = RunsFolder(real.parent).removed(run_id).path
        if real.exists() and not self.is_own_folder(run_id):
            raise NotRemovedError(f"{folder} was not removed: it holds more than run {run_id}")
        with writing(real.parent):
            if folder.is_symlink():
                with suppress(OSError):  # on a full disk it is deleted all the same
                    _note_place(marker, real.parent)  # where the rest lies, should this process be killed
                folder.unlink()  # first: a link to nothing would be a run that cannot be read
            with suppress(FileNotFoundError):
                real.rename(aside)
        forget_jobs(self.root, run_id)
        remove_tree(aside)
        with writing(self.root):
            marker.unlink(missing_ok=True)

    def check_dedicated(self) -> None:
        """Refuse to write to, or clean, a runs folder that is something else besides.

        Raises:
            UnsafeFolderError: it is a home, a repository, the top of a file system, or another user's link.
        """
        check_dedicated(self.root)

    def leftovers(self, before_s: float) -> list[Leftover]:
        """Return what processes left that were killed while they made or deleted a run, before a time.

        Args:
            before_s: seconds since the epoch; what is younger may still be wanted.
        """
        runs = set(self.run_ids())
        paths = {self.root / name for name in _names(self.root)}
        for marker in self._lone_markers(runs):
            paths |= set(_noted_asides(marker))
        found = []
        for path in sorted(paths):
            run_id = parse_aside(path.name)
            with suppress(OSError):
                if run_id and (changed_s := path.lstat().st_mtime) < before_s:
                    found.append(Leftover(path, run_id, changed_s, why_not_ours(path)))
        return found

    def remove_leftovers(self, leftovers: Sequence[Leftover], before_s: float) -> list[HpcrunError]:
        """Remove leftovers, and the markers and index entries before a time whose runs are gone; returns failures."""
        errors: list[HpcrunError] = []
        for leftover in leftovers:
            try:
                remove_tree(leftover.path)
            except NotRemovedError as error:
                errors.append(error)
        runs = set(self.run_ids())
        stale = [path for path in self._lone_markers(runs) if not any(map(os.path.lexists, _noted_asides(path)))]
        for name in _names(self._runs.jobs):
            if (entry := parse_job_entry(name)) and entry[1] not in runs:
                stale.append(self._runs.jobs / name)
        for path in stale:
            with suppress(OSError):
                if path.lstat().st_mtime < before_s:
                    path.unlink()
        return errors

    def _lone_markers(self, runs: Collection[str]) -> list[Path]:
        """Return the markers without their run."""
        return [self._runs.active_marker(name) for name in self.active_ids() if name not in runs]

    def last_status(self, run_id: str) -> LastStatus | None:
        """Return what was last known of a run, None where nothing was or it cannot be read."""
        try:
            return status_from_json(read_bytes(self._runs.run(run_id).status))
        except (OSError, ValueError):
            return None

    def save_status(self, run_id: str, status: LastStatus) -> None:
        """Note what is known of a run; a final status takes the run off the active ones."""
        # A status is a view of the truth: on a full or read-only disk it is shown all the same, and asked again.
        last = self.last_status(run_id)
        if last is not None and last.unknown:  # another version of hpcrun has written them
            status = replace(status, unknown={**last.unknown, **status.unknown})
        with suppress(OSError):
            replace_file(self._runs.run(run_id).status, status_to_json(status), durable=False)
            if status.final:
                self.leave_active(run_id)
            else:  # a slower process may have just replaced a final status: then it is found out again
                self._runs.active_marker(run_id).touch()

    def leave_active(self, run_id: str) -> None:
        """Take a run that is over off the active ones."""
        with suppress(OSError):
            self._runs.active_marker(run_id).unlink(missing_ok=True)


_LONGEST_PATH = 4096  # PATH_MAX


def _fill_folder(aside: Path, files: Mapping[str, str | bytes]) -> None:
    """Write the files of a run that is not whole yet: the marker first, by which clean knows the folder."""
    RunFolder(aside).marker.touch(exist_ok=False)
    for name, text in files.items():
        (aside / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(aside / name, text)


def _note_place(marker: Path, parent: Path) -> None:
    """Note in its marker where a run lies that is made or deleted elsewhere, so that clean finds what is left of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(marker, flags, 0o600), "wb") as file:
        file.write(os.fsencode(parent) + b"\n")


def _noted_asides(marker: Path) -> list[Path]:
    """Return where a run's folder may lie that is made or deleted elsewhere; none where its marker names no place."""
    try:
        text = read_bytes(marker, _LONGEST_PATH + 1)
    except OSError:
        return []
    parent = RunsFolder(Path(os.fsdecode(text.removesuffix(b"\n"))))
    if b"\0" in text or not parent.path.is_absolute():
        return []
    return [parent.incomplete(marker.name).path, parent.removed(marker.name).path]


def _remove_quietly(aside: Path) -> None:
    """Remove a half-made run after a failure, which is what is said; clean finds what is left."""
    with suppress(NotRemovedError):
        remove_tree(aside)


def _damaged(run_id: str, path: Path, error: OSError | RecordError) -> DamagedRunError:
    """Say what is wrong with a record, and what can be read of it all the same."""
    if isinstance(error, OSError):
        damaged = DamagedRunError(f"{path} cannot be read: {error.strerror}")
    elif error.newer:
        damaged = NewerRunError(f"{path} cannot be read: {error}", hint="pip install --upgrade hpcrun-slurm")
        damaged.legible = error.legible
    else:
        legible = ", ".join(f"{name} {value}" for name, value in error.legible.items())
        damaged = DamagedRunError(
            f"{path} cannot be read: {error}" + (f"; readable fields: {legible}" if legible else ""),
            hint=f"hpcrun logs {run_id} shows its logs",
        )
        damaged.legible = error.legible
    damaged.run_id = run_id
    return damaged


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PlanError(f"cannot read the runs folder {folder}: {error.strerror}", hint=ELSEWHERE) from None
