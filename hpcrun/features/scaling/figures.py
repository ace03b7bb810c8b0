"""The figures of a report, as PNG, PDF and SVG: for a paper, or for a colleague."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hpcrun.errors import PlanError
from hpcrun.features.scaling.axes import (
    MOST_NOTES,
    Panel,
    Shown,
    brief,
    draw_curve,
    draw_ideal,
    draw_legend,
    draw_panels,
    is_doubtful,
    log_axis,
    note,
    settle,
    share_axis,
    size_axis,
    spans,
    value_axis,
    whiskers,
)
from hpcrun.features.scaling.points import Epoch, Point, Spread, spread
from hpcrun.features.scaling.sentences import TimeUnit, heading, hours_name, time_unit
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import units_text
from hpcrun.features.scaling.study_report import Report
from hpcrun.features.scaling.worth_its_gpus import pareto, steps
from hpcrun.views.figure import DARK, PAGE, new_figure, ordered_styles, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
"""The format of each file, and what would differ from one drawing of the same numbers to the next.
"""
MOST_SERIES = 6
_WARM_UP_GREY = "#F0F0F0"
_MOST_MARKED = 29
"""The epochs of more have no markers: they would hide the curve."""


def draw_figures(report: Report) -> tuple[dict[str, bytes], list[str]]:
    """Draw every figure that has numbers, and say why other figures are missing.

    The same numbers give the same bytes.
    """
    files: dict[str, bytes] = {}
    try:
        with paper_style():
            figures, missing = settled_figures(report)
            for name, figure in figures.items():
                for kind, metadata in FORMATS.items():
                    file = io.BytesIO()
                    figure.savefig(file, format=kind, metadata=metadata)
                    files[f"{name}.{kind}"] = file.getvalue()
    except PlanError as error:
        return {}, [f"none drawn: matplotlib is not installed; {error.hint}"]
    return files, missing


def settled_figures(report: Report) -> tuple[dict[str, Figure], list[str]]:
    """Return the figures by name, laid out, and the reasons why others are missing."""
    parts = [part for part in report.parts if part.series.rows]
    panels = []
    for number, part in enumerate(parts[:MOST_SERIES]):
        panels.append(Panel(number, heading(part.series, report), part))
    figures: dict[str, Figure] = {}
    missing = []
    if len(parts) > MOST_SERIES:
        missing.append(f"only the first {MOST_SERIES} of {len(parts)} series are drawn")
    for name, kind in _FIGURES.items():
        chosen = tuple(panel for panel in panels if kind.has(panel.series))
        if not chosen:
            missing.append(f"{name}: not drawn: {kind.lacking}")
            continue
        figures[name] = kind.draw(Shown(chosen, report.options))
        settle(figures[name])
        for panel in panels:
            if panel not in chosen:
                missing.append(f"{name}: without {panel.title} ({kind.lacking})")
    return figures, missing


def _by_size(
    shown: Shown,
    label: Callable[[Series], str],
    value: Callable[[Row, Series], Spread | None],
    ideal: Callable[[Row, int, bool], float] | None = None,
    *,
    logarithmic: bool = False,
) -> Figure:
    """Draw one number by size; beside the ideal, a straight line on these axes, where there is one.

    ``ideal``: the smallest size, GPUs, whether all studies are weak → the ideal over the number of
    the smallest size.
    """
    weak = all(panel.series.weak for panel in shown.panels)
    lines: dict[str, Any] = {}

    def draw(axes: Axes, panel: Panel) -> None:
        series = panel.series
        numbers = []
        values = []
        for row in series.sizes:
            number = value(row, series)
            if number:
                numbers.append((row, number))
                values += [number.low, number.high]
        gpus = [row.gpus for row, _ in numbers]
        log = logarithmic or spans(gpus)
        curve = draw_curve(axes, panel, numbers)
        if len(shown.panels) == 1:  # several have a title and a colour each
            lines["measured"] = curve
        size_axis(axes, gpus, series.unit, logarithmic=log)
        axes.set_ylabel(label(series))
        if ideal:
            first, base = numbers[0]
            ideals = [base.mean * ideal(first, size, weak) for size in gpus]
            lines["ideal"] = draw_ideal(axes, gpus, ideals)
            value_axis(axes, ideals + values, logarithmic=log)
        else:
            axes.margins(y=0.2)
            share_axis(axes, values)
        if len(numbers) <= MOST_NOTES:
            for row, number in numbers:
                mark = "~" if row.time_derived else ""
                note(axes, row.gpus, number.mean, mark + brief(number.mean))

    figure = draw_panels(shown, draw)
    draw_legend(figure, shown, list(lines.items()))
    return figure


def _time_label(series: Series) -> str:
    timed = "the run" if series.time_of == "run" else "one epoch"
    return f"time of {timed} ({time_unit(series).name})"


def _speedup_efficiency(shown: Shown) -> Figure:
    """Draw the speed-up beside the ideal, and the efficiency of all and of the added GPUs.

    The target is for the efficiency of the added GPUs.
    """
    gpus = shown.gpus
    unit = shown.options.unit
    is_alone = len(shown.panels) == 1
    figure = new_figure(PAGE, 3.0)
    speed, efficiency = figure.subplots(1, 2)
    highest = 100.0
    speeds = [1.0]
    entries: list[tuple[str, Any]] = []
    for panel in shown.panels:
        rows = panel.series.sizes
        smallest = rows[0].gpus
        ends = _ideal_ends(smallest, gpus)
        ideal = draw_ideal(speed, ends, [end / smallest for end in ends])
        ratios = [(row, row.speedup) for row in rows]
        shares = [(row, row.speedup.scaled(100 * smallest / row.gpus)) for row in rows]
        for row, share in shares:
            highest = max(highest, share.high)
            speeds += [row.speedup.low, row.speedup.high]
        speeds.append(ends[1] / smallest)
        curve = draw_curve(speed, panel, ratios)
        entries.append(("measured" if is_alone else panel.title, curve))
        draw_curve(efficiency, panel, shares)
        added = _draw_added(efficiency, panel)
        if is_alone and len(gpus) <= MOST_NOTES:
            for row, share in shares:
                note(speed, row.gpus, row.speedup.mean, f"{row.speedup.mean:.2f}×")
                note(efficiency, row.gpus, share.mean, f"{share.mean:.0f} %")
    requested = _mark_requested(speed, efficiency, shown)
    draw_ideal(efficiency, _ideal_ends(gpus[0], gpus), [100, 100])
    target = 100 * shown.options.min_efficiency
    target_line = efficiency.axhline(
        target, color=DARK, linestyle=":", linewidth=0.9, marker="", zorder=2
    )
    logarithmic = spans(gpus)
    size_axis(speed, gpus, unit, logarithmic=logarithmic)
    size_axis(efficiency, gpus, unit, logarithmic=logarithmic)
    speed.set_ylabel(f"speed-up over {_baseline_text(shown)}")
    efficiency.set_ylabel("efficiency (%)")
    value_axis(speed, speeds, logarithmic=logarithmic)
    efficiency.set_ylim(0, 1.12 * highest)  # GPUs that slow the rest down are below it
    entries.append(("ideal", ideal))
    entries.append((f"efficiency of the added {unit}", added))
    entries.append((f"target {target:g} %", target_line))
    if requested:
        entries.append(("request this size", requested[0]))
    draw_legend(figure, shown, entries)
    return figure


def _ideal_ends(smallest: int, gpus: Sequence[int]) -> list[int]:
    """Return between which sizes a line of the ideal goes: at least to twice the smallest."""
    return [smallest, max(gpus[-1], 2 * smallest)]


def _draw_added(axes: Axes, panel: Panel) -> Any:
    """Draw the efficiency of the GPUs that each size adds; return the marks."""
    walk = steps([(row.gpus, row.speedup.mean) for row in panel.series.sizes])
    gpus = [step.gpus for step in walk]
    percent = [100 * step.added for step in walk]
    style = {**panel.style, "linestyle": "", "marker": "_", "markersize": 9}
    (marks,) = axes.plot(gpus, percent, zorder=4, **style)
    return marks


def _baseline_text(shown: Shown) -> str:
    """Return the size over which the speed-ups of all panels are."""
    sizes = {panel.series.rows[0].gpus for panel in shown.panels}
    if len(sizes) == 1:
        return units_text(sizes.pop(), shown.options.unit)
    return "the smallest size"


def _mark_requested(speed: Axes, efficiency: Axes, shown: Shown) -> list[Any]:
    """Put a ring around the size to request; return the rings."""
    ring: dict[str, Any] = {
        "marker": "o",
        "linestyle": "",
        "markersize": 9,
        "markerfacecolor": "none",
        "markeredgecolor": DARK,
        "zorder": 5,
    }
    rings: list[Any] = []
    for panel in shown.panels:
        if panel.part.advice:
            row = panel.part.advice.value
            rings += speed.plot(row.gpus, row.speedup.mean, **ring)
            rings += efficiency.plot(row.gpus, 100 * row.efficiency, **ring)
    return rings


def _by_epoch(
    shown: Shown, label: str, value: Callable[[Epoch], float | None], *, times: bool
) -> Figure:
    """Draw one number epoch by epoch, with a curve for each size.

    A band shows the range of the repeats.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    warmup = shown.options.warmup if times else 0
    styles = dict(zip(shown.gpus, ordered_styles(len(shown.gpus)), strict=True))
    curves: dict[int, Any] = {}

    def draw(axes: Axes, panel: Panel) -> None:
        seen: list[float] = []
        first = 1
        longest = 1
        for row in panel.series.sizes:
            epochs = _epochs(row, value)
            if not epochs:
                continue
            curves[row.gpus] = _draw_epochs(axes, epochs, styles[row.gpus])
            first = min(first, *epochs)
            longest = max(longest, *epochs)
            for number in epochs.values():
                seen += [number.low, number.high]
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if times:
            value_axis(axes, seen, logarithmic=spans(seen))
        else:
            share_axis(axes, seen)
        # a program may count its epochs from 0
        if 0 < warmup <= longest - first:
            axes.axvspan(first - 0.5, first + warmup - 0.5, color=_WARM_UP_GREY, zorder=0)

    figure = draw_panels(shown, draw)
    entries: list[tuple[str, Any]] = []
    for gpus, curve in sorted(curves.items()):
        entries.append((units_text(gpus, shown.options.unit), curve))
    if warmup:
        entries.append(("warm-up, not counted", Patch(color=_WARM_UP_GREY)))
    draw_legend(figure, shown, entries, doubts=False)
    return figure


