"""Drawings of the page: where curves, bars and the marks of their axes lie.

The template draws them as inline SVG.

Points and bars have titles, which a browser shows under the pointer: the page has no program that
could.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
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
class Bar:
    """A stretch of time on the time line, in seconds since the epoch."""

    start_s: float
    end_s: float
    kind: str  # the class of the style sheet
    title: str


Lane = tuple[str, Sequence[Bar]]  # a line of the time line: its name, and its bars


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its ends, and where a value lies between them."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        low = self._position(self.low)
        high = self._position(self.high)
        if high == low:
            return 0.5
        return (self._position(value) - low) / (high - low)

    def _position(self, value: float) -> float:
        return math.log10(value) if self.log else value / 2  # halves cannot overflow

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
    if not 1e-300 < span < 1e300:
        return [low, high]
    unit = 10.0 ** math.floor(math.log10(span))
    if not unit:  # smaller than the smallest number
        return [low, high]
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= span * 0.999)
    first = math.ceil(low / step - 1e-9)
    values = [(first + number) * step for number in range(most + 2)]
    return [value for value in values if value <= high + step * 1e-9]


def _scale_of(
    values: Sequence[float], least: float | None = None, most: float | None = None
) -> Scale:
    """Return the scale of a vertical axis.

    The scale is logarithmic where positive values differ by a large factor.
    """
    ends = list(values)
    if least is not None:
        ends.append(least)
    if most is not None:
        ends.append(most)
    low = min(ends)
    high = max(ends)
    if least is None and low > 0 and high / low > _LOG_FROM:
        return Scale(low, high, log=True)
    if low == high:
        margin = abs(low) / 10 or 1.0
        return Scale(max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max))
    return Scale(low, high)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The horizontal and the vertical axis of a chart, and where its points lie in the drawing."""

    across: Scale
    up: Scale
    width: int

    def left(self, x: float) -> float:
        """Return how far from the left edge a point lies."""
        share = self.across.place(x)
        return round(_LEFT + share * (self.width - _LEFT - _RIGHT), 1)

    def top(self, y: float) -> float:
        """Return how far below the upper edge a point lies."""
        share = self.up.place(y)
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def line(self, points: Sequence[Point]) -> str:
        """Return the points of a polyline."""
        return " ".join(f"{self.left(x)},{self.top(y)}" for x, y in points)

    def columns(self) -> list[tuple[float, str]]:
        """Return the marks of the horizontal axis: where each lies, and its text."""
        marks = [self.across.low]
        if self.across.low < self.across.high:
            marks = self.across.marks(6)
        most_left = self.width - 50  # the name of the axis is at its end
        columns = [(self.left(x), value_text(x)) for x in marks]
        return [column for column in columns if column[0] < most_left]

    def rows(self) -> list[tuple[float, str]]:
        """Return the marks of the vertical axis: where each lies, and its text."""
        return [(self.top(y), value_text(y)) for y in self.up.marks()]


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
    steps: list[float] = []
    values: list[float] = []
    for _, points in thinned:
        steps += [x for x, _ in points]
        values += [y for _, y in points]
    up = _scale_of(values, least, most)
    axes = _Axes(Scale(min(steps), max(steps)), up, width)
    lines = []
    for label, points in thinned:
        dots = _dots(axes, points, x_name, unit)
        lines.append((label, axes.line(points), dots))
    return {
        "name": name,
        "x_name": x_name,
        "width": width,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": width - _RIGHT,
        "rows": axes.rows(),
        "columns": axes.columns(),
        "curves": lines,
    }


