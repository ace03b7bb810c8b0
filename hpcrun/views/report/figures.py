"""The figures of a report as PNG files: several series side by side, the repeats' range as error bars."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hpcrun.actions.studies.report import Report
from hpcrun.scaling.measure import Spread
from hpcrun.scaling.series import Row, Series
from hpcrun.scaling.verdict import pareto
from hpcrun.views.report.numbers import TimeUnit, number_text, time_unit
from hpcrun.views.report.words import heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe & Ito (2008): distinct with every kind of colour blindness; without their yellow, which is too pale on white,
# and their black, which is the colour of the lines
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MOST_SERIES = len(_COLOURS)
_GREY = "#666666"
_GOOD = 80.0
"""The line of good efficiency in per cent, as in charts that teams draw by hand."""
_LOG_FROM = 16.0
"""If the largest value is at least this many times the smallest one, an axis is logarithmic."""
_MOST_NOTES = 16
"""More numbers do not fit into the bars of a figure."""
_MOST_LEVEL = 8
"""The labels of more sizes do not fit beside each other."""
_DPI = 120


@dataclass(frozen=True, slots=True)
class Drawn:
    """Figures by file name, and the reasons why others were not drawn."""

    files: dict[str, bytes]
    missing: tuple[str, ...]


def draw_figures(report: Report) -> Drawn:
    """Draw every figure that has numbers."""
    try:
        import matplotlib
    except ImportError:
        reason = 'none drawn: matplotlib is not installed; pip install "hpcrun-slurm[plot]"'
        return Drawn({}, (reason,))
    named = [(heading(part.series, report), part.series) for part in report.parts if part.series.rows]
    files, missing = {}, []
    if len(named) > MOST_SERIES:
        missing.append(f"only the first {MOST_SERIES} of {len(named)} series are drawn")
    # names may contain text that mathtext would read as formulas; a user's matplotlibrc must not change a report
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "text.parse_math": False}), _without_warnings():
        for name, (draw, has, lacking) in _FIGURES.items():
            shown = [(title, series) for title, series in named if any(map(has, series.rows))]
            if shown:
                files[name] = _png(draw(shown[:MOST_SERIES]))
                absent = [title for title, series in named[:MOST_SERIES] if (title, series) not in shown]
                missing += [f"{name}: without {title} ({lacking})" for title in absent]
            else:
                missing.append(f"{name}: not drawn: {lacking}")
    return Drawn(files, tuple(missing))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress warnings: a name with letters that the font lacks is drawn as boxes."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _png(figure: Figure) -> bytes:
    """Draw a figure once; ``savefig`` would lay it out, draw it for the layout, and draw it again."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.image import imsave

    figure.set_dpi(_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
    file = io.BytesIO()
    imsave(file, pixels, format="png", dpi=_DPI, pil_kwargs={"compress_level": 4})
    return file.getvalue()


_Named = Sequence[tuple[str, Series]]


def _panels(named: _Named, draw: Callable[[Axes, Series], None]) -> Figure:
    """Return a figure with a panel for each series."""
    from matplotlib.figure import Figure

    across = len(named) if len(named) <= 4 else 3
    down = math.ceil(len(named) / across)
    width = 6.5 if across == 1 else 4.2 * across
    figure = Figure(figsize=(width, 4.2 if down == 1 else 3.4 * down), layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, (title, series) in zip(panels, named, strict=False):
        axes.set_title(_short(title))
        draw(axes, series)
    for axes in panels[len(named) :]:
        axes.set_visible(False)
    return figure


def _short(title: str) -> str:
    return title if len(title) <= 40 else f"{title[:39]}…"


def _gpu_axis(axes: Axes, gpus: Sequence[int]) -> None:
    """Label a logarithmic axis of GPUs with the measured sizes."""
    axes.set_xlabel("GPUs")
    crowded = len(gpus) > _MOST_LEVEL
    axes.set_xticks([math.log2(each) for each in gpus], [str(each) for each in gpus], rotation=45 if crowded else 0)
    axes.margins(x=0.08)


def _gap(gpus: Sequence[int]) -> float:
    """Return the least distance of two sizes on the axis."""
    places = sorted({math.log2(each) for each in gpus})
    return min((b - a for a, b in pairwise(places)), default=1.0)


def _bars(
    axes: Axes, rows: Sequence[Row], values: Sequence[Spread], colour: str, *, width: float, place: float = 0,
    label: str | None = None,
) -> None:  # fmt: skip
    """Draw a bar for each size with the range of its repeats.

    Args:
        place: of the bar beside its size's middle.
    """
    at = [math.log2(row.gpus) + place for row in rows]
    axes.bar(at, [value.mean for value in values], width * 0.95, color=colour, label=label, zorder=2)
    _whiskers(axes, at, values, cap=min(3.0, 12 * width))


def _whiskers(axes: Axes, at: Sequence[float], values: Sequence[Spread], cap: float = 3.0) -> None:
    ranged = [(x, value) for x, value in zip(at, values, strict=True) if value.n > 1]
    if ranged:
        ends = [[value.mean - value.low for _, value in ranged], [value.high - value.mean for _, value in ranged]]
        means = [value.mean for _, value in ranged]
        axes.errorbar([x for x, _ in ranged], means, ends, fmt="none", ecolor="#222222", capsize=cap, zorder=3)


def _bar_panel(axes: Axes, label: str, found: Sequence[tuple[Row, Spread]], *, about: bool = False) -> None:
    """Draw one number of a series by size.

    Args:
        about: mark a time that was computed from a speed-up.
    """
    gpus, means = [row.gpus for row, _ in found], [spread.mean for _, spread in found]
    _bars(axes, [row for row, _ in found], [spread for _, spread in found], _COLOURS[0], width=0.7 * _gap(gpus))
    _gpu_axis(axes, gpus)
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3, zorder=0)
    if _spans(means):
        _logarithmic(axes.yaxis, means)
    else:
        axes.set_ylim(0, 1.15 * max(spread.high for _, spread in found))
    for row, spread in found if len(found) <= _MOST_LEVEL else ():
        mark = "~" if about and row.time_derived else ""
        _above(axes, math.log2(row.gpus), spread.high, mark + _brief(spread.mean))


def _above(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8, zorder=4)


def _brief(value: float) -> str:
    """Return ``235k`` for 235,400: a number that fits over a bar."""
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size:
            return f"{value / size:.3g}{letter}"
    return number_text(value)


def _logarithmic(axis: Axis, values: Sequence[float], base: int = 10) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes, low, high = axis.axes, min(values) / 2, max(values) * 3  # room for the text beside the last value
    if axis is axes.xaxis:
        axes.set_xscale("log", base=base)
        axes.set_xlim(low, high)
    else:
        axes.set_yscale("log", base=base)
        axes.set_ylim(low, high)
    axis.set_major_locator(
        LogLocator(base, subs=(1.0, 2.0, 5.0) if base == 10 and high < 500 * low else (1.0,), numticks=12)
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: _brief(value)))
    axis.set_minor_locator(NullLocator())