def _draw_epochs(axes: Axes, epochs: Mapping[int, Spread], style: Mapping[str, Any]) -> Any:
    """Draw the numbers of one size by epoch, with a band; return the curve."""
    at = list(epochs)
    means = [number.mean for number in epochs.values()]
    lows = [number.low for number in epochs.values()]
    highs = [number.high for number in epochs.values()]
    of_curve = dict(style)
    if len(epochs) > _MOST_MARKED:
        of_curve["marker"] = ""
    (curve,) = axes.plot(at, means, **of_curve)
    axes.fill_between(at, lows, highs, color=style["color"], alpha=0.2, linewidth=0)
    return curve


def _epochs(row: Row, value: Callable[[Epoch], float | None]) -> dict[int, Spread]:
    """Return a number over the repeats by epoch."""
    repeats: dict[int, list[float | None]] = defaultdict(list)
    for point in row.points:
        for epoch in point.epochs:
            repeats[epoch.number].append(value(epoch))
    spreads = {}
    for number in sorted(repeats):
        over_repeats = spread(repeats[number])
        if over_repeats:
            spreads[number] = over_repeats
    return spreads


def _cost(shown: Shown) -> Figure:
    """Draw time against GPU-hours; join the sizes for which no other is better in both."""
    from matplotlib.lines import Line2D

    figure = draw_panels(shown, _draw_cost)
    best = Line2D([], [], **shown.panels[0].style)
    entries = [(f"best in time or cost (numbers: {shown.options.unit})", best)]
    all_series = [panel.series for panel in shown.panels]
    if any(len(pareto(series.rows)) < len(series.rows) for series in all_series):
        entries.append(("others", Line2D([], [], color=DARK, marker="x", linestyle="")))
    draw_legend(figure, shown, entries)
    return figure


