"""The runs folder: one folder per run, and a marker for each run that has not ended.

The folders are the only record.

There is no database, since its locks are not reliable on NFS and Lustre, where home directories
are. A file is replaced by a temporary file and a rename, so that a reader sees the old file or the
new file, never a part.

The index from job ids to runs is an empty file ``jobs/4711.RUNID`` for each run whose job id is
known, and only a hint: a run that is found by it must have the job id in its own record, and runs
without an entry are read. One file for each run needs no lock: clusters that share a home may give
the same id to two jobs at the same moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from hpcrun.errors import HpcrunError, NotFoundError, PlanError
from hpcrun.files.ownership import danger_in
from hpcrun.files.reading import read_bytes
from hpcrun.files.writing import flocked, make_folder, replace_file, write_file
from hpcrun.job.run_paths import (
    JOB_ID,
    RUN_ID,
    WITHIN,
    RunFolder,
    RunsFolder,
    parse_aside,
    parse_job_entry,
    run_names,
)
from hpcrun.runs import folder_checks
from hpcrun.runs.failed_nodes import FailedNodes
from hpcrun.runs.job_programs import put_programs, remove_unused_programs
from hpcrun.runs.record import (
    LastStatus,
    NewerRecordError,
    RecordError,
    Run,
    load_run,
    run_to_json,
    status_from_json,
    status_to_json,
)
from hpcrun.runs.removal import NotRemovedError, holds_record, remove_tree, why_not_ours


class DamagedRunError(HpcrunError):
    """A run whose record cannot be read; its folder may contain more."""

    exit_code = NotFoundError.exit_code
    run_id: str | None = None


class NewerRunError(DamagedRunError):
    """A run whose record is complete, and was written by a newer hpcrun."""


class UnsafeRunError(DamagedRunError):
    """A run that is not read: another user could have written its record, or may not read it."""

    exit_code = PlanError.exit_code


class RunExistsError(PlanError):
    """A run with this id already exists."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder of a run that was being made or deleted when the process was killed."""

    path: Path
    run_id: str
    changed_s: float  # when something in it was last added or removed, in seconds since the epoch
    kept: str | None  # why it is not deleted, None if it is


