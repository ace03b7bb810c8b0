"""--snapshot: a copy of the present code without its secrets, for a job that starts later."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.git import diff_work_tree, run_git
from hpcrun.errors import PlanError, UsageError
from hpcrun.files.reading import open_regular, read_bytes
from hpcrun.job.plan.job_plan import PythonEnvironment, Snapshot
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.secret_files import (
    MOST_NAMED,
    is_included,
    is_key,
    is_named_key,
    looks_secret,
    may_be_key,
)
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import listed
from hpcrun.machine.process import Completed
from hpcrun.runs.job_code import (
    MOST_FILES,
    CodeFile,
    check_count,
    copy_code,
    measure_code,
    walk_code,
)

LIMIT_MB = 200
_KEY_BYTES = 64 * 1024
"""How much is read of a file that may be a key."""
_IN_QUOTES = re.compile(r"""['"](/[^'"\n]+)['"]""")
_LARGEST = 100_000  # of a file that names folders, in bytes
_UNTRACKED = "?"  # git-ls-files(1), -t


# --- the folder that is copied -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tree:
    """The folder that is copied."""

    root: Path
    folder: str  # where the job starts, below the root
    git: bool  # it is a git work tree
    env: Mapping[str, str]  # the environment git runs in

    def run(self, *args: str, below: str = ".") -> Completed:
        """Run git in the tree, or in a submodule of it."""
        return run_git(self.root / below, *args, env=self.env)

    def diff(self, *args: str) -> Completed:
        """Run git diff of a commit, named by its hash, and the work tree.

        Raises:
            PlanError: git diff fails.
        """
        answer = diff_work_tree(self.root, *args, env=self.env)
        if not answer.ok:
            raise PlanError(f"the changes cannot be recorded: {answer.words()}")
        return answer


def find_tree(workdir: Path, env: Mapping[str, str]) -> Tree:
    """Return the tree to copy for a job that starts in a folder.

    Returns:
        The git work tree of the folder; without git, the folder itself.

    Raises:
        PlanError: git fails, or the folder is outside of its repository's work tree.
    """
    workdir = workdir.resolve()
    tree = Tree(workdir, ".", False, env)
    if shutil.which("git", path=env.get("PATH")) is None:
        return tree
    answer = tree.run("rev-parse", "--show-toplevel")
    if answer.ok:
        root = Path(answer.stdout.removesuffix("\n"))
        if not workdir.is_relative_to(root):
            raise PlanError(
                f"{spell('snapshot')}: {workdir} belongs to a git repository, but its work tree "
                f"is {root}",
                hint="git config --unset core.worktree",
            )
        return Tree(root, os.path.relpath(workdir, root), True, env)
    if "not a git repository" in answer.stderr:
        return tree
    raise PlanError(f"{spell('snapshot')}: git cannot list the files: {answer.words()}")


def place_in_snapshot(
    request: JobRequest, tree: Tree, python: PythonEnvironment
) -> tuple[JobRequest, Snapshot]:
    """Return the request with its script as called in the copy, and the layout of the copy.

    The layout is for the script.
    """
    workdir = tree.root / tree.folder
    script = _script(request, tree, workdir)
    if script:
        called = os.path.relpath(tree.root / script, workdir)
        is_plain = called.endswith(".py") or "/" in called
        request = replace(request, script=called if is_plain else f"./{called}")
    folders = [workdir]
    folders += [workdir / item for item in tree.env.get("PYTHONPATH", "").split(":") if item]
    folders += _editable_folders(python, tree.env)
    paths: list[str] = []
    for folder in folders:
        real = folder.resolve()
        if not real.is_relative_to(tree.root) or "site-packages" in real.parts:
            continue
        path = os.path.relpath(real, tree.root)
        if path not in paths:
            paths.append(path)
    return request, Snapshot(tree.folder, tuple(paths), script)


def _script(request: JobRequest, tree: Tree, workdir: Path) -> str | None:
    """Return the script's path below the root.

    Returns:
        The path; None for a module, or for a program outside of the code.

    Raises:
        UsageError: a Python script is outside of the root.
    """
    is_python = request.script.endswith(".py")
    if request.module or ("/" not in request.script and not is_python):
        return None
    named = Path(os.path.normpath(workdir / request.script))
    for full in (named, named.resolve()):
        if full.is_relative_to(tree.root):
            return os.path.relpath(full, tree.root)
    if not is_python:
        return None
    raise UsageError(
        f"{spell('snapshot')} copies {tree.root}, but {named} is outside",
        hint=f"submit from the folder of the script, or leave {spell('snapshot')} out",
    )


def _editable_folders(python: PythonEnvironment, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders outside of site-packages in which a Python finds packages.

    ``pip install -e`` names them in ``.pth`` files, or in the finder that setuptools writes for
    some projects; both come after PYTHONPATH.
    """
    if python.prefix:
        prefix = Path(python.prefix)
    else:
        program = shutil.which(python.executable, path=env.get("PATH")) or python.executable
        prefix = Path(program).parent.parent
    sites = _site_packages(prefix)
    if env.get("HOME"):
        sites += _site_packages(Path(env["HOME"], ".local"))
    for site in sites:
        for line in _lines_of(site.glob("*.pth")):
            name = line.strip()
            if name and not name.startswith(("#", "import ", "import\t")):  # as site.py reads them
                yield site / name
        for line in _lines_of(site.glob("__editable__*_finder.py")):
            for package in _IN_QUOTES.findall(line):
                yield Path(package).parent


