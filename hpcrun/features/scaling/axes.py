"""Parts of a report's figures: panels, curves, axes and labels.

On the axes the ideal is straight, and the labels never overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcrun.features.scaling.points import Spread
from hpcrun.features.scaling.sentences import number_text
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import Unit
from hpcrun.features.scaling.study_report import Part, ReportOptions
from hpcrun.views.figure import COLUMN, DARK, GREY, PAGE, new_figure, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.path import Path
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

_LINEAR_UP_TO = 8.0
"""Up to this ratio of the largest to the smallest value an axis is linear, else logarithmic."""
_PAPER = 2.0
"""Pixels around a label that its paper covers."""
_APART = 2.0
"""Pixels between two labels of ticks."""
_CLEAR = 4.0
"""Pixels between a label and the axes: its paper would cover them."""
MOST_NOTES = 8
"""The numbers of more points do not fit beside them."""
_AROUND = (
    (0, 6),
    (0, -6),
    (7, 0),
    (-7, 0),
    (6, 6),
    (-6, 6),
    (6, -6),
    (-6, -6),
    (0, 12),
    (0, -12),
    (0, 18),
    (0, -18),
)
"""Places of a label around its point, in points: above first, for the whiskers go up and down and
the curves aside.
"""
_CELLS_OF_INCH = 17
"""Letters of a legend in an inch of its line."""
_CELLS_OF_HANDLE = 8
"""Letters for which a line of a legend would have room in place of a handle."""
_NO_MARKER = (None, "None", "", " ", "|")


@dataclass(frozen=True, slots=True)
class Panel:
    """A series with its title; its number chooses colour and marker."""

    number: int
    title: str
    part: Part

    @property
    def series(self) -> Series:
        """The series that is drawn."""
        return self.part.series

    @property
    def style(self) -> dict[str, Any]:
        """Return its colour, marker and dashes."""
        return style_of(self.number)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a figure shows."""

    panels: tuple[Panel, ...]
    options: ReportOptions

    @property
    def gpus(self) -> list[int]:
        """All sizes of all series."""
        return sorted({row.gpus for panel in self.panels for row in panel.series.sizes})


