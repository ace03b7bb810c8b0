"""The figures of a report, as PNG, PDF and SVG: for a paper, or for a colleague."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Sequence
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
from hpcrun.features.scaling.points import Epoch, Spread, spread
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
    named = [(heading(part.series, report), part) for part in report.parts if part.series.rows]
    panels = [
        Panel(number, title, part) for number, (title, part) in enumerate(named[:MOST_SERIES])
    ]
    figures: dict[str, Figure] = {}
    missing = []
    if len(named) > MOST_SERIES:
        missing.append(f"only the first {MOST_SERIES} of {len(named)} series are drawn")
    for name, (draw, has, lacking) in _FIGURES.items():
        chosen = tuple(panel for panel in panels if has(panel.series))
        if chosen:
            figures[name] = draw(Shown(chosen, report.options))
            settle(figures[name])
            missing += [
                f"{name}: without {panel.title} ({lacking})"
                for panel in panels
                if panel not in chosen
            ]
        else:
            missing.append(f"{name}: not drawn: {lacking}")
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
        numbers = [(row, number) for row in series.sizes if (number := value(row, series))]
        gpus, (first, base) = [row.gpus for row, _ in numbers], numbers[0]
        log = logarithmic or spans(gpus)
        curve = draw_curve(axes, panel, numbers)
        if len(shown.panels) == 1:  # several have a title and a colour each
            lines["measured"] = curve
        size_axis(axes, gpus, series.unit, logarithmic=log)
        axes.set_ylabel(label(series))
        values = [end for _, number in numbers for end in (number.low, number.high)]
        if ideal:
            ideals = [base.mean * ideal(first, each, weak) for each in gpus]
            lines["ideal"] = draw_ideal(axes, gpus, ideals)
            value_axis(axes, [*ideals, *values], logarithmic=log)
        else:
            axes.margins(y=0.2)
            share_axis(axes, values)
        for row, number in numbers if len(numbers) <= MOST_NOTES else ():
            note(axes, row.gpus, number.mean, "~" * row.time_derived + brief(number.mean))

    figure = draw_panels(shown, draw)
    draw_legend(figure, shown, list(lines.items()))
    return figure


def _time_label(series: Series) -> str:
    return (
        f"time of {'the run' if series.time_of == 'run' else 'one epoch'} "
        f"({time_unit(series).name})"
    )


def _speedup_efficiency(shown: Shown) -> Figure:
    """Draw the speed-up beside the ideal, and the efficiency of all and of the added GPUs.

    The target is for the efficiency of the added GPUs.
    """
    gpus, alone = shown.gpus, len(shown.panels) == 1
    figure = new_figure(PAGE, 3.0)
    speed, efficiency = figure.subplots(1, 2)
    highest = 100.0
    speeds = [1.0]
    entries: list[tuple[str, Any]] = []
    for panel in shown.panels:
        rows, smallest = panel.series.sizes, panel.series.rows[0].gpus
        ends = [smallest, max(gpus[-1], 2 * smallest)]
        ideal = draw_ideal(speed, ends, [each / smallest for each in ends])
        ratios = [(row, row.speedup) for row in rows]
        shares = [(row, row.speedup.scaled(100 * smallest / row.gpus)) for row in rows]
        highest = max(highest, *(share.high for _, share in shares))
        speeds += [
            ends[1] / smallest,
            *(end for _, ratio in ratios for end in (ratio.low, ratio.high)),
        ]
        entries.append(("measured" if alone else panel.title, draw_curve(speed, panel, ratios)))
        draw_curve(efficiency, panel, shares)
        walk = steps([(row.gpus, row.speedup.mean) for row in rows])
        (added,) = efficiency.plot(
            [each.gpus for each in walk],
            [100 * each.added for each in walk],
            zorder=4,
            **{**panel.style, "linestyle": "", "marker": "_", "markersize": 9},
        )
        for (row, ratio), (_, share) in (
            zip(ratios, shares, strict=True) if alone and len(gpus) <= MOST_NOTES else ()
        ):
            note(speed, row.gpus, ratio.mean, f"{ratio.mean:.2f}×")
            note(efficiency, row.gpus, share.mean, f"{share.mean:.0f} %")
    requested = _mark_requested(speed, efficiency, shown)
    draw_ideal(efficiency, [gpus[0], max(gpus[-1], 2 * gpus[0])], [100, 100])
    target = efficiency.axhline(
        100 * shown.options.min_efficiency,
        color=DARK,
        linestyle=":",
        linewidth=0.9,
        marker="",
        zorder=2,
    )
    bases = {panel.series.rows[0].gpus for panel in shown.panels}
    if len(bases) == 1:
        over = units_text(min(bases), shown.options.unit)
    else:
        over = "the smallest size"
    logarithmic = spans(gpus)
    for axes, words in ((speed, f"speed-up over {over}"), (efficiency, "efficiency (%)")):
        size_axis(axes, gpus, shown.options.unit, logarithmic=logarithmic)
        axes.set_ylabel(words)
    value_axis(speed, speeds, logarithmic=logarithmic)
    efficiency.set_ylim(0, 1.12 * highest)  # GPUs that slow the rest down are below it
    entries += [("ideal", ideal), (f"efficiency of the added {shown.options.unit}", added)]
    entries += [
        (f"target {100 * shown.options.min_efficiency:g} %", target),
        *(("request this size", ring) for ring in requested[:1]),
    ]
    draw_legend(figure, shown, entries)
    return figure


def _mark_requested(speed: Axes, efficiency: Axes, shown: Shown) -> list[Any]:
    """Put a ring around the size to request; return the rings."""
    rings: list[Any] = []
    for panel in shown.panels:
        if panel.part.advice:
            row = panel.part.advice.value
            for axes, value in ((speed, row.speedup.mean), (efficiency, 100 * row.efficiency)):
                rings += axes.plot(
                    row.gpus,
                    value,
                    marker="o",
                    linestyle="",
                    markersize=9,
                    markerfacecolor="none",
                    markeredgecolor=DARK,
                    zorder=5,
                )
    return rings


def _by_epoch(
    shown: Shown, label: str, value: Callable[[Epoch], float | None], *, times: bool
) -> Figure:
    """Draw one number epoch by epoch, with a curve for each size.

    A band shows the range of the repeats.
    """
    from matplotlib.ticker import MaxNLocator

    styles = dict(zip(shown.gpus, ordered_styles(len(shown.gpus)), strict=True))
    curves: dict[int, Any] = {}

    def draw(axes: Axes, panel: Panel) -> None:
        seen: list[float] = []
        first = 1
        longest = 1
        for row in panel.series.sizes:
            curve = _epochs(row, value)
            if curve:
                at = list(curve)
                style = styles[row.gpus]
                (curves[row.gpus],) = axes.plot(
                    at,
                    [each.mean for each in curve.values()],
                    **{**style, **({} if len(curve) < 30 else {"marker": ""})},
                )
                lows = [each.low for each in curve.values()]
                highs = [each.high for each in curve.values()]
                axes.fill_between(at, lows, highs, color=style["color"], alpha=0.2, linewidth=0)
                seen += [*lows, *highs]
                first, longest = min(first, *at), max(longest, *at)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if times:
            value_axis(axes, seen, logarithmic=spans(seen))
        else:
            share_axis(axes, seen)
        # a program may count its epochs from 0
        if times and 0 < shown.options.warmup <= longest - first:
            axes.axvspan(first - 0.5, first + shown.options.warmup - 0.5, color="#F0F0F0", zorder=0)

    figure = draw_panels(shown, draw)
    entries: list[tuple[str, Any]] = [
        (units_text(gpus, shown.options.unit), curve) for gpus, curve in sorted(curves.items())
    ]
    if times and shown.options.warmup:
        from matplotlib.patches import Patch

        entries.append(("warm-up, not counted", Patch(color="#F0F0F0")))
    draw_legend(figure, shown, entries, doubts=False)
    return figure


def _epochs(row: Row, value: Callable[[Epoch], float | None]) -> dict[int, Spread]:
    """Return a number over the repeats by epoch."""
    repeats: dict[int, list[float | None]] = defaultdict(list)
    for point in row.points:
        for epoch in point.epochs:
            repeats[epoch.number].append(value(epoch))
    return {number: each for number, values in sorted(repeats.items()) if (each := spread(values))}


def _cost(shown: Shown) -> Figure:
    """Draw time against GPU-hours; join the sizes for which no other is better in both."""
    from matplotlib.lines import Line2D

    def draw(axes: Axes, panel: Panel) -> None:
        series, unit = panel.series, time_unit(panel.series)
        rows = [row for row in series.rows if row.time_s and row.gpu_hours is not None]
        front = sorted(pareto(rows), key=lambda row: row.gpus)
        others = [row for row in rows if row not in front]
        axes.plot(*_costs(front, unit), **panel.style, zorder=3)
        axes.plot(*_costs(others, unit), "x", color=DARK, zorder=3)
        times = [row.time_s.scaled(1 / unit.seconds) for row in rows if row.time_s]
        whiskers(axes, _costs(rows, unit)[0], times, panel.style["color"])
        doubtful = [row for row in front if is_doubtful(row, panel.part)]
        if doubtful:
            hollow = {**panel.style, "linestyle": "", "markerfacecolor": "white"}
            axes.plot(*_costs(doubtful, unit), **hollow, zorder=4)
        for row, x, y in zip([*front, *others], *_costs([*front, *others], unit), strict=True):
            note(axes, x, y, str(row.gpus))
        axes.set_xlabel(hours_name(series.unit))
        axes.set_ylabel(_time_label(series))
        axes.margins(0.15)
        axes.locator_params(axis="x", nbins=4)  # numbers such as 0.0825 stand side by side
        for axis, values in zip((axes.xaxis, axes.yaxis), _costs(rows, unit), strict=True):
            if spans(values):
                log_axis(axis, values)

    figure = draw_panels(shown, draw)
    best = Line2D([], [], **shown.panels[0].style)
    entries = [(f"best in time or cost (numbers: {shown.options.unit})", best)]
    if any(len(pareto(panel.series.rows)) < len(panel.series.rows) for panel in shown.panels):
        entries.append(("others", Line2D([], [], color=DARK, marker="x", linestyle="")))
    draw_legend(figure, shown, entries)
    return figure


def _costs(rows: Sequence[Row], unit: TimeUnit) -> tuple[list[float], list[float]]:
    hours = [row.gpu_hours or 0.0 for row in rows]
    return hours, [row.time_s.mean / unit.seconds for row in rows if row.time_s]


def _any_row(value: Callable[[Row], object]) -> Callable[[Series], bool]:
    return lambda series: any(value(row) is not None for row in series.sizes)


def _epoch_by_epoch(value: Callable[[Epoch], float | None]) -> Callable[[Series], bool]:
    def has_several(row: Row) -> bool:
        return any(
            sum(value(epoch) is not None for epoch in point.epochs) > 1 for point in row.points
        )

    return lambda series: any(map(has_several, series.sizes))


def _time(row: Row, series: Series) -> Spread | None:
    if row.time_s:
        return row.time_s.scaled(1 / time_unit(series).seconds)
    return None


_time_of = attrgetter("time_s")
_accuracy_of = attrgetter("accuracy")
_FIGURES: dict[str, tuple[Callable[[Shown], Figure], Callable[[Series], bool], str]] = {
    "speedup_efficiency": (
        _speedup_efficiency,
        lambda series: series.compared,
        "fewer than two sizes",
    ),
    "epoch_time": (
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
    "throughput": (
        partial(
            _by_size,
            label=lambda _: "samples per second",
            value=lambda row, _: row.samples_per_s,
            ideal=lambda first, gpus, _: gpus / first.gpus,
        ),
        _any_row(attrgetter("samples_per_s")),
        "no run has samples per second",
    ),
    "cost": (_cost, _any_row(_time_of), "no run has a time"),
    "time_by_epoch": (
        partial(_by_epoch, label="time of the epoch (s)", value=_time_of, times=True),
        _epoch_by_epoch(_time_of),
        "no run has several epochs",
    ),
    "accuracy": (
        partial(
            _by_size,
            label=lambda _: "accuracy",
            value=lambda row, _: row.accuracy,
            logarithmic=True,
        ),
        _any_row(_accuracy_of),
        "no run has an accuracy",
    ),
    "accuracy_by_epoch": (
        partial(_by_epoch, label="accuracy", value=_accuracy_of, times=False),
        _epoch_by_epoch(_accuracy_of),
        "no run has the accuracy of several epochs",
    ),
}
