"""The numbers of tables that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcrun.features.scaling.points import Point
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.table_columns import TOLERANCE


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of a table that also follows from its other numbers."""

    place: str  # file and line
    point: Point  # the run of this line
    what: str  # the column
    text: str  # the number as written, for its precision


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two numbers of a table that cannot both be true."""

    place: str  # file and line
    gpus: int  # of this line
    what: str  # the column
    written: str  # the value in the table
    follows: float  # the value that follows from the others
    because: str  # the calculation


@dataclass(frozen=True, slots=True)
class _Derived:
    """A value that follows from other numbers of a table."""

    value: float
    because: str  # the calculation


def contradictions(claims: Iterable[Claim], series: Sequence[Series]) -> tuple[Contradiction, ...]:
    """Return the claims of tables that their own times, batches and speed-ups contradict."""
    places = {}
    for each in series:
        for row in each.rows:
            for point in row.points:
                places[point] = (row, each)
    contradicted = []
    for claim in claims:
        if claim.point not in places:
            continue
        derived = _follows(claim, *places[claim.point])
        if not derived or any(_agree(claim.text, possible.value) for possible in derived):
            continue
        contradicted.append(
            Contradiction(
                claim.place,
                claim.point.gpus,
                claim.what,
                claim.text,
                follows=derived[0].value,
                because=derived[0].because,
            )
        )
    return tuple(contradicted)


def _follows(claim: Claim, row: Row, series: Series) -> list[_Derived]:
    """Return the possible values of a claim, each with its calculation."""
    if claim.what == "gpu_hours":
        return _gpu_hours(claim.point)
    derived = None
    if claim.what == "efficiency_percent":
        derived = _efficiency(claim.point, row, series)
    elif claim.what == "steps":
        derived = _steps(claim.point)
    elif claim.what == "speedup":
        derived = _speedup(row, series)
    elif claim.what == "samples_per_s":
        derived = _rate(row, series)
    return [derived] if derived else []


def _gpu_hours(point: Point) -> list[_Derived]:
    """Return the GPU-hours of the run, and those of each epoch."""
    derived = []
    for time_s in (point.total_s, *(epoch.time_s for epoch in point.epochs)):
        if time_s:
            calculation = f"{point.gpus} × {time_s / 3600:.4g} h"
            derived.append(_Derived(point.gpus * time_s / 3600, calculation))
    return derived


def _efficiency(point: Point, row: Row, series: Series) -> _Derived:
    speedup = point.speedup or row.speedup.mean
    percent = 100 * speedup * series.rows[0].gpus / point.gpus
    return _Derived(percent, f"a speed-up of {speedup:.4g} on {point.gpus} GPUs")


def _steps(point: Point) -> _Derived | None:
    if not point.samples or not point.batch_size:
        return None
    steps = point.samples / point.batch_size
    return _Derived(steps, f"{point.samples} samples by {point.batch_size}")


def _speedup(row: Row, series: Series) -> _Derived | None:
    if not _is_comparable(row, series) or series.basis == "published":
        return None
    basis = series.basis_words if series.basis == "throughput" else "time"
    return _Derived(row.speedup.mean, f"the {basis} beside that of {series.rows[0].gpus}")


def _rate(row: Row, series: Series) -> _Derived | None:
    base = series.rows[0]
    if not _is_comparable(row, series) or series.basis not in ("epoch", "run"):
        return None
    if base.samples_per_s is None:
        return None
    rate = base.samples_per_s.mean * row.speedup.mean
    return _Derived(rate, f"{row.speedup.mean:.3g} × those of {base.gpus} by time")


def _is_comparable(row: Row, series: Series) -> bool:
    """Whether the value of a run is that of its size: of several, it need not be their mean."""
    return row.speedup.n == 1 and series.rows[0].speedup.n == 1 and not series.weak


def _agree(text: str, value: float) -> bool:
    """Whether a number as written is a value, within its last digit and the tolerance."""
    mantissa, _, power = text.lower().partition("e")
    _, _, digits = mantissa.partition(".")
    last = 0.5 * 10.0 ** (int(power or 0) - len(digits))
    return abs(float(text) - value) <= last + TOLERANCE * abs(value)
