"""Dependencies on other runs: ``RUN:ok``, the states that fulfil it, and sbatch's option for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from hpcrun.errors import UsageError
from hpcrun.job.state import COMPLETED, NOT_SUBMITTED

Condition = Literal["ok", "any", "fail"]
CONDITIONS: tuple[str, ...] = get_args(Condition)
# sbatch(1), --dependency
_DEPENDENCY: dict[Condition, str] = {"ok": "afterok", "any": "afterany", "fail": "afternotok"}


@dataclass(frozen=True, slots=True)
class After:
    """A requested dependency: a run as the user names it, and how it must have ended."""

    word: str
    condition: Condition = "ok"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A run on which a job depends.

    Attributes:
        condition: how it must end.
        over: whether it has already ended in this way.
    """

    run_id: str
    job_id: str | None
    condition: Condition
    over: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """The number of links of a chain, and how a link must end for the next to start."""

    links: int
    condition: Condition = "fail"


def parse_after(text: str) -> After:
    """Read ``RUN`` or ``RUN:ok|any|fail``.

    Raises:
        UsageError: it is neither.
    """
    word, condition = _split(text, "ok", "--after")
    if not word:
        raise UsageError(f"--after {text}: the run is missing", hint="write --after RUN, or RUN:any")
    return After(word, condition)


def parse_chain(text: str) -> Chain:
    """Read ``N`` or ``N:any``.

    Raises:
        UsageError: it is neither.
    """
    number, condition = _split(text, "fail", "--chain")
    if not (number.isascii() and number.isdigit() and 2 <= int(number) <= 100):
        raise UsageError(f"--chain {text}: {number!r} is not a number of jobs from 2 to 100", hint="write --chain 4")
    return Chain(int(number), condition)


def _split(text: str, default: Condition, option: str) -> tuple[str, Condition]:
    word, colon, condition = text.partition(":")
    if not colon:
        return word, default
    if condition not in CONDITIONS:
        raise UsageError(f"{option} {text}: {condition!r} is none of {', '.join(CONDITIONS)}")
    return word, cast(Condition, condition)


def fulfils(state: str, condition: Condition) -> bool:
    """Return whether a run that has ended in this state fulfils the condition."""
    if condition == "any":
        return True
    return (state == COMPLETED) is (condition == "ok") and state != NOT_SUBMITTED


def dependency_option(dependencies: Sequence[Dependency]) -> str:
    """Return the value of sbatch's ``--dependency`` for the runs that have not ended; empty for none."""
    return ",".join(f"{_DEPENDENCY[item.condition]}:{item.job_id}" for item in dependencies if not item.over)


def link_name(name: str, link: int) -> str:
    """Return the name of a link of a chain, the first being 1: ``train``, ``train-2``, ``train-3``."""
    if link == 1:
        return name
    ending = f"-{link}"
    return name[: 100 - len(ending)] + ending