@dataclass(frozen=True, slots=True)
class RunStore:
    """The runs below one folder."""

    root: Path
    failed_nodes: FailedNodes | None = None  # the file of the nodes on which runs failed

    is_read_only: ClassVar[bool] = False

    def folder(self, run_id: str) -> Path:
        """Return the folder of a run."""
        return self._runs.run(run_id).path

    @property
    def _runs(self) -> RunsFolder:
        return RunsFolder(self.root)

    @property
    def actions(self) -> Path:
        """The file that says what commands did to the runs."""
        return self._runs.actions

    @property
    def limits_lock(self) -> Path:
        """The lock of the process that checks the limit of a day, where no home has it."""
        return self._runs.limits_lock

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, oldest first.

        Raises:
            UnsafeFolderError: another user could have changed the runs.
        """
        self._check_owner()
        return run_names(_names(self.root))

    def _check_owner(self) -> None:
        """Refuse a runs folder that others can write to.

        Raises:
            UnsafeFolderError: another user can write to the folder.
        """
        folder_checks.check_private(self.root)

    def active_ids(self) -> list[str]:
        """Return the ids of the runs that have not ended, oldest first."""
        return [name for name in _names(self._runs.active) if RUN_ID.fullmatch(name)]

    def create(
        self,
        run: Run,
        script: str,
        elsewhere: Path | None = None,
        files: Mapping[str, str | bytes] | None = None,
        fill: Callable[[Path], None] | None = None,
        programs: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Make the folder of a run, completely or not at all; return the folder.

        Args:
            run: the run to record.
            script: the text of the job's script.
            elsewhere: put the folder there; the runs folder then has a link to it.
            files: path below the folder → content, for files that the job needs besides its script.
            fill: puts more into the folder; if it raises, no run is left.
            programs: path → content, for the programs of the job that all such runs share.

        Raises:
            RunExistsError: there is a run with this id. It is a PlanError.
            UnsafeFolderError: another user could change the folder. It is a PlanError.
            PlanError: the folder cannot be written.
        """
        parent = elsewhere or self.root
        folder = parent / run.run_id
        aside = RunsFolder(parent).incomplete(run.run_id).path
        folder_checks.check_dedicated(self.root)
        with folder_checks.writing(parent), ExitStack() as undo:
            self._make_parents(parent)
            self._claim_id(run.run_id, undo)
            if elsewhere is not None:
                _note_place(self._runs.active_marker(run.run_id), parent)
            aside.mkdir(mode=0o700)
            undo.callback(_remove_quietly, aside)
            texts = {str(WITHIN.record): run_to_json(run), str(WITHIN.script): script}
            _write_texts(aside, {**texts, **(files or {})})
            if fill is not None:
                fill(aside)
            copy = put_programs(self._runs, programs) if programs else None
            if copy:
                # relative: a runs folder may have another path on the nodes
                near = Path("..", *copy.parts[-2:])
                RunFolder(aside).programs().symlink_to(copy.absolute() if elsewhere else near)
            aside.rename(folder)
            if elsewhere is not None:
                undo.callback(_remove_quietly, aside)
                undo.callback(folder.rename, aside)
                # last: a link to nothing would be a run that cannot be read
                self.folder(run.run_id).symlink_to(folder)
            if copy and not copy.exists():  # clean has removed it before it could see the link
                put_programs(self._runs, programs or {})
            undo.pop_all()  # it is complete: undo nothing any more
        with suppress(OSError):
            RunFolder(folder).marker.unlink()
        return folder

    def _make_parents(self, parent: Path) -> None:
        """Make the folders in which a new run is put, and check them.

        Raises:
            UnsafeFolderError: another user could change one of the folders.
            OSError: a folder cannot be made or checked.
        """
        make_folder(parent, 0o700)
        make_folder(self._runs.active, 0o700)
        folder_checks.check_private(self.root)
        folder_checks.check_path(self.root)
        folder_checks.check_path(parent, "--output-dir /path uses another folder")

    def _claim_id(self, run_id: str, undo: ExitStack) -> None:
        """Make the marker of a new run: only one of several processes with the same id succeeds.

        Raises:
            RunExistsError: there is a run with this id.
        """
        taken = RunExistsError(f"there is a run {run_id} already in {self.root}", hint="try again")
        marker = self._runs.active_marker(run_id)
        try:
            marker.touch(0o600, exist_ok=False)
        except FileExistsError:
            raise taken from None
        undo.callback(marker.unlink, missing_ok=True)
        if os.path.lexists(self.folder(run_id)):
            raise taken

    def load(self, run_id: str) -> Run:
        """Read a run's record.

        Raises:
            NotFoundError: there is no such run.
            UnsafeRunError: another user could have written the record.
            DamagedRunError: the record cannot be read.
        """  # noqa: DOC501
        path = self._runs.run(run_id).record
        try:
            self._check_run(run_id)
            run = load_run(path)
            if run.run_id != run_id:  # a copied folder: actions on it would affect the original
                raise RecordError(f"it is the record of {run.run_id}")
            return run
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(
                f"there is no run {run_id!r}", hint="hpcrun status --all lists them"
            ) from None
        except (OSError, RecordError) as error:
            raise _damaged(run_id, path, error) from None

    def _check_run(self, run_id: str) -> None:
        """Refuse a run that another user could have written.

        Raises:
            UnsafeRunError: another user could have written it.
            OSError: there is no such run, or it cannot be checked.
        """
        folder = self.folder(run_id)
        danger = danger_in(folder, folder.stat())
        if danger:
            raise UnsafeRunError(
                f"run {run_id} is ignored: {danger}", hint=folder_checks.private_hint(folder)
            )

    def change(self, run: Run, **fields: Any) -> Run:
        """Change fields of a run's record, and add its job id to the index.

        The other fields stay as they are in the record by now: another process may have changed
        them since the run was read.

        Returns:
            The run as it is recorded.

        Raises:
            PlanError: the record cannot be written.
        """
        with folder_checks.writing(self.root), flocked(self._runs.lock, _LOCK_WAIT_S):
            with suppress(HpcrunError):  # a damaged record is replaced by what was read before
                run = self.load(run.run_id)
            changed = replace(run, **fields)
            replace_file(self._runs.run(run.run_id).record, run_to_json(changed))
        self.note_job(changed)
        return changed

    def note_job(self, run: Run) -> None:
        """Add a run's job id to the index.

        If this cannot be written, finding the run takes longer.
        """
        if run.job_id is None or not JOB_ID.fullmatch(run.job_id):
            return
        with suppress(OSError):
            self._runs.jobs.mkdir(mode=0o700, exist_ok=True)
            _write_private(self._runs.job_entry(run.job_id, run.run_id))

    def noted_jobs(self) -> Mapping[str, frozenset[str]]:
        """Return run id → job ids of the index.

        It may lack runs and be wrong: compare a run's record.
        """
        jobs: dict[str, frozenset[str]] = {}
        with suppress(OSError):
            for name in os.listdir(self._runs.jobs):
                entry = parse_job_entry(name)
                if entry is not None:
                    job_id, run_id = entry
                    jobs[run_id] = jobs.get(run_id, frozenset()) | {job_id}
        return jobs

    def is_own_folder(self, run_id: str) -> bool:
        """Return whether a run's folder belongs to this user and contains only this run.

        A link may lead anywhere.
        """
        real = self.folder(run_id).resolve()
        return real.name == run_id and holds_record(real, run_id)

    def delete(self, run_id: str) -> None:
        """Remove a run; a missing run is no error.

        If the process is killed meanwhile, a hidden folder may remain.

        Raises:
            NotRemovedError: the folder is not this run's, or a part of it remains. It is a
                PlanError.
            PlanError: the folder cannot be written to.
        """
        folder = self.folder(run_id)
        marker = self._runs.active_marker(run_id)
        real = folder.resolve()
        aside = RunsFolder(real.parent).removed(run_id).path
        if real.exists() and not self.is_own_folder(run_id):
            raise NotRemovedError(f"{folder} was not removed: it holds more than run {run_id}")
        with folder_checks.writing(real.parent):
            if folder.is_symlink():
                with suppress(OSError):  # delete it also on a full disk
                    # the place of the rest, if this process is killed
                    _note_place(marker, real.parent)
                folder.unlink()  # first: a link to nothing would be a run that cannot be read
            with suppress(FileNotFoundError):
                real.rename(aside)
        for job_id in self.noted_jobs().get(run_id, ()):
            with suppress(OSError):
                self._runs.job_entry(job_id, run_id).unlink(missing_ok=True)
        remove_tree(aside)
        with folder_checks.writing(self.root):
            marker.unlink(missing_ok=True)

    def check_dedicated(self) -> None:
        """Refuse to clean a runs folder that is not for runs alone, or is not safe.

        Such a folder also has another use, or another user could replace it.
        """
        folder_checks.check_dedicated(self.root)
        with suppress(OSError):
            folder_checks.check_path(self.root)

    def leftovers(self, before_s: float) -> list[Leftover]:
        """Return the folders of runs that were being made or deleted when a process was killed.

        Only folders from before a time are returned: a younger folder may still be in use.
        """
        runs = set(self.run_ids())
        paths = {self.root / name for name in _names(self.root)}
        for marker in self._lone_markers(runs):
            paths |= set(_noted_asides(marker))
        leftovers = []
        for path in sorted(paths):
            run_id = parse_aside(path.name)
            if run_id is None:
                continue
            with suppress(OSError):
                changed_s = path.lstat().st_mtime
                if changed_s < before_s:
                    leftovers.append(Leftover(path, run_id, changed_s, why_not_ours(path)))
        return leftovers

    def remove_leftovers(self, leftovers: Sequence[Leftover], before_s: float) -> list[HpcrunError]:
        """Remove leftovers, and other old entries without runs; return the failures.

        The other entries are markers, index entries and programs; they are older than a time.
        """
        errors: list[HpcrunError] = []
        for leftover in leftovers:
            try:
                remove_tree(leftover.path)
            except NotRemovedError as error:
                errors.append(error)
        for path in self._stale_entries():
            with suppress(OSError):
                if path.lstat().st_mtime < before_s:
                    path.unlink()
        remove_unused_programs(self._runs, before_s)
        return errors

    def _stale_entries(self) -> list[Path]:
        """Return the markers and the index entries without runs."""
        runs = set(self.run_ids())
        stale = []
        for marker in self._lone_markers(runs):
            if not any(map(os.path.lexists, _noted_asides(marker))):
                stale.append(marker)
        for name in _names(self._runs.jobs):
            entry = parse_job_entry(name)
            if entry is not None and entry[1] not in runs:
                stale.append(self._runs.jobs / name)
        return stale

    def _lone_markers(self, runs: Collection[str]) -> list[Path]:
        return [self._runs.active_marker(name) for name in self.active_ids() if name not in runs]

    def last_status(self, run_id: str) -> LastStatus | None:
        """Return the last known status of a run, None if there is none or it cannot be read."""
        try:
            return status_from_json(read_bytes(self._runs.run(run_id).status))
        except (OSError, ValueError):
            return None

    def save_status(self, run_id: str, status: LastStatus) -> None:
        """Save the status of a run; after a final status the run is no longer active."""
        # A status is only a copy: on a full or read-only disk it is still shown, and asked again
        # the next time.
        with suppress(OSError):
            replace_file(self._runs.run(run_id).status, status_to_json(status), durable=False)
            if status.final:
                self.leave_active(run_id)
            else:
                # a slower process may have overwritten a final status: then the next status
                # determines it again
                self._runs.active_marker(run_id).touch(0o600)

    def leave_active(self, run_id: str) -> None:
        """Remove the marker of a run that has ended."""
        with suppress(OSError):
            self._runs.active_marker(run_id).unlink(missing_ok=True)


