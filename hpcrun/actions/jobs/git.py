"""git, called so that it runs no program that a repository names.

A repository's own configuration can name programs: monitors, hooks, filters, drivers of diff,
transports. It comes with a copied folder or an unpacked archive, whose owner then is the person who
runs hpcrun, so that git's
``safe.directory`` does not help.

Commands that list files and settings run in the repository with those programs turned off; they do
not read files.
``git diff`` and ``git status`` do, and no option turns off a filter whose name is not known. So
they run in a second, temporary repository, which has the commit, the objects and the index of the
first one and none of its configuration. The user's own configuration, such as the filters of
git-lfs, works in both.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hpcrun.errors import PlanError
from hpcrun.files.reading import read_bytes
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count
from hpcrun.machine.process import Completed, run_command

_WITHIN_S = 120.0
COMMIT_S = 1.0
"""How long a submission waits for the commit and the changes of its code."""
GONE = "gone"
"""The digest of a file of the commit that is no longer there."""
_MOST_DIGESTS = 20
_MOST_BYTES = 1 << 20
"""Of more files, and of a larger one, the content is not read."""
_DIGITS = 8
# git-config(1) of git 2.39: what rev-parse, ls-files, config and diff would start, or read
# otherwise than expected.
_OFF = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",  # post-index-change
    "core.pager=cat",
    "core.sshCommand=false",
    "core.alternateRefsCommand=false",
    "credential.helper=",
    # git looks into a submodule with a process that does not get these settings
    "diff.ignoreSubmodules=dirty",
    "diff.submodule=short",
    "diff.autoRefreshIndex=false",  # git writes nothing to the repository's index
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.relative=false",
    "submodule.recurse=false",
    "protocol.allow=never",
)
_DIFF = (
    "diff",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=dirty",
    "--submodule=short",
)
_STATUS = (
    "status",
    "--porcelain",
    "-z",
    "--no-renames",
    "--ignore-submodules=dirty",
    "--untracked-files=normal",
)
_STATUS_WIDTH = len("XY ")
"""What stands before each path of git status --porcelain."""
# The repository's settings that say how its files differ from its objects. None of them names a
# program or a path.
_KEPT_SETTINGS = (
    r"^core\.(autocrlf|checkstat|eol|filemode|ignorecase|precomposeunicode"
    r"|sparsecheckout|symlinks|trustctime)$"
)
_NO_MATCH = 1  # git-config(1), the exit status
# Variables that name another repository or pass settings (git rev-parse --local-env-vars), or that
# start programs.
_KEPT = frozenset(
    {
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EXEC_PATH",
    }
)


def run_git(
    folder: Path,
    *args: str,
    env: Mapping[str, str],
    place: Mapping[str, str] | None = None,
    until: float | None = None,
) -> Completed:
    """Run git in a folder; of the programs that the repository names, only filters can run.

    Args:
        folder: the folder in which git starts.
        *args: git's command and its arguments.
        env: the environment; of git's own variables, only those of ``_KEPT`` reach git.
        place: git's variables that name another repository than the one of the folder.
        until: when git is ended, by the monotonic clock; None for two minutes from now.
    """
    passed = {name: value for name, value in env.items() if _is_kept(name)}
    # GIT_ALLOW_PROTOCOL stands above every protocol.* of the repository: a missing object is not
    # fetched
    variables = {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    command = ["git", "--no-pager"]
    for setting in _OFF:
        command += ["-c", setting]
    command += ["-C", str(folder), *args]
    env_of_git = {**passed, **variables, **(place or {})}
    within_s = _WITHIN_S if until is None else max(0.0, until - time.monotonic())
    return run_command(command, timeout_s=within_s, env=env_of_git)


def _is_kept(name: str) -> bool:
    """Whether a variable of the environment reaches git."""
    return name in _KEPT or not name.startswith("GIT_")


def diff_work_tree(root: Path, *args: str, env: Mapping[str, str]) -> Completed:
    """Run ``git diff`` at the top of a work tree, without the configuration of its repository.

    Args:
        root: the top of the work tree.
        *args: the arguments of ``git diff``; the hash names a commit, since there are no
            references.
        env: the environment in which git runs.

    Raises:
        PlanError: hpcrun cannot write the temporary git repository.
    """
    return _run_apart(_read_repository(root, env), *_DIFF, *args, env=env)


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The code of a folder, as git knows it."""

    root: Path
    commit: str
    changed: int | None  # files and new folders that differ from the commit; None if not known
    digests: tuple[tuple[str, str], ...] = ()
    """The paths of these, each with the beginning of its SHA-256, or ``GONE``; empty if not read.

    There is none of a commit with too many changes.
    """

    def record(self) -> dict[str, Any]:
        """Return its fields for the record of a run without a snapshot."""
        changes = count(self.changed, "changed file") if self.changed else ""
        return {
            "root": str(self.root),
            "commit": self.commit,
            "changed": self.changed,
            "changes": changes,
            "digests": self.digests,
            "copied": False,
            "files": 0,  # an older hpcrun expects the numbers of a snapshot
            "bytes": 0,
        }