def draw_panels(shown: Shown, draw: Callable[[Axes, Panel], None]) -> Figure:
    """Return a figure with a panel for each series.

    Panels with the same axis have the same range.
    """
    number = len(shown.panels)
    across = 2 if number == 4 else min(number, 3)
    down = math.ceil(number / across)
    if number == 1:
        figure = new_figure(COLUMN, 2.6)
    else:
        figure = new_figure(PAGE, 2.4 * down)
    every = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, panel in zip(every, shown.panels, strict=False):
        if number > 1:
            axes.set_title(shortened(panel.title, 78 // across))
        draw(axes, panel)
    for axes in every[number:]:
        axes.set_visible(False)
    _same_range([axes.xaxis for axes in every[:number]])
    _same_range([axes.yaxis for axes in every[:number]])
    return figure


def _same_range(axes: Sequence[Axis]) -> None:
    """Give the axes of panels the same range if their names and scales are the same."""
    if len({(axis.get_scale(), axis.label.get_text()) for axis in axes}) > 1:
        return
    ends: list[float] = []
    for axis in axes:
        ends.extend(axis.get_view_interval())
    low = min(ends)
    high = max(ends)
    for axis in axes:
        if axis.get_scale() == "log" and axis is axis.axes.yaxis:
            _log_range(axis, low, high)
        else:
            axis.set_view_interval(low, high, ignore=True)


def draw_legend(
    figure: Figure, shown: Shown, entries: Sequence[tuple[str, Any]], *, doubts: bool = True
) -> None:
    """Put a legend above everything, in as many columns as its longest label leaves room for.

    The markers of sizes without a verdict differ: with ``doubts`` an entry explains them, if there
    are some.
    """
    if doubts and _has_doubtful(shown):
        from matplotlib.lines import Line2D

        mark = Line2D([], [], linestyle="", marker="o", color=GREY, markerfacecolor="white")
        entries = [*entries, ("no verdict", mark)]
    if not entries:
        return
    cells = int(_CELLS_OF_INCH * figure.get_figwidth())
    most = 1
    if figure.get_figwidth() > COLUMN:
        most = min(3, len(entries))
    texts = [shortened(label, cells // most - _CELLS_OF_HANDLE) for label, _ in entries]
    longest = max(map(len, texts))
    columns = max(1, min(len(texts), cells // (longest + _CELLS_OF_HANDLE)))
    lines = math.ceil(len(texts) / columns)
    figure.set_figheight(figure.get_figheight() + 0.17 * lines)
    handles = [handle for _, handle in entries]
    figure.legend(handles, texts, loc="outside upper center", ncols=columns)


def _has_doubtful(shown: Shown) -> bool:
    """Whether no verdict stands on a size of a panel."""
    for panel in shown.panels:
        if any(is_doubtful(row, panel.part) for row in panel.series.sizes):
            return True
    return False


def draw_curve(axes: Axes, panel: Panel, numbers: Sequence[tuple[Row, Spread]]) -> Any:
    """Draw one number of a series by size, with the range of its repeats.

    Markers are hollow where no verdict stands.
    """
    style = panel.style
    at = [row.gpus for row, _ in numbers]
    spreads = [value for _, value in numbers]
    means = [value.mean for value in spreads]
    (curve,) = axes.plot(at, means, zorder=4, **style)
    whiskers(axes, at, spreads, style["color"])
    hollow_at = []
    hollow_means = []
    for row, value in numbers:
        if is_doubtful(row, panel.part):
            hollow_at.append(row.gpus)
            hollow_means.append(value.mean)
    if hollow_at:
        hollow = {**style, "linestyle": "", "markerfacecolor": "white"}
        axes.plot(hollow_at, hollow_means, **hollow, zorder=4.5)
    return curve


def draw_ideal(axes: Axes, gpus: Sequence[int], values: Sequence[float]) -> Any:
    """Draw the line of the ideal."""
    (line,) = axes.plot(
        gpus, values, color=GREY, linestyle="--", marker="", linewidth=0.9, zorder=2
    )
    return line


def is_doubtful(row: Row, part: Part) -> bool:
    """Whether no verdict stands on a size, though it is compared with others."""
    if not part.series.compared:
        return False
    return part.advice is None or row.gpus in part.advice.doubtful


def shortened(title: str, cells: int) -> str:
    """Return a title of at most so many cells: letters of East Asia take two."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(title) <= cells:
        return title
    return f"{set_cell_size(title, cells - 1)}…"


def brief(value: float) -> str:
    """Return ``235k`` for 235,400: a number that fits into a figure."""
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size:
            return f"{number_text(value / size)}{letter}"
    return number_text(value)


def spans(values: Iterable[float]) -> bool:
    """Return whether values differ so much that their axis is logarithmic."""
    listed = list(values)
    return max(listed) > _LINEAR_UP_TO * min(listed) > 0


def size_axis(axes: Axes, gpus: Iterable[int], unit: Unit, *, logarithmic: bool) -> None:
    """Label an axis of sizes with the measured ones."""
    sizes = sorted(set(gpus))
    axes.set_xlabel(unit)
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xticks([], minor=True)
    low = sizes[0]
    high = sizes[-1]
    if logarithmic or low == high:
        axes.set_xlim(low / 1.2, high * 1.2)
    else:
        pad = 0.08 * (high - low)
        axes.set_xlim(low - pad, high + pad)


def log_axis(axis: Axis, values: Iterable[float]) -> None:
    """Make an axis logarithmic, with room around the values and plain numbers at its ticks."""
    listed = [value for value in values if value > 0]
    low = min(listed)
    high = max(listed)
    pad = (high / low) ** 0.08 * 1.12
    if axis is axis.axes.xaxis:
        axis.axes.set_xscale("log")
    else:
        axis.axes.set_yscale("log")
    _log_range(axis, low / pad, high * pad)


def _log_range(axis: Axis, low: float, high: float) -> None:
    """Set the ends of a logarithmic axis, with ticks that suit its range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if axis is axis.axes.xaxis:
        axis.axes.set_xlim(low, high)
    else:
        axis.axes.set_ylim(low, high)
    # of a range with fewer than two of them, any numbers
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: brief(value)))
    axis.set_minor_locator(NullLocator())


def value_axis(axes: Axes, values: Sequence[float], *, logarithmic: bool) -> None:
    """Let the vertical axis be logarithmic, or begin at zero with room above the values."""
    if logarithmic:
        log_axis(axes.yaxis, values)
    else:
        axes.set_ylim(0, 1.1 * max(values))


def share_axis(axes: Axes, values: Sequence[float]) -> None:
    """Let the vertical axis of shares, such as accuracies, end at 1 or at 100 %.

    Marks at the end of the axis are not cut.
    """
    largest = max(values, default=0.0)
    whole = 1.0 if largest <= 1.0 else 100.0
    bottom, top = axes.get_ylim()
    if largest <= whole < top:
        axes.set_ylim(top=whole + 0.001 * (whole - bottom))
        for line in axes.lines:
            line.set_clip_on(False)


def whiskers(axes: Axes, at: Sequence[float], values: Sequence[Spread], colour: str = DARK) -> None:
    """Draw the range of the repeats where there are several."""
    places = []
    means = []
    below = []
    above = []
    for place, value in zip(at, values, strict=True):
        if value.n > 1:
            places.append(place)
            means.append(value.mean)
            # the mean of equal numbers may differ from them by its rounding
            below.append(max(0.0, value.mean - value.low))
            above.append(max(0.0, value.high - value.mean))
    if places:
        axes.errorbar(
            places,
            means,
            [below, above],
            fmt="none",
            ecolor=colour,
            elinewidth=0.8,
            zorder=3,
        )


def note(axes: Axes, x: float, y: float, text: str) -> None:
    """Write a number beside a point; ``settle`` finds its place."""
    paper = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
    axes.annotate(
        text, (x, y), (0, 6), textcoords="offset points", fontsize=7, zorder=3.5, bbox=paper
    )


def settle(figure: Figure) -> None:
    """Lay a figure out for good.

    Labels are moved away from each other, and labels without room are hidden.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # "none" would lay it out again each time that it is saved
    taken = [legend.get_window_extent(renderer) for legend in figure.legends]
    shown = [axes for axes in figure.axes if axes.get_visible()]
    for axes in shown:
        for axis in (axes.xaxis, axes.yaxis):
            taken += _thinned(axis, renderer)
            taken.append(axis.label.get_window_extent(renderer))
        if axes.get_title():
            taken.append(axes.title.get_window_extent(renderer))
    for axes in shown:
        marks = _marks(axes)
        curves = _curves(axes)
        for text in axes.texts:
            if _placed(text, taken + marks, curves, axes.bbox, renderer):
                taken.append(text.get_window_extent(renderer))
            else:
                text.set_visible(False)


def _thinned(axis: Axis, renderer: Any) -> list[Bbox]:
    """Hide labels of ticks that touch the one before; return the boxes of the others."""
    kept: list[Bbox] = []
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks():
        label = tick.label1
        is_inside = low <= tick.get_loc() <= high
        if not is_inside or not label.get_text():
            continue
        box = label.get_window_extent(renderer)
        padded = box.padded(_APART)
        if any(padded.fully_overlaps(other) for other in kept):
            label.set_visible(False)
        else:
            kept.append(box)
    return kept


def _marks(axes: Axes) -> list[Bbox]:
    """Return the boxes of the markers."""
    from matplotlib.transforms import Bbox

    boxes: list[Bbox] = []
    for line in axes.lines:
        if line.get_marker() in _NO_MARKER:
            continue
        half = line.get_markersize() * axes.figure.dpi / 72 / 2
        for place in axes.transData.transform(line.get_xydata()):
            boxes.append(Bbox([place, place]).padded(half))
    return boxes


def _curves(axes: Axes) -> list[Path]:
    """Return all lines and whiskers, in pixels."""
    from matplotlib.collections import LineCollection

    curves = []
    for line in axes.lines:
        if line.get_linestyle() not in ("None", "", " "):
            curves.append(line.get_transform().transform_path(line.get_path()))
    for collection in axes.collections:
        if isinstance(collection, LineCollection):
            for path in collection.get_paths():
                curves.append(axes.transData.transform_path(path))
    return curves


def _placed(
    text: Text, taken: Sequence[Bbox], curves: Sequence[Path], within: Any, renderer: Any
) -> bool:
    """Move a label to the free place around its point that the fewest curves cross.

    Return False if no place is free.
    """
    best = None
    fewest = math.inf
    for place in _AROUND:
        _move(text, *place)
        box = text.get_window_extent(renderer)
        if not _is_inside(box, within) or any(box.fully_overlaps(other) for other in taken):
            continue
        paper = box.padded(_PAPER)
        crossing = sum(curve.intersects_bbox(paper, filled=False) for curve in curves)
        if crossing < fewest:
            best = place
            fewest = crossing
    if best is None:
        return False
    _move(text, *best)
    return True


def _is_inside(box: Bbox, within: Any) -> bool:
    """Whether a label is clear of the left and lower axes, and does not leave the others."""
    inside_across: bool = within.x0 + _CLEAR <= box.x0 and box.x1 <= within.x1
    inside_down: bool = within.y0 + _CLEAR <= box.y0 and box.y1 <= within.y1
    return inside_across and inside_down


def _move(text: Text, x: float, y: float) -> None:
    """Put a label beside its point, some points to the right and above."""
    text.set_position((x, y))
    if x:
        text.set_horizontalalignment("left" if x > 0 else "right")
    else:
        text.set_horizontalalignment("center")
    if y:
        text.set_verticalalignment("bottom" if y > 0 else "top")
    else:
        text.set_verticalalignment("center")
