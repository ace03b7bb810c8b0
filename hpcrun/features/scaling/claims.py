"""Contradictions in a published table: numbers that differ from those that follow from the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.table_file import Claim

_TOLERANCE = 0.01
"""Relative tolerance, in addition to the last written digit, since the other numbers were rounded, too."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two numbers of a table that cannot both be true.

    Attributes:
        place: file and line.
        gpus: of this line.
        what: the column.
        written: the value in the table.
        follows: the value that follows from the others.
        because: the calculation.
    """

    place: str
    gpus: int
    what: str
    written: str
    follows: float
    because: str


def contradictions(claims: Iterable[Claim], series: Sequence[Series]) -> tuple[Contradiction, ...]:
    """Return the claims of tables that their own times, batches and speed-ups contradict."""
    places = {point: (row, each) for each in series for row in each.rows for point in row.points}
    found = (_check(claim, *places[claim.point]) for claim in claims if claim.point in places)
    return tuple(each for each in found if each is not None)


def _check(claim: Claim, row: Row, series: Series) -> Contradiction | None:
    follows = _follows(claim, row, series)
    if not follows or any(_agree(claim.text, value) for value, _ in follows):
        return None
    value, because = follows[0]
    return Contradiction(claim.place, row.gpus, claim.what, claim.text, value, because)


def _follows(claim: Claim, row: Row, series: Series) -> list[tuple[float, str]]:
    """Return the possible values of a claim, each with its calculation; empty if no value follows."""
    point, base = claim.point, series.rows[0]
    if claim.what == "gpu_hours":
        times = [point.total_s, *(epoch.time_s for epoch in point.epochs)]
        return [(point.gpus * time / 3600, f"{point.gpus} × {time / 3600:.4g} h") for time in times if time]
    if claim.what == "efficiency_percent":
        speedup = point.speedup or row.speedup.mean
        return [(100 * speedup * base.gpus / point.gpus, f"a speed-up of {speedup:.4g} on {point.gpus} GPUs")]
    if claim.what == "steps" and point.samples and point.batch_size:
        return [(point.samples / point.batch_size, f"{point.samples} samples by {point.batch_size}")]
    if row.speedup.n > 1 or base.speedup.n > 1 or series.weak:
        return []  # the value of one of several runs need not be that of their mean
    if claim.what == "speedup" and series.basis != "published":
        basis = "samples per second" if series.basis == "throughput" else "time"
        return [(row.speedup.mean, f"the {basis} beside that of {base.gpus}")]
    if claim.what == "samples_per_s" and series.basis in ("epoch", "run") and base.samples_per_s:
        return [(base.samples_per_s.mean * row.speedup.mean, f"{row.speedup.mean:.3g} × those of {base.gpus} by time")]
    return []


def _agree(text: str, value: float) -> bool:
    digits = text.lower().partition("e")[0].partition(".")[2]
    last = 0.5 * 10.0 ** -len(digits)
    return abs(float(text) - value) <= last + _TOLERANCE * abs(value)