def _draw_cost(axes: Axes, panel: Panel) -> None:
    """Draw time against GPU-hours for one series."""
    series = panel.series
    unit = time_unit(series)
    rows = [row for row in series.rows if row.time_s and row.gpu_hours is not None]
    front = sorted(pareto(rows), key=lambda row: row.gpus)
    others = [row for row in rows if row not in front]
    axes.plot(*_costs(front, unit), **panel.style, zorder=3)
    axes.plot(*_costs(others, unit), "x", color=DARK, zorder=3)
    hours, times = _costs(rows, unit)
    spreads = [row.time_s.scaled(1 / unit.seconds) for row in rows if row.time_s]
    whiskers(axes, hours, spreads, panel.style["color"])
    doubtful = [row for row in front if is_doubtful(row, panel.part)]
    if doubtful:
        hollow = {**panel.style, "linestyle": "", "markerfacecolor": "white"}
        axes.plot(*_costs(doubtful, unit), **hollow, zorder=4)
    drawn = front + others
    for row, x, y in zip(drawn, *_costs(drawn, unit), strict=True):
        note(axes, x, y, str(row.gpus))
    axes.set_xlabel(hours_name(series.unit))
    axes.set_ylabel(_time_label(series))
    axes.margins(0.15)
    axes.locator_params(axis="x", nbins=4)  # numbers such as 0.0825 stand side by side
    if spans(hours):
        log_axis(axes.xaxis, hours)
    if spans(times):
        log_axis(axes.yaxis, times)


