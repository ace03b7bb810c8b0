"""The code of jobs in the runs folder: snapshots of a project's code."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.files.reading import open_regular, walk_folder
from hpcrun.files.writing import make_folder
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.spelling import spell

MOST_FILES = 50_000
_SKIPPED = frozenset({".git", "__pycache__"})
_MOST_SHOWN = 5
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file or symbolic link of the code."""

    path: str  # below the root
    size: int
    link: str | None = None  # the target of the copied link; None for a file
    leaves: bool = False  # the link leads out of the code


def walk_code(root: Path, leaving_out: Sequence[Path]) -> Iterator[str]:
    """Yield the paths of the files and links below a folder without git.

    Virtual environments, ``__pycache__`` and ``.git`` are not code, and the paths in
    ``leaving_out`` are skipped.
    """
    for folder, folders, files in walk_folder(root):
        kept = []
        for name in sorted(folders):
            path = Path(folder, name)
            if name in _SKIPPED or path in leaving_out:
                continue
            if not (path / "pyvenv.cfg").exists():
                kept.append(name)
        folders[:] = kept
        links = [name for name in kept if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*files, *links]):
            yield os.path.relpath(os.path.join(folder, name), root)


def measure_code(root: Path, paths: Sequence[str], limit_mb: int) -> tuple[CodeFile, ...]:
    """Return the files and links to copy.

    Missing files, and other kinds of entries, are ignored.

    Raises:
        PlanError: the total size is over the limit in megabytes.
    """
    entries = [_code_file(root, path) for path in paths]
    code = tuple(file for file in entries if file is not None)
    size = sum(file.size for file in code)
    if size > limit_mb * _MB:
        largest = sorted(code, key=lambda file: -file.size)[:_MOST_SHOWN]
        lines = "\n".join(f"  {file.size / _MB:.1f} MB  {file.path}" for file in largest)
        raise PlanError(
            f"the code in {root} is {size / _MB:.0f} MB in {len(code)} files, over the limit of a "
            f"snapshot ({limit_mb} MB); the largest:\n{lines}",
            hint="list files that are not code in .gitignore, or raise the limit with "
            f"{spell('snapshot-limit', 'SIZE')}",
        )
    return code


def check_count(paths: Sequence[str], root: Path) -> None:
    """Refuse more files than the code of one project can have.

    Raises:
        PlanError: there are too many files.
    """
    if len(paths) > MOST_FILES:
        raise PlanError(
            f"there are more than {MOST_FILES} files in {root}, too many for a snapshot",
            hint="cd to the project's folder, or list files that are not code in .gitignore",
        )


def _code_file(root: Path, path: str) -> CodeFile | None:
    full = root / path
    try:
        status = full.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None  # git lists what was deleted, too
    except OSError as error:
        raise PlanError(f"cannot read {full}: {error.strerror}") from None
    if stat.S_ISREG(status.st_mode):
        return CodeFile(path, status.st_size)
    if not stat.S_ISLNK(status.st_mode):
        return None
    link = os.readlink(full)
    target = os.path.normpath(full.parent / link)
    if target != str(root) and not target.startswith(f"{root}/"):
        return CodeFile(path, 0, target, leaves=True)
    if os.path.isabs(link):  # an absolute link would lead back to the original
        link = os.path.relpath(target, full.parent)
    return CodeFile(path, 0, link)


def copy_code(root: Path, files: Sequence[CodeFile], target: Path, folder: str) -> None:
    """Copy code with modes and times; no other user can read the copy.

    The folder where the job starts is made even if it has no files. It raises PlanError if a file
    cannot be read, and OSError if the copy cannot be written.
    """
    target.mkdir(mode=0o700)
    made = {target}
    _make_folder(target / folder, made)
    for file in files:
        copy = target / file.path
        _make_folder(copy.parent, made)
        if file.link is not None:
            copy.symlink_to(file.link)
        else:
            _copy_file(root / file.path, copy)


def _make_folder(folder: Path, made: set[Path]) -> None:
    missing = list(takewhile(lambda each: each not in made, (folder, *folder.parents)))
    for each in reversed(missing):  # one by one: mkdir makes parents with the umask
        each.mkdir(mode=0o755)
    made.update(missing)


def _copy_file(source: Path, copy: Path) -> None:
    try:
        reader = open_regular(source, links=False)
    except OSError as error:
        raise PlanError(
            f"cannot read {source} for the snapshot: {error.strerror}",
            hint="if it is not code, list it in .gitignore",
        ) from None
    with reader, copy.open("xb") as writer:
        shutil.copyfileobj(reader, writer)
        status = os.fstat(reader.fileno())
        os.fchmod(writer.fileno(), stat.S_IMODE(status.st_mode) & 0o755)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def share_checkpoints(run_folder: Path, earlier: Path, element: int = 0) -> None:
    """Let a new run's element keep its checkpoints in an earlier run's folder.

    The folder is made if it does not exist. The link leads to the folder itself, so that runs in
    between may be removed.
    """
    theirs = RunFolder(earlier).element(element).checkpoints
    make_folder(theirs, 0o700)
    mine = RunFolder(run_folder).element(element).checkpoints
    make_folder(mine.parent, 0o700)
    mine.symlink_to(theirs.resolve())


def has_no_files(folder: Path) -> bool:
    """Whether a folder has been read, or does not exist, and has no file at any depth.

    A folder that cannot be read may have files.
    """
    unread: list[OSError] = []
    for _, _, files in os.walk(folder, onerror=unread.append):
        if files:
            return False
    return all(isinstance(error, FileNotFoundError) for error in unread)


def share_code(run_folder: Path, earlier: Path) -> None:
    """Let a new run use the snapshot of code of an earlier one; OSError if there is none."""
    RunFolder(run_folder).code.symlink_to(RunFolder(earlier).code.resolve(strict=True))
