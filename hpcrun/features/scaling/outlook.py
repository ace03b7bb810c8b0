"""What the sizes of a series say beyond themselves: the serial fraction, and the next two doublings.

The serial fraction is what Karp and Flatt (1990) measure, for each size N by itself: Amdahl's law (1967) for a strong
study, ``S(N) = 1/(s + (1-s)/N)``, Gustafson's (1988) for a weak one, ``S(N) = N - s(N-1)``, solved for ``s``. Where it
grows from size to size it is no serial work but the cost of more GPUs. Neither law forecasts: extrapolated, Amdahl's
errs twice as much on published tables as the one loss for each doubling that ``hpcrun scale plan`` uses, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.step_model import StepModel, StepSize, TimedStep

_GROWS = 1.2
"""A serial fraction that grows by this factor from each size to the next is the cost of more GPUs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The speed-up forecast for a size that was not run, and the range in which eight of ten published ones lie."""

    gpus: int
    speedup: float
    low: float
    high: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What follows from a series.

    Attributes:
        serial: the fraction of the work on one GPU that does not become faster, 0 to 1, by the largest size.
        serial_range: its smallest and largest value over the sizes.
        grows: it grows from size to size.
        with_more_work: the speed-up of the largest size if the work had grown with the GPUs (Gustafson).
        predictions: for the next two doublings.
    """

    serial: float
    serial_range: tuple[float, float]
    grows: bool
    with_more_work: float
    predictions: tuple[Prediction, ...]


def outlook(series: Series) -> Outlook:
    """Return what follows from a series of several sizes."""
    first, *others = series.sizes
    fractions = [_serial_fraction(first, row, weak=series.weak) for row in others]
    gpus, serial = others[-1].gpus, fractions[-1]
    return Outlook(
        serial,
        (min(fractions), max(fractions)),
        grows=len(fractions) > 1 and all(after > _GROWS * before for before, after in pairwise(fractions)),
        with_more_work=gpus - serial * (gpus - 1),
        predictions=tuple(_prediction(series.sizes, factor) for factor in (2, 4)),
    )


def _serial_fraction(first: Row, row: Row, *, weak: bool) -> float:
    """Return the constant share of ``a + b·x`` at one GPU: of the time, x = 1/N, or of a weak study's speed, x = N."""
    ratio = row.speedup.mean / first.speedup.mean
    if weak:
        start, end, value = float(first.gpus), float(row.gpus), ratio
    else:
        start, end, value = 1.0 / first.gpus, 1.0 / row.gpus, 1.0 / ratio
    slope = (value - 1) / (end - start)
    constant = 1 - slope * start
    return min(max(constant / (constant + slope), 0.0), 1.0)


def _prediction(sizes: Sequence[Row], factor: int) -> Prediction:
    first, last = sizes[0], sizes[-1]
    perfect = first.speedup.mean / first.gpus  # the speed-up of a GPU that loses nothing
    timed = tuple(TimedStep(StepSize(row.gpus, row.nodes, 1.0), perfect * row.gpus / row.speedup.mean) for row in sizes)
    model, size = StepModel(timed, fixed=0.0), StepSize(factor * last.gpus, factor * last.nodes, 1.0)
    short, long = model.range_s(size)
    speedup, low, high = (perfect * size.gpus / step for step in (model.step_s(size), long, short))
    ideal = last.speedup.mean / last.efficiency * factor
    return Prediction(size.gpus, speedup, low, high, speedup / ideal)