def read_work_tree(folder: Path, env: Mapping[str, str]) -> WorkTree | None:
    """Return the commit of the code in a folder, within ``COMMIT_S`` seconds.

    Returns:
        None if git does not know the folder, has no commit, or does not respond in time.
    """
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None  # at less cost than by git
    until = time.monotonic() + COMMIT_S
    try:
        repository = _read_repository(folder, env, until)
    except PlanError:
        return None
    root = repository.root
    # core.worktree may name any folder
    if not folder.is_relative_to(root) or not (root / ".git").exists():
        return None
    try:
        answer = _run_apart(repository, *_STATUS, env=env, until=until)
    except PlanError:
        return WorkTree(root, repository.commit, None)
    if not answer.ok:
        return WorkTree(root, repository.commit, None)
    paths = [entry[_STATUS_WIDTH:] for entry in answer.stdout.split("\0")[:-1]]
    if len(paths) > _MOST_DIGESTS:
        return WorkTree(root, repository.commit, len(paths))
    digests = []
    for path in paths:
        digest = ""
        if time.monotonic() < until:
            digest = _digest(root / path)
        digests.append((path, digest))
    return WorkTree(root, repository.commit, len(paths), tuple(digests))


def _digest(path: Path) -> str:
    """Return the beginning of a file's SHA-256, or ``GONE``; empty if the file is not read."""
    try:
        content = read_bytes(path, _MOST_BYTES)
    except FileNotFoundError:
        return GONE
    except OSError:  # a folder, or a large file
        return ""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _run_apart(
    repository: _Repository, *args: str, env: Mapping[str, str], until: float | None = None
) -> Completed:
    """Run git at the top of a work tree, without the configuration of its repository.

    Raises:
        PlanError: hpcrun cannot write the temporary git repository.
    """
    root = repository.root
    settings = _settings(root, env, until)
    try:
        with TemporaryDirectory(prefix="hpcrun-git-") as temporary:
            folder = Path(temporary).resolve()
            _fill_repository(folder, repository)
            place = {
                "GIT_DIR": str(folder),
                "GIT_WORK_TREE": str(root),
                "GIT_INDEX_FILE": str(repository.index),
                "GIT_OBJECT_DIRECTORY": str(repository.objects),
            }
            return run_git(root, *settings, *args, env=env, place=place, until=until)
    except OSError as error:
        raise PlanError(
            f"{spell('snapshot')}: cannot write a temporary git repository: {error}"
        ) from None


@dataclass(frozen=True, slots=True)
class _Repository:
    """The parts of a repository that name no program."""

    root: Path
    commit: str  # git's HEAD
    objects: Path
    index: Path
    attributes: Path
    exclude: Path
    has_sha256: bool  # else its objects are named by SHA-1


def _read_repository(
    folder: Path, env: Mapping[str, str], until: float | None = None
) -> _Repository:
    """Return the parts of the repository of a folder in its work tree.

    Raises:
        PlanError: git does not find the repository or its commit, or a path has a line break.
    """
    options = []
    for name in ("objects", "index", "info/attributes", "info/exclude"):
        options += ["--git-path", name]
    options += ["--show-object-format", "--show-toplevel", "HEAD"]
    answer = run_git(folder, "rev-parse", *options, env=env, until=until)
    lines = answer.stdout.removesuffix("\n").split("\n")
    if not answer.ok or len(lines) != 7:  # more where the path has a line break
        raise PlanError(f"{spell('snapshot')}: git cannot find the repository: {answer.words()}")
    return _Repository(
        objects=folder / lines[0],
        index=folder / lines[1],
        attributes=folder / lines[2],
        exclude=folder / lines[3],
        # git before 2.28 repeats the option that it does not know, and has SHA-1 alone
        has_sha256=lines[4] == "sha256",
        root=Path(lines[5]),
        commit=lines[6],
    )


def _settings(root: Path, env: Mapping[str, str], until: float | None) -> list[str]:
    args = ("config", "--null", "--get-regexp", _KEPT_SETTINGS)
    answer = run_git(root, *args, env=env, until=until)
    if not answer.ok and answer.status != _NO_MATCH:
        raise PlanError(
            f"{spell('snapshot')}: git cannot read the repository's settings: {answer.words()}"
        )
    settings = []
    for entry in answer.stdout.split("\0"):
        if entry:
            settings += ["-c", entry.replace("\n", "=", 1)]
    return settings


def _fill_repository(folder: Path, repository: _Repository) -> None:
    """Write a repository with another one's index and attributes into an empty folder."""
    for name in ("refs", "info", "objects"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text(f"{repository.commit}\n")
    config = "[core]\n\trepositoryFormatVersion = 1\n"
    if repository.has_sha256:
        config += "[extensions]\n\tobjectFormat = sha256\n"
    (folder / "config").write_text(config)
    # git-update-index(1), "Split index": git looks for the shared part in its own folder
    for shared in repository.index.parent.glob("sharedindex.*"):
        (folder / shared.name).symlink_to(shared)
    for file in (repository.attributes, repository.exclude):
        if file.is_file():
            (folder / "info" / file.name).symlink_to(file)
