"""git, called so that nothing which a repository brings with it is run.

A repository's own configuration can name programs: monitors, hooks, filters, drivers of diff, transports. It comes
with a copied folder or an unpacked archive, whose owner then is the person who runs hpcrun, so that git's
``safe.directory`` does not help. Here all of them are off. What stands in the person's own configuration, such as the
filters of git-lfs, works.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hpcrun.errors import PlanError
from hpcrun.schedulers.process import Completed, run_command

_WITHIN_S = 120.0
# git-config(1) of git 2.39: what rev-parse, ls-files, config and diff would start, or read otherwise than expected.
_OFF = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",  # post-index-change
    "core.pager=cat",
    "core.sshCommand=false",
    "core.alternateRefsCommand=false",
    "credential.helper=",
    "diff.ignoreSubmodules=dirty",  # git looks into a submodule with a process that does not get these settings
    "diff.submodule=short",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.relative=false",
    "submodule.recurse=false",
    "protocol.allow=never",
)
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short")
"""The beginning of every ``git diff``."""
# What points git to another repository or hands it settings (git rev-parse --local-env-vars), and what starts programs.
_KEPT = frozenset(
    {"GIT_CEILING_DIRECTORIES", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_EXEC_PATH"}
)
_FILTER_KEYS = ("clean", "smudge", "process")


def run_git(folder: Path, *args: str, env: Mapping[str, str]) -> Completed:
    """Run git in a folder, with every program off that the repository names; filters too, by :func:`filters_off`."""
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in _KEPT}
    # GIT_ALLOW_PROTOCOL stands above every protocol.* of the repository: a missing object is not fetched
    said = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0"}  # fmt: skip
    settings = [word for setting in _OFF for word in ("-c", setting)]
    return run_command(
        ["git", "--no-pager", *settings, "-C", str(folder), *args], timeout_s=_WITHIN_S, env={**kept, **said}
    )


def filters_off(folder: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options that turn off the filters which a repository defines, to stand before a command of git.

    Raises:
        PlanError: one has a name that cannot be named so.
    """
    names: dict[str, None] = {}
    # --worktree fails where a repository has no such file
    for scope in ("--local", "--worktree"):
        answer = run_git(folder, "config", scope, "--includes", "--null", "--get-regexp", r"^filter\.", env=env)
        for entry in filter(None, answer.stdout.split("\0")) if answer.ok else ():
            names[entry.partition("\n")[0].partition(".")[2].rpartition(".")[0]] = None
    for name in names:
        if "=" in name:
            raise PlanError(
                f"--snapshot: this repository defines the filter {name!r}, which git cannot be told to leave out",
                hint=f"git config --remove-section 'filter.{name}'",
            )
    values = [f"filter.{name}.{key}=" for name in names for key in _FILTER_KEYS]
    values += [f"filter.{name}.required=false" for name in names]
    return tuple(word for value in values for word in ("-c", value))
