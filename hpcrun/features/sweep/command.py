"""hpcrun sweep: its options, and the forms in which a sweep's elements are shown.

The forms are a table, CSV, JSON, curves in a terminal, and a picture.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.complete import run_name
from hpcrun.cli.metrics import how_to_record
from hpcrun.cli.options import argument, check_least, check_one_of, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    note,
    printed,
    stderr,
    stdout,
    table,
    verbatim,
    width,
)
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import PlanError, UsageError
from hpcrun.features.sweep.compare_elements import (
    SweepRow,
    SweepTable,
    best_row,
    read_items,
    shown_part,
    states_hint,
    submit_command,
    sweep_table,
    sweeps_of,
)
from hpcrun.job.request.parameters import parameters_text
from hpcrun.job.text.metric_patterns import finite_number
from hpcrun.views.figure import PAGE, new_figure, ordered_styles, paper_style, save_figure
from hpcrun.views.metrics_table import braille_plot, curves_of, json_value, value_text, whole
from hpcrun.views.text import csv_text, fields_of, one_line, text_table, written_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

    from hpcrun.runs.record import Run

TERMINAL_CURVES = 8
PICTURE_CURVES = 20
NAMED_CURVES = 10
"""How many elements are drawn in a terminal and in a picture, and how many a legend names: the best
ones.
"""
_LOG_RATIO = 50
"""Numbers that differ by more than this factor are drawn on a logarithmic axis: learning rates."""
_MOST_MARKED = 29
"""The points of longer curves have no markers: they would hide the curve."""
_LONGEST_NAME = 40
_APART = 0.06
"""The least distance of two labels of an axis, as a part of its height."""


def sweep(
    runs: list[str] | None = argument(
        "RUN",
        "Job id, run id, name, or 'last', the default. Several RUNs are one table.",
        complete=run_name,
    ),
    order: str | None = option(
        "--sort METRIC[:min|max]",
        "Metric that decides which element is best, and whether small or large is better. Default: "
        "the loss or accuracy of the validation, else the first metric.",
    ),
    best: str | None = option(
        "--best METRIC[:min|max]",
        "Print only the command of the best element, as a job of its own.",
    ),
    best_step: bool = flag(
        "--best-step", "Compare the best value of each element. Default: its last value."
    ),
    names: list[str] | None = option("--metric -m NAME", "Show only this metric. Repeatable."),
    lines: int | None = option("--lines -n N", "Show only the best N elements."),
    plot: bool = flag("--plot", "Draw the curves of the elements in the terminal."),
    png: Path | None = option("--png FILE", "Draw curves and parameters to a PNG file."),
    as_csv: bool = flag("--csv", "Print CSV."),
    folder: str | None = RUNS,
    as_json: JsonOption = False,
) -> Outcomes:
    """Show parameters and metrics of a sweep's elements, best first.

    A sweep that repeats elements of another, such as by resubmit --failed,
    shows the newest of each.
    """
    check_one_of(plot=plot, png=png, csv=as_csv, json=as_json)
    has_no_effect = plot or png is not None or as_csv or order is not None
    if best is not None and has_no_effect:
        raise UsageError(
            "--best prints one command: --sort, --plot, --png and --csv have no effect"
        )
    check_least("--lines", lines, 1)
    context = context_of(folder)
    sweeps: dict[str, Run] = {}
    for label in runs or ["last"]:
        repeated, remarks = sweeps_of(label, context.store, runs or ())
        yield note(remarks)
        sweeps |= {run.run_id: run for run in repeated}
    items, remarks = read_items(list(sweeps), context)
    yield note(remarks)
    made = sweep_table(items, best or order, best_step=best_step)
    if best is not None:
        yield best_outcome(made, str(context.cwd))
        return
    shown = shown_part(made, names or (), lines)
    yield sweep_outcome(shown, plot=plot, png=png, as_csv=as_csv)


def sweep_outcome(made: SweepTable, *, plot: bool, png: Path | None, as_csv: bool) -> Outcome:
    """Return the elements of a sweep as a table, or in the form that was requested."""
    if png is not None:
        save_sweep_png(made, png)
        return printed([written_line(png)])
    if as_csv:
        return Outcome(lambda: [verbatim(sweep_csv(made))])
    if plot:
        return printed(sweep_plot(made, width() if sys.stdout.isatty() else 80))
    if made.ranking:
        notes = [f"hpcrun: by {made.ranking.words}; other order: --sort METRIC:min or :max"]
    else:
        notes = ["hpcrun: no metrics in any element", f"hint: {how_to_record()}"]
    return Outcome(lambda: [table(_text(made)), stderr(notes)], lambda: sweep_json(made))


def best_outcome(made: SweepTable, cwd: str) -> Outcome:
    """Return the command of the best element.

    ``cwd``: the folder in which the command will be typed.
    """
    row = best_row(made)
    ranking = made.ranking
    assert ranking is not None
    command = submit_command(row, cwd)
    name = f"{row.run.job_id or row.run.run_id}/{row.index} ({parameters_text(row.parameters)})"
    value = value_text(row.values.get(ranking.metric))
    result = f"{ranking.metric} {value} at step {value_text(row.step)} ({ranking.words})"
    resubmit = f"hpcrun resubmit {row.run.run_id} --elements {row.index}"
    about = [
        one_line(f"hpcrun: {name} is {row.status.state}: {result}"),
        one_line(f"hpcrun: to repeat it, from its checkpoints if it has any: {resubmit}"),
    ]
    return Outcome(
        lambda: [stderr(about), stdout([command])],
        lambda: {"kind": "sweep-best", **row_json(row), "command": command},
    )


def _text(made: SweepTable) -> Table:
    """Return the elements for a terminal: their states, parameters and metrics."""
    numbers = ["STEP", *map(one_line, made.names)]
    headings = ["ELEMENT", "STATE", *map(one_line, made.parameters), *numbers]
    rows = []
    for row in made.rows:
        parameters = dict(row.parameters)
        cells = [_label(row, made), row.ended]
        cells += [parameters.get(name, "-") for name in made.parameters]
        cells.append(value_text(row.step))
        cells += [value_text(row.values.get(name)) for name in made.names]
        rows.append(cells)
    return text_table(headings, rows, right=("ELEMENT", *numbers), whole=("ELEMENT",))


def _label(row: SweepRow, table: SweepTable) -> str:
    """Return an element's number; with the run's name if several runs are shown."""
    runs = {shown.run.run_id for shown in table.rows}
    if len(runs) > 1:
        return f"{row.run.job_id or row.run.run_id}/{row.index}"
    return str(row.index)


def sweep_csv(table: SweepTable) -> str:
    """Return the elements as CSV, the best first.

    The columns are run, element, job id, state, exit status, parameters, step and metrics.
    """
    front = ("run_id", "element", "job_id", "state", "exit_status")
    rows = []
    for row in table.rows:
        parameters = dict(row.parameters)
        cells: list[object] = [row.run.run_id, row.index, row.job_id]
        cells += [row.status.state, row.status.exit_status]
        cells += [parameters.get(name) for name in table.parameters]
        cells.append(whole(row.step))
        cells += [whole(row.values.get(name)) for name in table.names]
        rows.append(cells)
    return csv_text((*front, *table.parameters, "step", *table.names), rows)


def sweep_json(table: SweepTable) -> dict[str, Any]:
    """Return the elements as a JSON document, best first."""
    ranking = table.ranking
    order = None
    if ranking:
        direction = "max" if ranking.largest else "min"
        order = {"metric": ranking.metric, "direction": direction}
    return {
        "kind": "sweep",
        "order": order,
        "parameters": list(table.parameters),
        "metrics": list(table.names),
        "elements": [row_json(row) for row in table.rows],
    }


def row_json(row: SweepRow) -> dict[str, Any]:
    """Return an element as a part of a JSON document."""
    return {
        "run_id": row.run.run_id,
        "element": row.index,
        "job_id": row.job_id,
        **fields_of(row.status, "state exit_status"),
        "parameters": dict(row.parameters),
        "step": whole(row.step),
        "values": {name: json_value(value) for name, value in row.values.items()},
    }


def sweep_plot(table: SweepTable, width: int) -> list[str]:
    """Return the curves of the best elements for a terminal ``width`` columns wide.

    Each curve has its element's name at its end.
    """
    if table.ranking is None:
        return ["no values"]
    metric = table.ranking.metric
    drawn = table.scored[:TERMINAL_CURVES]
    if not drawn:
        return [f"no values of {one_line(metric)}"]
    elements = "each element"
    if len(drawn) < len(table.rows):
        elements = f"{len(drawn)} of {len(table.rows)} elements"
    curves = [_curve(row, metric) for row in drawn]
    names = [_label(row, table) for row in drawn]
    title = f"{one_line(metric)} by step, of {elements}; numbers name the elements"
    return [title, *braille_plot(curves, width, names=names)]


def _curve(row: SweepRow, metric: str) -> list[tuple[float, float]]:
    """Return the steps and values of a metric; of several curves the first."""
    curves = list(curves_of(row.metrics, metric).values())
    return curves[0] if curves else []


def save_sweep_png(table: SweepTable, path: Path) -> None:
    """Draw the curves of the best elements, and all elements by their parameters, into a file.

    The curves are above, and the parameters below.

    Raises:
        PlanError: no element has a value to draw.
    """
    scored = table.scored
    if table.ranking is None or not scored:
        raise PlanError("no element has a value to draw", hint=states_hint(table))
    with paper_style():
        figure = new_figure(PAGE, 6.0)
        upper, lower = figure.subplots(2)
        styles = ordered_styles(len(scored))
        _draw_curves(upper, table, styles)
        _draw_parallel(lower, scored, table, styles)
        save_figure(figure, path)


def _draw_curves(axes: Axes, table: SweepTable, styles: Sequence[Mapping[str, Any]]) -> None:
    """Draw the curves of the best elements, each in the style of its place."""
    assert table.ranking is not None
    metric = table.ranking.metric
    scored = table.scored
    for place, row in enumerate(scored[:PICTURE_CURVES]):
        curve = _curve(row, metric)
        if not curve:
            continue
        style = dict(styles[place])
        if len(curve) > _MOST_MARKED:
            style["marker"] = ""
        label = None
        if place < NAMED_CURVES:
            parameters = " ".join(f"{name}={value}" for name, value in row.parameters)
            label = _short(f"{_label(row, table)}: {parameters}")
        steps = [step for step, _ in curve]
        values = [value for _, value in curve]
        axes.plot(steps, values, **style, zorder=2 + place / len(scored), label=label)
    axes.set_xlabel("step")
    axes.set_ylabel(_short(metric))
    axes.legend(title="best first", loc="upper left", bbox_to_anchor=(1, 1))


def _short(text: str) -> str:
    if len(text) <= _LONGEST_NAME:
        return text
    return f"{text[: _LONGEST_NAME - 1]}…"


@dataclass(frozen=True, slots=True)
class _Tick:
    """A label of an axis, and its height between 0 and 1."""

    height: float
    text: str


@dataclass(frozen=True, slots=True)
class _Scale:
    """An axis of parallel coordinates."""

    heights: list[float]  # of each element, between 0 and 1
    ticks: list[_Tick]


def _draw_parallel(
    axes: Axes,
    rows: Sequence[SweepRow],
    table: SweepTable,
    styles: Sequence[Mapping[str, Any]],
) -> None:
    """Draw parallel coordinates: a line for each element.

    Each parameter has a vertical axis; the last axis is for the metric.
    """
    assert table.ranking is not None
    metric = table.ranking.metric
    scales = []
    for name in table.parameters:
        scales.append(_scale([dict(row.parameters).get(name, "-") for row in rows]))
    scales.append(_scale([repr(row.number(metric)) for row in rows]))
    # the best element is drawn last, above the others
    for place in reversed(range(len(rows))):
        heights = [scale.heights[place] for scale in scales]
        axes.plot(range(len(scales)), heights, **{**styles[place], "marker": ""})
    for x, scale in enumerate(scales):
        axes.axvline(x, color="0.4", linewidth=0.8)
        for tick in scale.ticks:
            _draw_tick(axes, x, tick)
    names = [_short(name) for name in (*table.parameters, metric)]
    axes.set_xticks(range(len(scales)), names)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_title("each line is an element, from its parameters to its result", loc="left")
    axes.set_xlim(-0.15, len(scales) - 0.6)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)


def _draw_tick(axes: Axes, x: float, tick: _Tick) -> None:
    """Draw a label beside an axis."""
    axes.annotate(
        _short(tick.text),
        (x, tick.height),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=7,
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )


def _scale(values: Sequence[str]) -> _Scale:
    """Return the height of each value between 0 and 1, and the axis labels with their heights.

    Numbers stand where they belong, on a logarithmic axis if they span magnitudes. Other text
    stands in the order of the rows.
    """
    numbers = []
    for value in values:
        number = finite_number(value)
        if number is None:
            return _text_scale(values)
        numbers.append(number)
    return _number_scale(numbers, values)


def _text_scale(values: Sequence[str]) -> _Scale:
    """Return the scale of texts, in the order of the rows."""
    distinct = list(dict.fromkeys(values))
    highest = max(1, len(distinct) - 1)
    heights = {value: place / highest for place, value in enumerate(distinct)}
    ticks = [_Tick(height, value) for value, height in heights.items()]
    return _Scale([heights[value] for value in values], ticks)


def _number_scale(numbers: Sequence[float], values: Sequence[str]) -> _Scale:
    """Return the scale of numbers; ``values``: as the numbers are written."""
    low = min(numbers)
    high = max(numbers)
    measure = math.log if low > 0 and high / low > _LOG_RATIO else float
    bottom = measure(low)
    top = measure(high)

    def height(number: float) -> float:
        if top > bottom:
            return (measure(number) - bottom) / (top - bottom)
        return 0.5

    labelled = {low, high}
    if len(set(values)) <= NAMED_CURVES:
        labelled = set(numbers)
    ticks = [_Tick(height(number), f"{number:.4g}") for number in sorted(labelled)]
    return _Scale([height(number) for number in numbers], _apart(ticks))


def _apart(ticks: Sequence[_Tick]) -> list[_Tick]:
    """Return the labels that do not overlap.

    These are the lowest label, the highest label, and the labels between them that have room around
    them.
    """
    kept: list[_Tick] = []
    for tick in ticks:
        if not kept or tick.height - kept[-1].height >= _APART:
            kept.append(tick)
        elif tick is ticks[-1] and len(kept) > 1:
            kept[-1] = tick
    return kept