def _site_packages(prefix: Path) -> list[Path]:
    """Return the site-packages folders of the Pythons under a prefix."""
    return sorted(prefix.glob("lib/python3*/site-packages"))


def _lines_of(files: Iterator[Path]) -> Iterator[str]:
    """Yield the lines of files that can be read."""
    for file in sorted(files):
        try:
            content = read_bytes(file, _LARGEST, links=True)
        except OSError:
            continue
        yield from content.decode("utf-8", "surrogateescape").splitlines()


# --- its files, and those that look like secrets -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that could be copied."""

    tree: Tree
    paths: Mapping[str, str]  # path → git's letter for it, or none without git
    secrets: Sequence[str]  # files that look like secrets
    include: Sequence[str]  # patterns of the secrets that are copied nevertheless
    notes: Sequence[str]  # about repositories within this one

    @property
    def left_out(self) -> tuple[str, ...]:
        """The files that look like secrets and were not requested."""
        return tuple(path for path in self.secrets if not is_included(path, self.include))

    def secret_notes(self) -> Iterator[str]:
        """Yield notes on the files that look like secrets."""
        for pattern in self.include:
            if not any(is_included(path, [pattern]) for path in self.secrets):
                yield f"{spell('snapshot-include', pattern)}: no such file that looks like a secret"
        left_out = self.left_out
        if left_out:
            words = f"not copied, since they look like secrets: {listed(left_out, MOST_NAMED)}"
            yield f"{words}; to copy them: {spell('snapshot-include', 'PATTERN')}"


def list_code(tree: Tree, include: Sequence[str], runs: Path | None) -> Listing:
    """List the files of a tree.

    Args:
        tree: the folder, and whether git knows it.
        include: patterns of files that are copied although they look like secrets.
        runs: the runs folder, which is no code.
    """
    notes: list[str] = []
    paths: dict[str, str] = {}
    if tree.git:
        for path, tag in _outside(_git_paths(tree, notes), tree.root, runs).items():
            is_cache = tag == _UNTRACKED and "__pycache__" in path.split("/")
            if not is_cache:
                paths[path] = tag
    else:
        without = [runs.resolve()] if runs else []
        paths = dict.fromkeys(islice(walk_code(tree.root, without), MOST_FILES + 1), "")
    secrets = [path for path in paths if _is_secret(tree.root, path)]
    return Listing(tree, paths, secrets, include, notes)


def _outside(paths: Mapping[str, str], root: Path, folder: Path | None) -> dict[str, str]:
    """Return the paths below the root that are not in a folder."""
    if folder is None or not folder.resolve().is_relative_to(root):
        return dict(paths)
    below = f"{folder.resolve().relative_to(root)}/"
    return {path: tag for path, tag in paths.items() if not path.startswith(below)}


def _git_paths(tree: Tree, notes: list[str], below: str = ".") -> dict[str, str]:
    """Return the files that git tracks or does not ignore.

    Returns:
        The path of each file → git's letter for it, which tells tracked and untracked files apart.

    Raises:
        PlanError: git cannot list the files.
    """
    answer = tree.run(
        "ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard", below=below
    )
    if not answer.ok:
        raise PlanError(f"{spell('snapshot')}: git cannot list the files: {answer.words()}")
    paths: dict[str, str] = {}
    for entry in _entries(answer):
        path = os.path.normpath(os.path.join(below, entry[2:]))
        full = f"{tree.root}/{path}"
        if os.path.islink(full) or not os.path.isdir(full):
            paths[path] = entry[0]
        elif os.path.exists(f"{full}/.git"):  # a submodule, or a repository within this one
            notes.append(f"{path} is a git repository of its own: its files are copied too")
            paths |= _git_paths(tree, notes, path)
        else:
            notes.append(
                f"{path} is a submodule that is not checked out: it is empty in the snapshot"
            )
    return paths