def _dots(axes: _Axes, points: Sequence[Point], x_name: str, unit: str) -> list[Any]:
    """Return some points with titles: left, top, radius (0: no mark is drawn), title."""
    every = -(-len(points) // _MOST_TITLES)
    last = len(points) - 1
    dots = []
    for number, (x, y) in enumerate(points):
        is_last = number == last
        if number % every and not is_last:
            continue
        radius = 2.5 if every == 1 or is_last else 0
        title = f"{value_text(y)}{unit} at {x_name} {value_text(x)}"
        dots.append((axes.left(x), axes.top(y), radius, title))
    return dots


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    """Return fewer points that look the same: of each stretch the lowest and the highest."""
    if len(points) <= _MOST_POINTS:
        return points
    size = -(-2 * len(points) // _MOST_POINTS)
    kept = [points[0]]
    for start in range(0, len(points), size):
        part = range(start, min(start + size, len(points)))
        lowest = min(part, key=lambda at: points[at][1])
        highest = max(part, key=lambda at: points[at][1])
        kept += [points[at] for at in sorted({lowest, highest})]
    return [*kept, points[-1]]


def time_line(lanes: Sequence[Lane]) -> Drawing:
    """Return bars on a common time axis; at least one lane has a bar."""
    all_bars: list[Bar] = []
    for _, bars in lanes:
        all_bars += bars
    start_s = min(bar.start_s for bar in all_bars)
    end_s = max(bar.end_s for bar in all_bars)
    length_s = max(end_s - start_s, 1)

    def left(at_s: float) -> float:
        share = (at_s - start_s) / length_s
        return round(_LANE_LABEL + share * (WIDE - _LANE_LABEL - 10), 1)

    def placed(bar: Bar) -> tuple[float, float, str, str]:
        width = max(_LEAST_BAR, left(bar.end_s) - left(bar.start_s))
        return min(left(bar.start_s), WIDE - 10 - width), width, bar.kind, bar.title

    form = _time_form(length_s)
    marks = []
    for number in range(5):
        at_s = start_s + length_s * number / 4
        marks.append((left(at_s), datetime.fromtimestamp(at_s).strftime(form)))
    rows = []
    for number, (label, bars) in enumerate(lanes):
        rows.append((number * _LANE, label, [placed(bar) for bar in bars]))
    return {
        "width": WIDE,
        "bottom": _LANE * len(lanes) + 4,
        "left": _LANE_LABEL - 10,
        "height": _LANE - 8,
        "marks": marks,
        "lanes": rows,
    }


def _time_form(length_s: float) -> str:
    """Return the form of the times below a time line of this length."""
    if length_s < 600:
        return "%H:%M:%S"
    if length_s < 86400:
        return "%H:%M"
    return "%d %b %H:%M"


# --- the use of the hardware ---------------------------------------------------------------------

_MOST_ROWS = 32
_GB = 1024**3
_MB = 1e6


def _busy(sample: UseSample) -> float | None:
    if not sample.gpus:
        return None
    percents = [100 * gpu.busy for gpu in sample.gpus]
    return sum(percents) / len(percents)


def _gpu_memory(sample: UseSample) -> float | None:
    return max((gpu.memory / _GB for gpu in sample.gpus), default=None)


def _rdma(sample: UseSample) -> float | None:
    return None if sample.rdma is None else sample.rdma / _MB


@dataclass(frozen=True, slots=True)
class _UseChart:
    """A chart of the use of the hardware."""

    name: str
    unit: str
    value: Callable[[UseSample], float | None]  # of a sample, None without one
    least_end: float | None = None  # the least end of the axis


_CHARTS = (
    _UseChart("GPUs busy", " %", _busy, 100.0),
    _UseChart("GPU memory", " GB", _gpu_memory),
    _UseChart("CPUs busy", "", lambda sample: sample.cpus),
    _UseChart("memory", " GB", lambda sample: sample.memory / _GB),
    _UseChart("network", " MB/s", lambda sample: sample.network / _MB),
    _UseChart("RDMA", " MB/s", _rdma),
)


def use_section(uses: Sequence[NodeUse]) -> dict[str, Any]:
    """Return the table and the charts of the use of the hardware.

    There are no rows if nothing was sampled.
    """
    summaries = []
    for use in uses:
        summary = summarise([use])
        if summary:
            summaries.append((use.node, dict(use_rows(summary))))
    headings: dict[str, None] = {}  # in the order of their first appearance
    for _, row in summaries:
        headings.update(dict.fromkeys(row))
    rows = []
    for node, row in summaries[:_MOST_ROWS]:
        rows.append((node, *(row.get(label, "-") for label in headings)))
    return {
        "headings": ("node", *headings),
        "rows": rows,
        "left_out": len(summaries) - _MOST_ROWS,
        "charts": list(_use_charts([use for use in uses if use.samples])),
    }


def _use_charts(nodes: Sequence[NodeUse]) -> Iterator[dict[str, Any]]:
    """Yield charts with a curve for each of the first nodes that has at least two values."""
    start_s = min((use.started or use.samples[0].time for use in nodes), default=0.0)
    some = ""
    if len(nodes) > COLOURS:
        some = f", the first {COLOURS} nodes"
    for chart in _CHARTS:
        curves = []
        for use in nodes[:COLOURS]:
            points = _use_points(use, chart, start_s)
            if len(points) > 1:
                curves.append((use.node if len(nodes) > 1 else "", points))
        if curves:
            drawing = line_chart(
                chart.name,
                curves,
                x_name="min",
                unit=chart.unit,
                least=0.0,
                most=chart.least_end,
            )
            yield {"words": f"{chart.unit.strip()}{some}", "drawing": drawing}


def _use_points(use: NodeUse, chart: _UseChart, start_s: float) -> list[Point]:
    """Return the values of a node's samples, by the minutes since the start."""
    points = []
    for sample in use.samples:
        value = chart.value(sample)
        if value is not None:
            points.append(((sample.time - start_s) / 60, value))
    return points