_LONGEST_PATH = 4096  # PATH_MAX
_LOCK_WAIT_S = 10.0


def _write_private(path: Path, content: bytes = b"") -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def _note_place(marker: Path, parent: Path) -> None:
    """Write the place of a run that is made or deleted elsewhere to its marker.

    From the marker, clean finds the rest.
    """
    _write_private(marker, os.fsencode(parent) + b"\n")


def _noted_asides(marker: Path) -> list[Path]:
    """Return the possible places of a run that is made or deleted elsewhere.

    There are none if its marker has no place.
    """
    try:
        text = read_bytes(marker, _LONGEST_PATH + 1)
    except OSError:
        return []
    parent = RunsFolder(Path(os.fsdecode(text.removesuffix(b"\n"))))
    if b"\0" in text or not parent.path.is_absolute():
        return []
    return [parent.incomplete(marker.name).path, parent.removed(marker.name).path]


def _write_texts(aside: Path, texts: Mapping[str, str | bytes]) -> None:
    """Write the files of a new run, by their paths below its folder."""
    # first: by it clean recognises an incomplete run
    RunFolder(aside).marker.touch(0o600, exist_ok=False)
    for name, text in texts.items():
        path = aside / name
        make_folder(path.parent, 0o700)
        write_file(path, text)


def _remove_quietly(aside: Path) -> None:
    """Remove an incomplete run after a failure.

    The message is about the failure, and clean finds the rest.
    """
    with suppress(NotRemovedError):
        remove_tree(aside)


def _damaged(run_id: str, path: Path, error: OSError | RecordError) -> DamagedRunError:
    why = str(error)
    if isinstance(error, OSError) and error.strerror:
        why = error.strerror
    problem = f"{path} cannot be read: {why}"
    if isinstance(error, NewerRecordError):
        damaged: DamagedRunError = NewerRunError(problem, hint="pip install --upgrade hpcrun-slurm")
    else:
        damaged = DamagedRunError(problem, hint=f"hpcrun logs {run_id} shows its logs")
    damaged.run_id = run_id
    return damaged


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PlanError(
            f"cannot read the runs folder {folder}: {error.strerror}", hint=folder_checks.ELSEWHERE
        ) from None
