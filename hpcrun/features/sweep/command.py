"""hpcrun sweep: its options, and the forms in which a sweep's elements are shown.

The forms are a table, CSV, JSON, curves in a terminal, and a picture.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
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
from hpcrun.errors import PlanError, UsageError
from hpcrun.features.sweep.sweep import (
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
from hpcrun.job.text.patterns import finite_number
from hpcrun.views.figure import PAGE, new_figure, ordered_styles, paper_style, save_figure
from hpcrun.views.metrics_table import braille_plot, curves_of, json_value, value_text, whole
from hpcrun.views.text import csv_text, fields_of, one_line, text_table

if TYPE_CHECKING:
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


def sweep(
    runs: list[str] | None = argument(
        "RUN",
        "Job id, run id, name, or 'last', the default. Several RUNs are one table.",
        complete=run_name,
    ),
    order: str | None = option(
        "--sort METRIC[:min|max]",
        "Metric that decides which element is best, and whether small or large is better. Default: "
        "the loss or "
        "accuracy of the validation, else the first metric.",
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
    as_json: JsonOption = False,
) -> Outcomes:
    """Show parameters and metrics of a sweep's elements, best first.

    A sweep that repeats elements of another, such as by resubmit --failed,
    shows the newest of each.
    """
    check_one_of(plot=plot, png=png, csv=as_csv, json=as_json)
    if best is not None and (plot or png is not None or as_csv or order is not None):
        raise UsageError(
            "--best prints one command: --sort, --plot, --png and --csv have no effect"
        )
    check_least("--lines", lines, 1)
    context = make_context()
    sweeps: dict[str, Run] = {}
    for label in runs or ["last"]:
        repeated, remarks = sweeps_of(label, context.store)
        yield note(remarks)
        sweeps |= {run.run_id: run for run in repeated}
    items, remarks = read_items(list(sweeps), context)
    yield note(remarks)
    made = sweep_table(items, best or order, best_step=best_step)
    if best is not None:
        yield best_outcome(made, str(context.cwd))
    else:
        yield sweep_outcome(shown_part(made, names or (), lines), plot=plot, png=png, as_csv=as_csv)


def sweep_outcome(made: SweepTable, *, plot: bool, png: Path | None, as_csv: bool) -> Outcome:
    """Return the elements of a sweep as a table, or in the form that was requested."""
    if png is not None:
        save_sweep_png(made, png)
        return printed([f"written  {png}"])
    if as_csv:
        return Outcome(lambda: [verbatim(sweep_csv(made))])
    if plot:
        return printed(sweep_plot(made, width() if sys.stdout.isatty() else 80))
    if made.ranking:
        order = [f"hpcrun: by {made.ranking.words}; other order: --sort METRIC:min or :max"]
    else:
        order = []
    notes = order or ["hpcrun: no metrics in any element", f"hint: {how_to_record()}"]
    return Outcome(lambda: [table(_text(made)), stderr(notes)], lambda: sweep_json(made))


def best_outcome(made: SweepTable, cwd: str) -> Outcome:
    """Return the command of the best element.

    ``cwd``: the folder in which the command will be typed.
    """
    row, ranking = best_row(made), made.ranking
    assert ranking is not None
    command = submit_command(row, cwd)
    name = f"{row.run.job_id or row.run.run_id}/{row.index}"
    value = (
        f"{ranking.metric} {value_text(row.values.get(ranking.metric))} at step "
        f"{value_text(row.step)}"
    )
    about = [
        f"hpcrun: {name} ({parameters_text(row.parameters)}) is {row.status.state}: {value} "
        f"({ranking.words})",
        f"hpcrun: to continue it from its checkpoints: hpcrun resubmit {row.run.run_id} --elements "
        f"{row.index}",
    ]
    return Outcome(
        lambda: [stderr(map(one_line, about)), stdout([command])],
        lambda: {"kind": "sweep-best", **row_json(row), "command": command},
    )


def _text(made: SweepTable) -> Table:
    """Return the elements for a terminal: their states, parameters and metrics."""
    numbers = ["STEP", *map(one_line, made.names)]
    headings = ["ELEMENT", "STATE", *map(one_line, made.parameters), *numbers]
    rows = (
        [
            _label(row, made),
            row.ended,
            *(dict(row.parameters).get(name, "-") for name in made.parameters),
            value_text(row.step),
            *(value_text(row.values.get(name)) for name in made.names),
        ]
        for row in made.rows
    )
    return text_table(headings, rows, right=("ELEMENT", *numbers), whole=("ELEMENT",))


def _label(row: SweepRow, table: SweepTable) -> str:
    """Return an element's number; with the run's name if several runs are shown."""
    several = len({one.run.run_id for one in table.rows}) > 1
    if several:
        return f"{row.run.job_id or row.run.run_id}/{row.index}"
    return str(row.index)


def sweep_csv(table: SweepTable) -> str:
    """Return the elements as CSV, the best first.

    The columns are run, element, job id, state, exit status, parameters, step and metrics.
    """
    front = ("run_id", "element", "job_id", "state", "exit_status")
    rows = (
        [
            row.run.run_id,
            row.index,
            row.job_id,
            row.status.state,
            row.status.exit_status,
            *(dict(row.parameters).get(name) for name in table.parameters),
            whole(row.step),
            *(whole(row.values.get(name)) for name in table.names),
        ]
        for row in table.rows
    )
    return csv_text((*front, *table.parameters, "step", *table.names), rows)


def sweep_json(table: SweepTable) -> dict[str, Any]:
    """Return the elements as a JSON document, best first."""
    ranking = table.ranking
    return {
        "kind": "sweep",
        "order": ranking
        and {"metric": ranking.metric, "direction": "max" if ranking.largest else "min"},
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
    drawn = [(row, _curve(row, table.ranking.metric)) for row in table.scored[:TERMINAL_CURVES]]
    if not drawn:
        return [f"no values of {one_line(table.ranking.metric)}"]
    if len(drawn) == len(table.rows):
        which = "each element"
    else:
        which = f"{len(drawn)} of {len(table.rows)} elements"
    names = [_label(row, table) for row, _ in drawn]
    lines = [f"{one_line(table.ranking.metric)} by step, of {which}; numbers name the elements"]
    return [*lines, *braille_plot([curve for _, curve in drawn], width, names=names)]


def _curve(row: SweepRow, metric: str) -> list[tuple[float, float]]:
    return next(iter(curves_of(row.metrics, metric).values()), [])


def save_sweep_png(table: SweepTable, path: Path) -> None:
    """Draw the curves of the best elements, and all elements by their parameters, into a file.

    The curves are above, and the parameters below.

    Raises:
        PlanError: no element has a value to draw.
    """
    ranking, scored = table.ranking, table.scored
    if ranking is None or not scored:
        raise PlanError("no element has a value to draw", hint=states_hint(table))
    with paper_style():
        figure = new_figure(PAGE, 6.0)
        upper, lower = figure.subplots(2)
        styles = {
            id(row): style for row, style in zip(scored, ordered_styles(len(scored)), strict=True)
        }
        for place, row in enumerate(scored[:PICTURE_CURVES]):
            label = (
                f"{_label(row, table)}: "
                f"{' '.join(f'{name}={value}' for name, value in row.parameters)}"
            )
            points = _curve(row, ranking.metric)
            style = {**styles[id(row)], **({} if len(points) < 30 else {"marker": ""})}
            upper.plot(
                *zip(*points, strict=True),
                **style,
                zorder=2 + place / len(scored),
                label=_short(label) if place < NAMED_CURVES else None,
            )
        upper.set_xlabel("step")
        upper.set_ylabel(_short(ranking.metric))
        upper.legend(title="best first", loc="upper left", bbox_to_anchor=(1, 1))
        _draw_parallel(lower, scored, table, styles)
        save_figure(figure, path)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _draw_parallel(
    axes: Any, rows: Sequence[SweepRow], table: SweepTable, styles: dict[int, Any]
) -> None:
    """Draw parallel coordinates: a line for each element.

    Each parameter has a vertical axis; the last axis is for the metric.
    """
    assert table.ranking is not None
    metric = table.ranking.metric
    columns = [[dict(row.parameters).get(name, "-") for row in rows] for name in table.parameters]
    scales = [_scale(column) for column in columns]
    scales.append(_scale([repr(row.number(metric)) for row in rows]))
    for place, row in reversed(list(enumerate(rows))):
        axes.plot(
            range(len(scales)),
            [heights[place] for heights, _ in scales],
            **{**styles[id(row)], "marker": ""},
        )
    for x, (_, ticks) in enumerate(scales):
        axes.axvline(x, color="0.4", linewidth=0.8)
        for height, text in ticks:
            axes.annotate(
                _short(text),
                (x, height),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=7,
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )
    axes.set_xticks(range(len(scales)), [_short(name) for name in (*table.parameters, metric)])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_title("each line is an element, from its parameters to its result", loc="left")
    axes.set_xlim(-0.15, len(scales) - 0.6)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)


def _scale(values: Sequence[str]) -> tuple[list[float], list[tuple[float, str]]]:
    """Return the height of each value between 0 and 1, and the axis labels with their heights.

    Numbers stand where they belong, on a logarithmic axis if they span magnitudes. Other text
    stands in the order of the rows.
    """
    numbers = [finite_number(value) for value in values]
    distinct = list(dict.fromkeys(values))
    if any(number is None for number in numbers):
        heights = {value: place / max(1, len(distinct) - 1) for place, value in enumerate(distinct)}
        return [heights[value] for value in values], [(heights[value], value) for value in distinct]
    known = [number for number in numbers if number is not None]
    low = min(known)
    high = max(known)
    measure = math.log if low > 0 and high / low > _LOG_RATIO else float
    bottom = measure(low)
    top = measure(high)

    def height(number: float) -> float:
        if top > bottom:
            return (measure(number) - bottom) / (top - bottom)
        return 0.5

    if len(distinct) <= NAMED_CURVES:
        labelled = dict(zip(known, values, strict=True))
    else:
        labelled = {low: "", high: ""}
    ticks = [(height(number), f"{number:.4g}") for number in sorted(labelled)]
    return [height(number) for number in known], _apart(ticks)


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the labels that do not overlap.

    These are the lowest label, the highest label, and the labels between them that have room around
    them.
    """
    kept: list[tuple[float, str]] = []
    for tick in ticks:
        if not kept or tick[0] - kept[-1][0] >= 0.06:
            kept.append(tick)
        elif tick is ticks[-1] and len(kept) > 1:
            kept[-1] = tick
    return kept
