"""What became of each change of `make mutants`: noted one by one, so that a run that was stopped
goes on there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

KILLED = "killed"
OUT_OF_TIME = "out of time"
UNNOTICED = ("survived", "untested")


@dataclass(frozen=True)
class Mutant:
    """One change of one place: the operator, which of its places in the file, and the line."""

    path: str
    line: int
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed, survived, out of time (an endless loop: noticed) or
    untested.

    Attributes:
        by: the test that killed it.
        tests: how many there were to try.
    """

    mutant: Mutant
    outcome: str
    change: str
    tests: int
    by: str = ""


def note(result: Result, noted: Path) -> None:
    with noted.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def read_results(noted: Path) -> list[Result]:
    """Return what became of each mutant that was tried, as it was noted last."""
    lines = noted.read_text().splitlines() if noted.exists() else []
    results = (
        Result(**{**row, "mutant": Mutant(**row["mutant"])}) for row in map(json.loads, lines)
    )
    return list({result.mutant: result for result in results}.values())


def results_of(mutants: Sequence[Mutant], noted: Path) -> list[Result]:
    known = {result.mutant: result for result in read_results(noted)}
    return [known[mutant] for mutant in mutants if mutant in known]


def summary(results: Sequence[Result], seed: int, seconds: float) -> str:
    counts = Counter(result.outcome for result in results)
    noticed = counts[KILLED] + counts[OUT_OF_TIME]
    named = ", ".join(
        f"{counts[outcome]} {outcome}" for outcome in (KILLED, OUT_OF_TIME, *UNNOTICED)
    )
    score = 100 * noticed / len(results) if results else 0
    return f"{len(results)} mutants (seed {seed}) in {seconds:.0f} s: {named}; score {score:.1f} %"
