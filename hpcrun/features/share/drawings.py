"""Drawings of the page, as inline SVG: curves, attempts on a time line, and the use of the hardware.

Colours come from the page's style sheet. Points and bars have a ``<title>``, which a browser shows under the pointer:
the page has no program that could.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from hpcrun.job.units import format_rate, format_size
from hpcrun.runs.use import NodeUse, UseSample, mean_over_time

COLOURS = 8  # how many curves have colours of their own in the style sheet: ``.c0`` to ``.c7``
Point = tuple[float, float]
WIDE = 960
_WIDTH, _HEIGHT = 480, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 26
_MOST_POINTS, _MOST_TITLES = 400, 60
_LOG_FROM = 300  # positive values that differ by more than this factor are drawn on a logarithmic axis
_LANE, _LANE_LABEL, _LEAST_BAR = 26, 120, 4


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of a chart: its name, and its points from left to right."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of the time line, in seconds since the epoch."""

    start_s: float
    end_s: float
    kind: str  # a class of the style sheet: ``ok``, ``bad``, ``run``, ``again``, ``stop`` or ``wait``
    title: str  # shown under the pointer


@dataclass(frozen=True, slots=True)
class Lane:
    """A line of the time line."""

    label: str
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: its ends, and where a value lies between them."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        # halves cannot overflow
        low, high, value = (math.log10(each) if self.log else each / 2 for each in (self.low, self.high, value))
        return 0.5 if high == low else (value - low) / (high - low)

    def marks(self, most: int = 5) -> list[float]:
        """Return a few round values between the ends."""
        if not self.log:
            return _round_values(self.low, self.high, most)
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        step = max(1, -(-(last - first) // most))
        return [10.0**power for power in range(first, last + 1, step)]


def _round_values(low: float, high: float, most: int) -> list[float]:
    span = high / most - low / most
    unit = 10.0 ** math.floor(math.log10(span)) if 1e-300 < span < 1e300 else 0.0
    if not unit:
        return [low, high]
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= span * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [(first + number) * step for number in range(most + 2) if (first + number) * step <= high + step * 1e-9]


def _scale_of(values: Sequence[float], least: float | None = None, most: float | None = None) -> Scale:
    """Return the scale of a vertical axis; logarithmic where positive values differ by a large factor."""
    ends = [*values, *(end for end in (least, most) if end is not None)]
    low, high = min(ends), max(ends)
    if least is None and low > 0 and high / low > _LOG_FROM:
        return Scale(low, high, log=True)
    if low == high:
        margin = abs(low) / 10 or 1.0
        return Scale(max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max))
    return Scale(low, high)


def number_text(value: float) -> str:
    """Return a number with at most five digits."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.5g}"


def line_chart(
    label: str,
    curves: Sequence[Curve],
    *,
    x_name: str = "step",
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    width: int = _WIDTH,
) -> Markup:
    """Return a chart of curves, each of which has a point.

    Args:
        label: what it shows, for programs that read a page aloud.
        x_name, unit: what stands at the end of the horizontal axis, and behind the values of points.
        width: ``WIDE`` for a chart as wide as the page.
        least, most: values that the vertical axis shows in any case.
    """
    thinned = [Curve(curve.name, _thin(curve.points)) for curve in curves]
    steps = [x for curve in thinned for x, _ in curve.points]
    across = Scale(min(steps), max(steps))
    up = _scale_of([y for curve in thinned for _, y in curve.points], least, most)

    def left(x: float) -> float:
        return _LEFT + across.place(x) * (width - _LEFT - _RIGHT)

    def top(y: float) -> float:
        return _HEIGHT - _BOTTOM - up.place(y) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [*_grid(across, up, left, top, width)]
    parts.append(f'<text class="end" x="{width}" y="{_HEIGHT - 8}">{escape(x_name)}</text>')
    for number, curve in enumerate(thinned):
        parts += _curve(curve, f"c{number % COLOURS}", left, top, lambda x: f"{x_name} {number_text(x)}", unit)
    return _svg(width, _HEIGHT, label, parts)


def _grid(
    across: Scale, up: Scale, left: Callable[[float], float], top: Callable[[float], float], width: int
) -> Iterator[str]:
    for y in up.marks():
        at = top(y)
        yield f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="y" x="{_LEFT - 6}" y="{at + 4:.1f}">{number_text(y)}</text>'
    marks = across.marks(6) if across.low < across.high else [across.low]
    for x in (x for x in marks if left(x) < width - 50):  # the name of the axis is at its end
        yield f'<text class="x" x="{left(x):.1f}" y="{_HEIGHT - 8}">{number_text(x)}</text>'


def _curve(
    curve: Curve,
    colour: str,
    left: Callable[[float], float],
    top: Callable[[float], float],
    x_text: Callable[[float], str],
    unit: str,
) -> Iterator[str]:
    line = " ".join(f"{left(x):.1f},{top(y):.1f}" for x, y in curve.points)
    yield f'<polyline class="{colour}" points="{line}"/>'
    few = len(curve.points) <= _MOST_TITLES
    every = -(-len(curve.points) // _MOST_TITLES)
    name = f"{escape(curve.name)}: " if curve.name else ""
    last = len(curve.points) - 1
    for number, (x, y) in enumerate(curve.points):
        if number % every == 0 or number == last:
            radius = 2.5 if few or number == last else 0
            at = f'cx="{left(x):.1f}" cy="{top(y):.1f}"'
            words = f"<title>{name}{number_text(y)}{escape(unit)} at {x_text(x)}</title>"
            yield f'<g class="{colour}"><circle {at} r="{radius}"/><circle class="hit" {at} r="8">{words}</circle></g>'


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


def time_line(lanes: Sequence[Lane]) -> Markup:
    """Return bars on a common time axis; at least one lane has a bar."""
    spans = [span for lane in lanes for span in lane.spans]
    start, end = min(span.start_s for span in spans), max(span.end_s for span in spans)
    end = max(end, start + 1)
    room = WIDE - _LANE_LABEL - 10
    bottom = _LANE * len(lanes) + 4

    def left(at_s: float) -> float:
        return _LANE_LABEL + (at_s - start) / (end - start) * room

    form = "%H:%M:%S" if end - start < 600 else "%H:%M" if end - start < 86400 else "%d %b %H:%M"
    parts, before = [], ""
    for at_s in (start + (end - start) * number / 4 for number in range(5)):
        anchor = "start" if at_s == start else "end" if at_s == end else "middle"
        parts.append(f'<line class="grid" x1="{left(at_s):.1f}" x2="{left(at_s):.1f}" y1="0" y2="{bottom}"/>')
        words = datetime.fromtimestamp(at_s).strftime(form)
        shown, before = "" if words == before else words, words
        parts.append(f'<text class="{anchor}" x="{left(at_s):.1f}" y="{bottom + 16}">{shown}</text>')
    for number, lane in enumerate(lanes):
        top, label = number * _LANE, lane.label if len(lane.label) <= 18 else f"{lane.label[:17]}…"
        parts.append(f'<text class="y" x="{_LANE_LABEL - 10}" y="{top + 18}">{escape(label)}</text>')
        for span in lane.spans:
            width = max(_LEAST_BAR, left(span.end_s) - left(span.start_s))
            place = min(left(span.start_s), WIDE - 10 - width)
            bar = f'x="{place:.1f}" y="{top + 5}" width="{width:.1f}" height="{_LANE - 8}" rx="3"'
            parts.append(f'<rect class="{span.kind}" {bar}><title>{escape(span.title)}</title></rect>')
    return _svg(WIDE, bottom + 24, "Time line", parts)


def _svg(width: int, height: int, label: str, parts: Sequence[str]) -> Markup:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return Markup("".join([head, *parts, "</svg>"]))


# --- the use of the hardware --------------------------------------------------------------------------------------

_MOST_ROWS = 32
_GB, _MB = 1024**3, 1e6
Short = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class UseChart:
    """A chart of the use: its name and unit, the value of a sample (None without one), the axis's least end."""

    name: str
    unit: str
    value: Callable[[UseSample], float | None]
    most: float | None = None


_CHARTS = (
    UseChart("GPUs busy", " %", lambda sample: _mean(100 * gpu.busy for gpu in sample.gpus), most=100),
    UseChart("GPU memory", " GB", lambda sample: max((gpu.memory / _GB for gpu in sample.gpus), default=None)),
    UseChart("CPUs busy", "", lambda sample: sample.cpus),
    UseChart("memory", " GB", lambda sample: sample.memory / _GB),
    UseChart("network", " MB/s", lambda sample: sample.network / _MB),
    UseChart("RDMA", " MB/s", lambda sample: None if sample.rdma is None else sample.rdma / _MB),
)


def use_section(uses: Sequence[NodeUse], short: Short) -> dict[str, Any] | None:
    """Return the table and the charts; None if nothing was sampled. ``short`` makes names of nodes fit for the page."""
    nodes = [use for use in uses if use.samples]
    if not nodes:
        return None
    columns = _columns(nodes)
    rows = [(short(use.node), *(column(use) for _, column in columns)) for use in nodes[:_MOST_ROWS]]
    left_out = len(nodes) - len(rows)
    return {
        "headings": ("node", *(heading for heading, _ in columns)),
        "rows": rows,
        "more": f"{left_out} more nodes are left out." if left_out else "",
        "charts": [drawn for chart in _CHARTS if (drawn := _use_chart(chart, nodes, short))],
    }


def _columns(nodes: Sequence[NodeUse]) -> list[tuple[str, Callable[[NodeUse], str]]]:
    """Return the columns for which a node has a value."""

    def power(sample: UseSample) -> float | None:
        return _mean(gpu.power for gpu in sample.gpus if gpu.power is not None)

    columns: list[tuple[str, Callable[[NodeUse], str]]] = [
        ("GPUs busy, mean", lambda use: _shown(_over_time(use, _CHARTS[0].value), "{:.0f} %".format)),
        ("GPU memory, highest", _gpu_memory),
        ("power of a GPU, mean", lambda use: _shown(_over_time(use, power), "{:.0f} W".format)),
        ("CPUs busy, mean", lambda use: _of(f"{_over_time(use, _CHARTS[2].value) or 0:.1f}", use.cpus)),
        ("memory, highest", _memory),
        ("network, mean", lambda use: _shown(_over_time(use, lambda sample: sample.network), format_rate)),
        ("RDMA, mean", lambda use: _shown(_over_time(use, lambda sample: sample.rdma), format_rate)),
    ]
    return [(heading, column) for heading, column in columns if any(column(use) != "-" for use in nodes)]


def _over_time(use: NodeUse, value: Callable[[UseSample], float | None]) -> float | None:
    """Return the mean over time of a value of the samples; None if no sample has it."""
    pairs = [(span, number) for span, sample in zip(use.spans(), use.samples, strict=True)
             if (number := value(sample)) is not None]  # fmt: skip
    return mean_over_time(pairs)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _gpu_memory(use: NodeUse) -> str:
    gpus = [gpu for sample in use.samples for gpu in sample.gpus]
    if not gpus:
        return "-"
    highest = max(gpus, key=lambda gpu: gpu.memory)
    return _of(format_size(highest.memory), format_size(highest.memory_total) if highest.memory_total else None)


def _memory(use: NodeUse) -> str:
    limit = format_size(use.memory_limit) if use.memory_limit else None
    return _of(format_size(max(sample.memory for sample in use.samples)), limit)


def _of(value: str, total: object) -> str:
    return value if total is None else f"{value} of {total}"


def _shown(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _use_chart(chart: UseChart, nodes: Sequence[NodeUse], short: Short) -> dict[str, Any] | None:
    """Return a chart with a curve for each of the first nodes; None with fewer than two values each."""
    start = min(use.started or use.samples[0].time for use in nodes)
    curves = []
    for use in nodes[:COLOURS]:
        points = [((sample.time - start) / 60, number) for sample in use.samples
                  if (number := chart.value(sample)) is not None]  # fmt: skip
        if len(points) > 1:
            curves.append(Curve(short(use.node) if len(nodes) > 1 else "", points))
    if not curves:
        return None
    drawing = line_chart(chart.name, curves, x_name="min", unit=chart.unit, least=0.0, most=chart.most)
    return {
        "name": chart.name,
        "words": chart.unit.strip() + (f", the first {COLOURS} nodes" if len(nodes) > COLOURS else ""),
        "drawing": drawing,
        "legend": [curve.name for curve in curves] if len(curves) > 1 else [],
    }
