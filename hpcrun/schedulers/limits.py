"""The limits that keep jobs pending, and their use: limits of a QOS, and of the accounts of a user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ACCOUNTS = ""
"""The key of the limits of the user's accounts; limits of a QOS have its name as key."""

_LIMIT = re.compile(r"([\w/:.-]+)=(\d+)\((\d+)\)")
_WORDS = {"MaxJobsPU": "running jobs", "MaxSubmitJobsPU": "jobs", "GrpJobs": "running jobs", "GrpSubmitJobs": "jobs"}
_NOT_A_LIMIT_OF_JOBS = ("MaxJobsAccruePU", "GrpJobsAccrue")  # they limit only priority by age
# lines whose resources are counted in minutes
_MINUTES = {"GrpTRESMins": " minutes", "GrpTRESRunMins": " minutes reserved by running jobs"}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and its use.

    Attributes:
        holder: ``QOS short``, ``account lab``, or ``account lab, you``.
        what: ``jobs``, or Slurm's name of a resource (``gres/gpu``).
        whose: whose jobs count: ``you``, or ``all its users``.
    """

    holder: str
    what: str
    used: str
    allowed: str
    whose: str = "you"


def limits_command(user: str) -> list[str]:
    """Ask the controller for all QOS, and for a user's accounts and their parents."""
    return ["scontrol", "show", "assoc_mgr", "flags=qos,assoc", f"users={user}"]


def parse_limits(text: str, uid: int) -> dict[str, list[Limit]]:
    """Read the answer: QOS → the user's limits there; under ``ACCOUNTS`` the limits of the user's accounts.

    ``MaxJobsPU=2(1)`` means two allowed and one in use, ``N`` means no limit (src/common/assoc_mgr_info.c); users of a
    QOS are listed by number. Entries without a limit are left out.
    """
    found: dict[str, list[Limit]] = {}
    key, holder, whose, in_users = "", "", "", False
    for line in map(str.strip, text.splitlines()):
        if match := re.fullmatch(r"QOS=(.+?)\(\d+\)", line):
            key, holder, whose, in_users = match[1], f"QOS {match[1]}", "all its users", False
        elif match := re.match(r"ClusterName=\S+ Account=(\S+) UserName=(?:\S*\((\d+)\))? ", line):
            mine, everybody = match[2] == str(uid), match[2] is None
            key, holder = ACCOUNTS, f"account {match[1]}" + ("" if everybody else ", you")
            whose = "all its users" if everybody else "you" if mine else ""
        elif line in ("User Limits", "Account Limits"):
            whose, in_users = "", line.startswith("User")
        elif "=" not in line:  # a user of the QOS, or an account of it
            whose = "you" if in_users and str(uid) in re.findall(r"\d+", line) else ""
        elif whose:
            found.setdefault(key, []).extend(_limits(line, holder, whose))
    return {name: limits for name, limits in found.items() if limits}


def _limits(line: str, holder: str, whose: str) -> Iterator[Limit]:
    minutes = _MINUTES.get(line.partition("=")[0], "")
    for name, allowed, used in _LIMIT.findall(line):
        if name not in _NOT_A_LIMIT_OF_JOBS:
            yield Limit(holder, _WORDS.get(name, name) + minutes, used, allowed, whose)
