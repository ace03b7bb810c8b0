"""The limits on the cost of jobs in a configuration: of several, the smallest holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CostLimit:
    """A limit, the file that sets it, and larger limits that it hides."""

    most: float
    path: Path
    hidden: tuple[Path, ...] = field(default=(), compare=False)  # the files of those

    @property
    def folders(self) -> tuple[Path, ...]:
        """The configuration folders that set a limit of this kind."""
        return tuple(path.parent for path in (self.path, *self.hidden))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on what a command submits; None where there is no limit."""

    gpus_per_job: CostLimit | None = None
    gpu_hours_per_job: CostLimit | None = None  # of all that one command submits
    gpu_hours_per_day: CostLimit | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no limit at all."""
        return self == Limits()


LIMITS = tuple(each.name for each in fields(Limits))


def read_limit(value: Any) -> float:
    """Return the number of a limit.

    Raises:
        ValueError: the value is not a number, or is less than zero or too large.
    """
    # the parser of the files leaves numbers as their text
    if not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", str(value), re.ASCII):
        raise ValueError("takes a number, such as 8")
    return float(value)


def limits_of(values: Mapping[str, float], path: Path) -> Limits:
    """Return the limits that a file sets: name → number."""
    return Limits(**{name: CostLimit(most, path) for name, most in values.items()})


def smallest(limits: Iterable[Limits]) -> Limits:
    """Return the smallest limit of each kind."""
    least: dict[str, CostLimit] = {}
    for each in limits:
        for name in LIMITS:
            limit: CostLimit | None = getattr(each, name)
            if limit is None:
                continue
            known = least.setdefault(name, limit)
            if known is limit:
                continue
            lower, higher = (limit, known) if limit.most < known.most else (known, limit)
            hidden = (*lower.hidden, higher.path, *higher.hidden)
            least[name] = replace(lower, hidden=hidden)
    return Limits(**least)
