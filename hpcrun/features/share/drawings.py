"""Drawings of the page: where curves, bars and the marks of their axes lie.

The template draws them as inline SVG.

Points and bars have titles, which a browser shows under the pointer: the page has no program that
could.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpcrun.actions.runs.hardware_use import use_rows
from hpcrun.runs.use_samples import NodeUse, UseSample, summarise
from hpcrun.views.metrics_table import value_text

COLOURS = 8  # how many curves have colours of their own in the style sheet: ``.c0`` to ``.c7``
Drawing = dict[str, Any]
Point = tuple[float, float]
Curve = tuple[str, Sequence[Point]]  # its name, and its points from left to right
# begin and end in seconds since the epoch, class of the style sheet, title
Bar = tuple[float, float, str, str]
Lane = tuple[str, Sequence[Bar]]  # a line of the time line: its name, and its bars
WIDE = 960
_WIDTH = 480
_HEIGHT = 200
_LEFT = 56
_RIGHT = 16
_TOP = 12
_BOTTOM = 26
_MOST_POINTS = 400
_MOST_TITLES = 60
# positive values that differ by more than this factor are drawn on a logarithmic axis
_LOG_FROM = 300
_LANE = 26
_LANE_LABEL = 120
_LEAST_BAR = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its ends, and where a value lies between them."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        # halves cannot overflow
        low, high, value = (
            math.log10(each) if self.log else each / 2 for each in (self.low, self.high, value)
        )
        return 0.5 if high == low else (value - low) / (high - low)

    def marks(self, most: int = 5) -> list[float]:
        """Return a few round values between the ends."""
        if not self.log:
            return _round_values(self.low, self.high, most)
        first = math.ceil(math.log10(self.low))
        last = math.floor(math.log10(self.high))
        step = max(1, -(-(last - first) // most))
        return [10.0**power for power in range(first, last + 1, step)]


def _round_values(low: float, high: float, most: int) -> list[float]:
    span = high / most - low / most
    if 1e-300 < span < 1e300:
        unit = 10.0 ** math.floor(math.log10(span))
    else:
        unit = 0.0
    if not unit:
        return [low, high]
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= span * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [
        (first + number) * step
        for number in range(most + 2)
        if (first + number) * step <= high + step * 1e-9
    ]


def _scale_of(
    values: Sequence[float], least: float | None = None, most: float | None = None
) -> Scale:
    """Return the scale of a vertical axis.

    The scale is logarithmic where positive values differ by a large factor.
    """
    ends = [*values, *(end for end in (least, most) if end is not None)]
    low = min(ends)
    high = max(ends)
    if least is None and low > 0 and high / low > _LOG_FROM:
        return Scale(low, high, log=True)
    if low == high:
        margin = abs(low) / 10 or 1.0
        return Scale(max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max))
    return Scale(low, high)


def line_chart(
    name: str,
    curves: Sequence[Curve],
    *,
    x_name: str = "step",
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    width: int = _WIDTH,
) -> Drawing:
    """Return a chart of curves, each of which has a point.

    Args:
        name: what the chart shows.
        curves: the label and the points of each curve.
        x_name: what stands at the end of the horizontal axis.
        unit: what stands behind the values of points.
        least: a value that the vertical axis shows in any case; None if there is none.
        most: a second such value.
        width: ``WIDE`` for a chart as wide as the page.
    """
    thinned = [(label, _thin(points)) for label, points in curves]
    steps = [x for _, points in thinned for x, _ in points]
    across = Scale(min(steps), max(steps))
    up = _scale_of([y for _, points in thinned for _, y in points], least, most)

    def left(x: float) -> float:
        return round(_LEFT + across.place(x) * (width - _LEFT - _RIGHT), 1)

    def top(y: float) -> float:
        return round(_HEIGHT - _BOTTOM - up.place(y) * (_HEIGHT - _TOP - _BOTTOM), 1)

    def dots(points: Sequence[Point]) -> Iterator[tuple[float, float, float, str]]:
        every = -(-len(points) // _MOST_TITLES)
        last = len(points) - 1
        for number, (x, y) in enumerate(points):
            if number % every == 0 or number == last:
                radius = 2.5 if every == 1 or number == last else 0
                yield left(x), top(y), radius, f"{value_text(y)}{unit} at {x_name} {value_text(x)}"

    if across.low < across.high:
        columns = across.marks(6)
    else:
        columns = [across.low]
    return {
        "name": name,
        "x_name": x_name,
        "width": width,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": width - _RIGHT,
        "rows": [(top(y), value_text(y)) for y in up.marks()],
        # its name is at its end
        "columns": [(left(x), value_text(x)) for x in columns if left(x) < width - 50],
        "curves": [
            (label, " ".join(f"{left(x)},{top(y)}" for x, y in points), list(dots(points)))
            for label, points in thinned
        ],
    }


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    """Return fewer points that look the same: of each stretch the lowest and the highest."""
    if len(points) <= _MOST_POINTS:
        return points
    size = -(-2 * len(points) // _MOST_POINTS)
    kept = [points[0]]
    for start in range(0, len(points), size):
        part = range(start, min(start + size, len(points)))
        ends = {min(part, key=lambda at: points[at][1]), max(part, key=lambda at: points[at][1])}
        kept += [points[at] for at in sorted(ends)]
    return [*kept, points[-1]]


def time_line(lanes: Sequence[Lane]) -> Drawing:
    """Return bars on a common time axis; at least one lane has a bar."""
    bars = [bar for _, its in lanes for bar in its]
    start = min(bar[0] for bar in bars)
    end = max(bar[1] for bar in bars)
    end = max(end, start + 1)

    def left(at_s: float) -> float:
        return round(_LANE_LABEL + (at_s - start) / (end - start) * (WIDE - _LANE_LABEL - 10), 1)

    def placed(bar: Bar) -> tuple[float, float, str, str]:
        width = max(_LEAST_BAR, left(bar[1]) - left(bar[0]))
        return min(left(bar[0]), WIDE - 10 - width), width, bar[2], bar[3]

    if end - start < 600:
        form = "%H:%M:%S"
    elif end - start < 86400:
        form = "%H:%M"
    else:
        form = "%d %b %H:%M"
    times = [start + (end - start) * number / 4 for number in range(5)]
    return {
        "width": WIDE,
        "bottom": _LANE * len(lanes) + 4,
        "left": _LANE_LABEL - 10,
        "height": _LANE - 8,
        "marks": [(left(at_s), datetime.fromtimestamp(at_s).strftime(form)) for at_s in times],
        "lanes": [
            (number * _LANE, label, list(map(placed, its)))
            for number, (label, its) in enumerate(lanes)
        ],
    }


# --- the use of the hardware ---------------------------------------------------------------------

_MOST_ROWS = 32
_GB = 1024**3
_MB = 1e6


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


_CHARTS: tuple[tuple[str, str, Callable[[UseSample], float | None], float | None], ...] = (
    ("GPUs busy", " %", lambda sample: _mean(100 * gpu.busy for gpu in sample.gpus), 100.0),
    (
        "GPU memory",
        " GB",
        lambda sample: max((gpu.memory / _GB for gpu in sample.gpus), default=None),
        None,
    ),
    ("CPUs busy", "", lambda sample: sample.cpus, None),
    ("memory", " GB", lambda sample: sample.memory / _GB, None),
    ("network", " MB/s", lambda sample: sample.network / _MB, None),
    ("RDMA", " MB/s", lambda sample: None if sample.rdma is None else sample.rdma / _MB, None),
)
"""The charts of the use: a name, a unit, the value of a sample (None without one), the least end of
the axis.
"""


def use_section(uses: Sequence[NodeUse]) -> dict[str, Any]:
    """Return the table and the charts of the use of the hardware.

    There are no rows if nothing was sampled.
    """
    summaries = [
        (use.node, dict(use_rows(summary))) for use in uses if (summary := summarise([use]))
    ]
    headings = list(dict.fromkeys(label for _, row in summaries for label in row))
    return {
        "headings": ("node", *headings),
        "rows": [
            (node, *(row.get(label, "-") for label in headings))
            for node, row in summaries[:_MOST_ROWS]
        ],
        "left_out": len(summaries) - _MOST_ROWS,
        "charts": [*_use_charts([use for use in uses if use.samples])],
    }


def _use_charts(nodes: Sequence[NodeUse]) -> Iterator[dict[str, Any]]:
    """Yield charts with a curve for each of the first nodes that has at least two values."""
    start = min((use.started or use.samples[0].time for use in nodes), default=0.0)
    if len(nodes) > COLOURS:
        some = f", the first {COLOURS} nodes"
    else:
        some = ""
    for name, unit, value, most in _CHARTS:
        curves = []
        for use in nodes[:COLOURS]:
            points = [
                ((sample.time - start) / 60, number)
                for sample in use.samples
                if (number := value(sample)) is not None
            ]
            if len(points) > 1:
                curves.append((use.node if len(nodes) > 1 else "", points))
        if curves:
            drawing = line_chart(name, curves, x_name="min", unit=unit, least=0.0, most=most)
            yield {"words": f"{unit.strip()}{some}", "drawing": drawing}
