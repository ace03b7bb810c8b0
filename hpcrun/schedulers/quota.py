"""The quota of a user on one file system, if a command shows it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.schedulers.process import run_command

_ANSWER_WITHIN_S = 5.0
_COLUMNS = 8  # blocks in kB, quota, limit, grace; files, quota, limit, grace


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one resource, and its soft and hard limit; 0 for no limit."""

    used: int
    quota: int
    limit: int


@dataclass(frozen=True, slots=True)
class Quota:
    """A user's quota on a file system: space in kB, and number of files."""

    space_kb: Use
    files: Use


def ask_quota(folder: Path, names: Sequence[str], kind: str, env: Mapping[str, str]) -> Quota | None:
    """Return the user's quota on a file system, None if no command shows one.

    Args:
        folder: a folder on the file system.
        names: its device and its mount point; the commands use one or the other.
        kind: the file system's type: ``lustre`` has its own command.
    """
    argv = quota_command(folder, kind)
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        return None
    # quota(1) exits with 1 if a quota is exceeded
    answer = run_command(argv, timeout_s=_ANSWER_WITHIN_S, env={**env, "LC_ALL": "C"})
    return parse_quota(answer.stdout, [*names, str(folder)])


def quota_command(folder: Path, kind: str) -> list[str]:
    """Ask for the quota: of Lustre, or of every file system that has one; ``--raw-grace`` fills every column."""
    if kind == "lustre":
        return ["lfs", "quota", "-q", "-u", str(os.getuid()), str(folder)]
    return ["quota", "--no-wrap", "--raw-grace"]


def parse_quota(text: str, names: Sequence[str]) -> Quota | None:
    """Read the line of one file system from the answer of ``quota`` or ``lfs quota``, whose columns are the same.

    A ``*`` after a number means that it is exceeded, ``[]`` around it that Lustre is not sure.
    """
    words = text.split()
    for place, word in enumerate(words):
        if word in names:
            found = [re.sub(r"[*\[\]]", "", column) for column in words[place + 1 : place + 1 + _COLUMNS]]
            numbers = [int(column) for column in (*found[:3], *found[4:7]) if column.isascii() and column.isdigit()]
            if len(numbers) == 6:
                return Quota(Use(*numbers[:3]), Use(*numbers[3:]))
    return None
