"""What doctor finds: one thing that was looked at, how it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["green", "yellow", "red"]
SLURM, PROFILE, RUNS, PYTHON = "Slurm", "Profile", "Runs folder", "Python"
GROUPS = (SLURM, PROFILE, RUNS, PYTHON)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        level: red where jobs will fail, yellow where they may or where it could not be seen.
        seen: what was found.
        fix: one command or sentence; None where there is nothing to do here.
    """

    group: str
    name: str
    level: Level
    seen: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Checkup:
    """All that was looked at.

    Attributes:
        profile: the one that was checked, None where none is chosen.
        has_torch: whether the job's Python has a torch that can be imported, as far as is known.
    """

    profile: str | None
    checks: tuple[Check, ...]
    has_torch: bool = False

    def errors(self, *groups: str) -> list[Check]:
        """Return what is red in these groups."""
        return [check for check in self.checks if check.level == "red" and check.group in groups]

    @property
    def ok(self) -> bool:
        """Whether nothing is red."""
        return not any(check.level == "red" for check in self.checks)


def not_checked(group: str, name: str, why: str, fix: str | None = None) -> Check:
    """Return that something could not be looked at."""
    return Check(group, name, "yellow", f"not checked: {why}", fix)