def _costs(rows: Sequence[Row], unit: TimeUnit) -> tuple[list[float], list[float]]:
    """Return the GPU-hours and the times of rows that have both."""
    hours = [row.gpu_hours or 0.0 for row in rows]
    times = [row.time_s.mean / unit.seconds for row in rows if row.time_s]
    return hours, times


def _any_row(value: Callable[[Row], object]) -> Callable[[Series], bool]:
    return lambda series: any(value(row) is not None for row in series.sizes)


def _epoch_by_epoch(value: Callable[[Epoch], float | None]) -> Callable[[Series], bool]:
    """Return whether a run of a series has a number of several epochs."""

    def has_several(point: Point) -> bool:
        return sum(value(epoch) is not None for epoch in point.epochs) > 1

    def has(series: Series) -> bool:
        return any(has_several(point) for row in series.sizes for point in row.points)

    return has


@dataclass(frozen=True, slots=True)
class _FigureKind:
    """How a figure is drawn, of which series, and what the others lack."""

    draw: Callable[[Shown], Figure]
    has: Callable[[Series], bool]
    lacking: str


def _time(row: Row, series: Series) -> Spread | None:
    if row.time_s:
        return row.time_s.scaled(1 / time_unit(series).seconds)
    return None


_time_of = attrgetter("time_s")
_accuracy_of = attrgetter("accuracy")
_FIGURES: dict[str, _FigureKind] = {
    "speedup_efficiency": _FigureKind(
        _speedup_efficiency,
        lambda series: series.compared,
        "fewer than two sizes",
    ),
    "epoch_time": _FigureKind(
        partial(
            _by_size,
            label=_time_label,
            value=_time,
            logarithmic=True,
            ideal=lambda first, gpus, weak: 1.0 if weak else first.gpus / gpus,
        ),
        _any_row(_time_of),
        "no run has a time",
    ),
    "throughput": _FigureKind(
        partial(
            _by_size,
            label=lambda series: f"{series.rate_of} per second",
            value=lambda row, _: row.samples_per_s,
            ideal=lambda first, gpus, _: gpus / first.gpus,
        ),
        _any_row(attrgetter("samples_per_s")),
        "no run has samples per second",
    ),
    "cost": _FigureKind(_cost, _any_row(_time_of), "no run has a time"),
    "time_by_epoch": _FigureKind(
        partial(_by_epoch, label="time of the epoch (s)", value=_time_of, times=True),
        _epoch_by_epoch(_time_of),
        "no run has several epochs",
    ),
    "accuracy": _FigureKind(
        partial(
            _by_size,
            label=lambda _: "accuracy",
            value=lambda row, _: row.accuracy,
            logarithmic=True,
        ),
        _any_row(_accuracy_of),
        "no run has an accuracy",
    ),
    "accuracy_by_epoch": _FigureKind(
        partial(_by_epoch, label="accuracy", value=_accuracy_of, times=False),
        _epoch_by_epoch(_accuracy_of),
        "no run has the accuracy of several epochs",
    ),
}