def _entries(answer: Completed) -> list[str]:
    """Return what git has written with ``-z``."""
    return [entry for entry in answer.stdout.split("\0") if entry]


def _is_secret(root: Path, path: str) -> bool:
    """Whether a file's name or its content looks like a secret."""
    if looks_secret(path):
        return True
    if not may_be_key(path):
        return False
    full = root / path
    try:
        if not stat.S_ISREG(full.lstat().st_mode):
            return is_named_key(path)
        with open_regular(full, links=False) as file:
            return is_key(path, file.read(_KEY_BYTES), os.fstat(file.fileno()).st_size)
    except OSError:
        return is_named_key(path)  # it was deleted, or cannot be read


# --- the copy ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Code:
    """The code to copy."""

    listing: Listing
    files: tuple[CodeFile, ...]
    commit: str | None  # git's HEAD; None without git, and before the first commit
    # the changes of the work tree in git's words, and files unknown to git; empty for none
    changes: str
    changed: int  # files that differ from the commit, or are unknown to git
    notes: tuple[str, ...]  # notes on the copy for the user

    def record(self) -> dict[str, Any]:
        """Return its fields for the run's record."""
        return {
            "root": str(self.listing.tree.root),
            "folder": self.listing.tree.folder,
            "files": len(self.files),
            "bytes": sum(file.size for file in self.files),
            "commit": self.commit,
            "changes": self.changes,
            "changed": self.changed,
            "left_out": list(self.listing.left_out),
        }

    def copy_to(self, folder: Path) -> None:
        """Copy it into a run's folder, and write its difference from the commit to ``code.diff``.

        Raises:
            PlanError: a file cannot be read, or git fails.
            OSError: the copy cannot be written.
        """
        tree = self.listing.tree
        copy_code(tree.root, self.files, RunFolder(folder).code, tree.folder)
        if self.commit is None:
            return
        paths = [":(top)"]
        # also files that are deleted or no longer tracked: the diff would show their contents
        for path in _entries(tree.diff("--name-only", "-z", self.commit, "--")):
            if not is_included(path, self.listing.include) and _is_secret(tree.root, path):
                paths.append(f":(exclude,top,literal){path}")
        output = f"--output={RunFolder(folder).code_diff}"
        tree.diff("--binary", output, self.commit, "--", *paths)


def code_to_copy(
    listing: Listing, snapshot: Snapshot, limit_mb: int | None, output_dir: Path | None
) -> Code:
    """Decide which files to copy.

    Args:
        listing: the files of the code, and those that are left out.
        snapshot: the layout of the copy, with the script.
        limit_mb: the largest total size in megabytes; None for ``LIMIT_MB``.
        output_dir: the folder for the run, which is not code.

    Raises:
        PlanError: the code is larger than the limit, or git fails.
        UsageError: the script is not part of the code.
    """
    tree = listing.tree
    tagged = _outside(listing.paths, tree.root, output_dir)
    check_count(list(tagged), tree.root)
    left_out = frozenset(listing.left_out)
    paths = [path for path in tagged if path not in left_out]
    if snapshot.script in left_out:
        raise UsageError(
            f"{snapshot.script} looks like a file of secrets, and those are not copied",
            hint=spell("snapshot-include", Path(snapshot.script)),
        )
    if snapshot.script and snapshot.script not in paths:
        raise UsageError(
            f"{snapshot.script} is not in the snapshot: git ignores it",
            hint=f"git add -f {shlex.quote(snapshot.script)}",
        )
    files = measure_code(tree.root, paths, LIMIT_MB if limit_mb is None else limit_mb)
    notes = list(listing.notes)
    leaving = [f"{file.path} -> {file.link}" for file in files if file.leaves]
    if leaving:
        notes.append(f"symbolic links that point outside the snapshot: {listed(leaving)}")
    commit = _head(tree)
    changes = []
    changed = 0
    if commit:
        difference = tree.diff("--shortstat", commit, "--").stdout.strip()
        if difference:
            changes.append(difference)
            changed = int(difference.partition(" ")[0])
    untracked = [path for path in paths if tagged[path] == _UNTRACKED]
    if untracked:
        changes.append(f"{len(untracked)} untracked")
        changed += len(untracked)
    return Code(listing, files, commit, ", ".join(changes), changed, tuple(notes))


def _head(tree: Tree) -> str | None:
    """Return the hash of git's HEAD; None without git, and before the first commit."""
    if not tree.git:
        return None
    answer = tree.run("rev-parse", "--verify", "--quiet", "HEAD")
    if not answer.ok:
        return None
    return answer.stdout.strip() or None