def _spans(values: Sequence[float]) -> bool:
    """Return whether values differ so much that an axis should be logarithmic."""
    return max(values) > _LOG_FROM * min(values) > 0


def _time_label(series: Series) -> str:
    return f"time of {'the run' if series.basis == 'run' else 'one epoch'} ({time_unit(series).name})"


def _epoch_time(named: _Named) -> Figure:
    def draw(axes: Axes, series: Series) -> None:
        factor = 1 / time_unit(series).seconds
        times = [(row, row.time_s.scaled(factor)) for row in series.sizes if row.time_s]
        _bar_panel(axes, _time_label(series), times, about=True)

    return _panels(named, draw)


def _throughput(named: _Named) -> Figure:
    def draw(axes: Axes, series: Series) -> None:
        _bar_panel(axes, "samples per second", [(row, row.samples_per_s) for row in series.sizes if row.samples_per_s])

    return _panels(named, draw)


def _speedup_efficiency(named: _Named) -> Figure:
    """Draw speed-up beside the ideal line, and efficiency beside the line of 80 %, the series as bars side by side."""
    from matplotlib.figure import Figure

    gpus = sorted({row.gpus for _, series in named for row in series.sizes})
    width = 0.8 * _gap(gpus) / len(named)
    noted = len(named) * len(gpus) <= _MOST_NOTES
    highest = 0.0
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    speed, efficiency = figure.subplots(1, 2)
    for number, (title, series) in enumerate(named):
        place = (number - (len(named) - 1) / 2) * width
        rows, smallest = series.sizes, series.rows[0].gpus
        speeds = [row.speedup for row in rows]
        shares = [row.speedup.scaled(100 * smallest / row.gpus) for row in rows]
        highest = max(highest, *(share.high for share in shares))
        for axes, values, unit in ((speed, speeds, "{:.2f}×"), (efficiency, shares, "{:.0f} %")):
            label = _short(title) if axes is speed else None
            _bars(axes, rows, values, _COLOURS[number], place=place, width=width, label=label)
            for row, value in zip(rows if noted else (), values, strict=False):
                _inside(axes, math.log2(row.gpus) + place, value.mean / 2, unit.format(value.mean))
    _ideal(speed, named, gpus)
    efficiency.axhline(100, color=_GREY, linestyle="--", zorder=3)
    efficiency.axhline(_GOOD, color="black", linestyle=":", zorder=3, label=f"{_GOOD:.0f} % efficiency")
    efficiency.set_ylim(0, 1.08 * max(100, highest))
    for axes, words in ((speed, "speed-up"), (efficiency, "efficiency (%)")):
        _gpu_axis(axes, gpus)
        axes.set_ylabel(words)
        axes.grid(axis="y", alpha=0.3, zorder=0)
    figure.legend(loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _inside(axes: Axes, x: float, y: float, text: str) -> None:
    """Write a number into the middle of a bar, away from lines and whiskers."""
    paper = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.annotate(text, (x, y), ha="center", va="center", fontsize=8, bbox=paper, zorder=4)


def _ideal(axes: Axes, named: _Named, gpus: Sequence[int]) -> None:
    """Draw the ideal line, and choose the axis for it."""
    highest = 1.0
    for number, smallest in enumerate(sorted({series.rows[0].gpus for _, series in named})):
        sizes = [each for each in gpus if each >= smallest]
        if len(sizes) == 1:
            sizes = [smallest, 2 * smallest]
        # between sizes the line is a curve: the axis of GPUs is logarithmic
        fine = [sizes[0] * (sizes[-1] / sizes[0]) ** (step / 50) for step in range(51)]
        axes.plot([math.log2(each) for each in fine], [each / smallest for each in fine], color=_GREY, linestyle="--",
                  label=None if number else "ideal", zorder=3)  # fmt: skip
        highest = max(highest, sizes[-1] / smallest)
    speeds = [row.speedup for _, series in named for row in series.sizes]
    highest = max(highest, *(speed.high for speed in speeds))
    if highest > _LOG_FROM:
        _logarithmic(axes.yaxis, [*(speed.mean for speed in speeds), highest], base=2)
    else:
        axes.set_ylim(0, highest * 1.12)


def _accuracy(named: _Named) -> Figure:
    """Draw the validation accuracy by epoch, one curve for each size; without epochs, the last accuracy by size."""
    from matplotlib.ticker import MaxNLocator

    def draw(axes: Axes, series: Series) -> None:
        axes.set_ylabel("accuracy")
        axes.grid(alpha=0.3)
        curves = [(row, _curve(row)) for row in series.sizes]
        if not any(len(curve) > 1 for _, curve in curves):
            rows = [row for row in series.sizes if row.accuracy]
            spreads = [row.accuracy for row in rows if row.accuracy]
            at = [math.log2(row.gpus) for row in rows]
            axes.plot(at, [each.mean for each in spreads], "o", color=_COLOURS[0])
            _whiskers(axes, at, spreads)
            _gpu_axis(axes, [row.gpus for row in rows])
            return
        for colour, (row, curve) in zip(_shades(len(curves)), curves, strict=True):
            if curve:
                axes.plot(list(curve), [each.mean for each in curve.values()], color=colour, label=str(row.gpus),
                          marker="." if len(curve) < 30 else None)  # fmt: skip
                lows, highs = [each.low for each in curve.values()], [each.high for each in curve.values()]
                axes.fill_between(list(curve), lows, highs, color=colour, alpha=0.15, linewidth=0)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(title="GPUs", fontsize=8, title_fontsize=8)

    return _panels(named, draw)


def _curve(row: Row) -> dict[int, Spread]:
    """Return the accuracy over the repeats by epoch."""
    found: dict[int, list[float]] = defaultdict(list)
    for point in row.points:
        for epoch in point.epochs:
            if epoch.accuracy is not None and math.isfinite(epoch.accuracy):
                found[epoch.number].append(epoch.accuracy)
    return {number: Spread(fmean(all_), min(all_), max(all_), len(all_)) for number, all_ in sorted(found.items())}


def _shades(number: int) -> list[Any]:
    """Return colours for ordered sizes: from dark to light, distinct without colour vision, too."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * each / max(1, number - 1)) for each in range(number)]


def _cost(named: _Named) -> Figure:
    """Draw time against GPU-hours; mark and join the sizes for which no other is better in both."""

    def draw(axes: Axes, series: Series) -> None:
        unit = time_unit(series)
        rows = [row for row in series.rows if row.time_s and row.gpu_hours is not None]
        front = sorted(pareto(rows), key=lambda row: row.gpus)
        others = [row for row in rows if row not in front]
        at = _costs(front, unit)
        axes.plot(*at, "o-", color=_COLOURS[0], label="Pareto-optimal", zorder=3)
        if others:
            axes.plot(*_costs(others, unit), "x", color=_COLOURS[1], label="dominated", zorder=3)
        for row, x, y in zip([*front, *others], *_costs([*front, *others], unit), strict=True):
            axes.annotate(f"{row.gpus}", (x, y), (6, 5), textcoords="offset points", fontsize=9)
        axes.set_xlabel("GPU-hours")
        axes.set_ylabel(_time_label(series))
        axes.grid(alpha=0.3)
        axes.margins(0.12)
        hours, times = _costs(rows, unit)
        for axis, values in ((axes.xaxis, hours), (axes.yaxis, times)):
            if _spans(values):
                _logarithmic(axis, values)
        axes.legend(fontsize=8, title="numbers: GPUs", title_fontsize=8)

    return _panels(named, draw)


def _costs(rows: Sequence[Row], unit: TimeUnit) -> tuple[list[float], list[float]]:
    hours = [row.gpu_hours or 0.0 for row in rows]
    return hours, [row.time_s.mean / unit.seconds for row in rows if row.time_s]


_FIGURES: dict[str, tuple[Callable[[_Named], Figure], Callable[[Row], bool], str]] = {
    "epoch_time.png": (_epoch_time, lambda row: row.time_s is not None, "no run has a time"),
    "speedup_efficiency.png": (_speedup_efficiency, lambda row: bool(row.speedup), "no usable run"),
    "throughput.png": (_throughput, lambda row: row.samples_per_s is not None, "no run has samples per second"),
    "accuracy.png": (_accuracy, lambda row: row.accuracy is not None, "no run has an accuracy"),
    "cost.png": (_cost, lambda row: row.time_s is not None, "no run has a time"),
}
