"""Dependencies on other runs: ``RUN:ok``, the states that fulfil it, and sbatch's option for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from hpcrun.errors import UsageError
from hpcrun.job.job_states import COMPLETED, NOT_SUBMITTED
from hpcrun.job.text.quoting import with_ending

Condition = Literal["ok", "any", "fail"]
CONDITIONS: tuple[str, ...] = get_args(Condition)
# sbatch(1), --dependency
_DEPENDENCY: dict[Condition, str] = {"ok": "afterok", "any": "afterany", "fail": "afternotok"}


@dataclass(frozen=True, slots=True)
class After:
    """A requested dependency: a run as the user names it, and how it must have ended."""

    run: str
    condition: Condition = "ok"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A run on which a job depends."""

    run_id: str
    job_id: str | None
    condition: Condition  # how it must end
    over: bool = False  # whether it has already ended in this way


@dataclass(frozen=True, slots=True)
class Chain:
    """The number of links of a chain, and how a link must end for the next to start."""

    links: int
    condition: Condition = "fail"
    anyway: bool = False  # it continues even if a link got nowhere


def parse_after(text: str) -> After:
    """Read ``RUN`` or ``RUN:ok|any|fail``.

    Raises:
        UsageError: the text has another form.
    """
    run, condition = _split(text, "ok", "--after", "write --after RUN, RUN:any or RUN:fail")
    if not run:
        raise UsageError(
            f"--after {text}: the run is missing", hint="write --after RUN, or RUN:any"
        )
    return After(run, condition)


def parse_chain(text: str) -> Chain:
    """Read ``N`` or ``N:any``.

    Raises:
        UsageError: the text has another form, or the number is not from 2 to 100.
    """
    number, condition = _split(text, "fail", "--chain", "write --chain 4, or 4:any")
    if not (number.isascii() and number.isdigit() and 2 <= int(number) <= 100):
        raise UsageError(
            f"--chain {text}: {number!r} is not a number of jobs from 2 to 100",
            hint="write --chain 4",
        )
    return Chain(int(number), condition)


def _split(text: str, default: Condition, option: str, hint: str) -> tuple[str, Condition]:
    head, colon, condition = text.partition(":")
    if not colon:
        return head, default
    if condition not in CONDITIONS:
        raise UsageError(
            f"{option} {text}: {condition!r} is none of {', '.join(CONDITIONS)}", hint=hint
        )
    return head, cast(Condition, condition)


def fulfils(state: str, condition: Condition) -> bool:
    """Return whether a run that has ended in this state fulfils the condition."""
    if condition == "any":
        return True
    return (state == COMPLETED) is (condition == "ok") and state != NOT_SUBMITTED


_ENDED: dict[Condition, str] = {"ok": "has completed", "any": "has ended", "fail": "has failed"}


def after_text(dependencies: Sequence[After]) -> str:
    """Return in words when a job starts: ``starts when train has completed and 4711 has ended``."""
    return "starts when " + " and ".join(
        f"{item.run} {_ENDED[item.condition]}" for item in dependencies
    )


def chain_text(chain: Chain) -> str:
    """Return a chain in words: its number of jobs, and when the next one starts."""
    how = {**_ENDED, "fail": "has ended without completing"}[chain.condition]
    return (
        f"{chain.links} jobs; each starts when the job before it {how}, and continues from its "
        "checkpoints"
    )


def dependency_option(dependencies: Sequence[Dependency]) -> str:
    """Return the value of sbatch's ``--dependency`` for the runs that have not ended.

    The value is empty if all runs have ended.
    """
    return ",".join(
        f"{_DEPENDENCY[item.condition]}:{item.job_id}" for item in dependencies if not item.over
    )


def link_name(name: str, link: int) -> str:
    """Return the name of a link of a chain: ``train``, ``train-2``, ``train-3``.

    The first link has the number 1.
    """
    return name if link == 1 else with_ending(name, f"-{link}")
