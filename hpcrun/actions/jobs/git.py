"""git, called so that it runs no program that a repository names.

A repository's own configuration can name programs: monitors, hooks, filters, drivers of diff,
transports. It comes with a copied folder or an unpacked archive, whose owner then is the person who
runs hpcrun, so that git's
``safe.directory`` does not help.

Commands that list files and settings run in the repository with those programs turned off; they do
not read files.
``git diff`` does, and no option turns off a filter whose name is not known. So it runs in a second,
temporary repository, which has the objects and the index of the first one and none of its
configuration. The user's own configuration, such as the filters of git-lfs, works in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hpcrun.errors import PlanError
from hpcrun.machine.process import Completed, run_command

_WITHIN_S = 120.0
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
    folder: Path, *args: str, env: Mapping[str, str], place: Mapping[str, str] | None = None
) -> Completed:
    """Run git in a folder; of the programs that the repository names, only filters can run.

    Args:
        folder: the folder in which git starts.
        *args: git's command and its arguments.
        env: the environment; of git's own variables, only those of ``_KEPT`` reach git.
        place: git's variables that name another repository than the one of the folder.
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
    return run_command(command, timeout_s=_WITHIN_S, env=env_of_git)


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
    repository = _read_repository(root, env)
    settings = _settings(root, env)
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
            return run_git(root, *settings, *_DIFF, *args, env=env, place=place)
    except OSError as error:
        raise PlanError(f"--snapshot: cannot write a temporary git repository: {error}") from None


@dataclass(frozen=True, slots=True)
class _Repository:
    """The parts of a repository that name no program."""

    objects: Path
    index: Path
    attributes: Path
    has_sha256: bool  # else its objects are named by SHA-1


def _read_repository(root: Path, env: Mapping[str, str]) -> _Repository:
    """Return the parts of the repository of a work tree.

    Raises:
        PlanError: git does not find the repository, or a path has a line break.
    """
    options = []
    for name in ("objects", "index", "info/attributes"):
        options += ["--git-path", name]
    answer = run_git(root, "rev-parse", *options, "--show-object-format", env=env)
    lines = answer.stdout.removesuffix("\n").split("\n")
    if not answer.ok or len(lines) != 4:  # more where the path has a line break
        raise PlanError(f"--snapshot: git cannot find the repository: {answer.words()}")
    return _Repository(
        objects=root / lines[0],
        index=root / lines[1],
        attributes=root / lines[2],
        # git before 2.28 repeats the option that it does not know, and has SHA-1 alone
        has_sha256=lines[3] == "sha256",
    )


def _settings(root: Path, env: Mapping[str, str]) -> list[str]:
    answer = run_git(root, "config", "--null", "--get-regexp", _KEPT_SETTINGS, env=env)
    if not answer.ok and answer.status != _NO_MATCH:
        raise PlanError(f"--snapshot: git cannot read the repository's settings: {answer.words()}")
    settings = []
    for entry in answer.stdout.split("\0"):
        if entry:
            settings += ["-c", entry.replace("\n", "=", 1)]
    return settings


def _fill_repository(folder: Path, repository: _Repository) -> None:
    """Write a repository with another one's index and attributes into an empty folder."""
    for name in ("refs", "info", "objects"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    config = "[core]\n\trepositoryFormatVersion = 1\n"
    if repository.has_sha256:
        config += "[extensions]\n\tobjectFormat = sha256\n"
    (folder / "config").write_text(config)
    # git-update-index(1), "Split index": git looks for the shared part in its own folder
    for shared in repository.index.parent.glob("sharedindex.*"):
        (folder / shared.name).symlink_to(shared)
    if repository.attributes.is_file():
        (folder / "info/attributes").symlink_to(repository.attributes)
