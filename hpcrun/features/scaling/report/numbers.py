"""Numbers of a report in readable form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcrun.features.scaling.measure import Spread
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import Unit
from hpcrun.views.text import count

_UNITS = (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, math.inf))


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit, and its seconds."""

    name: str
    seconds: float


def time_unit(series: Series) -> TimeUnit:
    """Return the best unit for the longest time of a series."""
    longest = max((row.time_s.mean for row in series.rows if row.time_s), default=0.0)
    return next(TimeUnit(name, seconds) for name, seconds, below in _UNITS if longest < below)


def number_text(value: float | None) -> str:
    """Return up to three significant digits, and no fraction from 100 on: 0.0054, 3.5, 1234; "" for None."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def mean_text(spread: Spread | None, factor: float = 1.0) -> str:
    """Return the mean in another unit; "" for None."""
    return number_text(spread.mean * factor if spread else None)


def percent_text(share: float) -> str:
    """Return ``87.3 %``, with halves rounded up: 3.49/4 is 87.25 %."""
    return f"{math.floor(share * 1000 + 0.5) / 10:.1f} %"


def times_text(speedup: float) -> str:
    """Return ``3.43×``."""
    return f"{speedup:.2f}×"


def range_text(spread: Spread | None, factor: float = 1.0) -> str:
    """Return ``3.4–3.52``, the smallest and the largest repeat; "" if there is only one."""
    if spread is None or spread.n < 2:
        return ""
    return f"{number_text(spread.low * factor)}–{number_text(spread.high * factor)}"


def units_text(number: int, unit: Unit) -> str:
    """Return ``1 GPU``, ``4 GPUs`` or ``4 ranks``."""
    return count(number, unit.removesuffix("s"))


def size_text(row: Row) -> str:
    """Return ``4 GPUs``, or ``4 GPUs on 2 nodes`` if there are several nodes."""
    return units_text(row.gpus, row.unit) + (f" on {row.nodes} nodes" if row.nodes > 1 else "")


def whole_percent(share: float) -> str:
    """Return ``87 %``."""
    return f"{math.floor(share * 100 + 0.5)} %"


def two_digits(value: float) -> str:
    """Return at least two significant digits: 0.0062, 4.6, 13.0, 210."""
    return f"{value:.1f}" if 1 <= abs(value) < 100 else f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"
