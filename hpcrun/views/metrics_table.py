"""Metrics as a table, CSV, JSON, a picture, or curves in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.errors import HpcrunError
from hpcrun.job.request.parameters import Parameters, parameters_text
from hpcrun.runs.metric_files import MetricsRow, Value
from hpcrun.views.figure import PAGE, new_figure, paper_style, save_figure, style_of
from hpcrun.views.text import csv_text, fields_of, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

_Point = tuple[float, float]
_HEIGHT = 10
_MOST_NAMED = 16
_LEAST = 8
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a character of Unicode's block at U+2800, by row and column."""


def metrics_table(
    each: Mapping[Any, Metrics], parameters: Mapping[int, Parameters] | None = None
) -> Table:
    """Return rows for a terminal; the rank and the attempt only where there are several.

    Args:
        each: the elements of a sweep, with their metrics; or a run alone.
        parameters: the parameters of the elements of a sweep; None for a run.
    """
    names = _names(each)
    several = [
        name
        for name in ("rank", "attempt")
        if any(len({getattr(row, name) for row in metrics.rows}) > 1 for metrics in each.values())
    ]
    numbers = [*map(str.upper, several), "STEP", *map(one_line, names), "TIME"]
    front = ["ELEMENT", "PARAMETERS"] if parameters else []
    rows = (
        (*((str(index), parameters_text(parameters[index])) if parameters else ()), *cells)
        for index, metrics in each.items()
        for cells in (
            [_cells(row, several, names) for row in metrics.rows] or [["-"] * len(numbers)]
        )
    )
    return text_table((*front, *numbers), rows, right=("ELEMENT", *numbers))


def _cells(row: MetricsRow, several: Iterable[str], names: Iterable[str]) -> list[str]:
    # people count from 1
    who = (row.attempt + 1 if name == "attempt" else getattr(row, name) for name in several)
    return [*map(value_text, (*who, row.step, *map(row.values.get, names))), _clock(row.time_s)]


def _names(each: Mapping[Any, Metrics]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for metrics in each.values() for name in metrics.names))


def value_text(value: Value | None) -> str:
    """Return a readable number: six digits for a fraction, all digits for an integer."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e9):
        return f"{value:.6g}"
    return str(int(value))


def _clock(time_s: float | None) -> str:
    if time_s is None:
        return "-"
    return f"{datetime.fromtimestamp(time_s):%H:%M:%S}"


def metrics_csv(each: Mapping[Any, Metrics]) -> str:
    """Return the rows as CSV.

    The columns are element (of a sweep), rank, attempt, step, seconds since the epoch, then the
    metrics.
    """
    names = _names(each)
    front = () if None in each else ("element",)
    rows = (
        [
            *(index for _ in front),
            row.rank,
            row.attempt,
            *map(whole, (row.step, row.time_s, *map(row.values.get, names))),
        ]
        for index, metrics in each.items()
        for row in metrics.rows
    )
    return csv_text((*front, "rank", "attempt", "step", "time", *names), rows)


def whole(value: Value | None) -> Value | None:
    """Return a number without a fraction as an integer: ``3``, not ``3.0``."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def metrics_json(
    each: Mapping[Any, Metrics],
    run_id: str,
    parameters: Mapping[int, Parameters] | None = None,
    *,
    element: int | None = None,
) -> dict[str, Any]:
    """Return the rows of a run or of one element as a JSON document.

    The rows of a sweep are by element.
    """
    head = {"kind": "metrics", "run_id": run_id, "metrics": list(_names(each))}
    if parameters is None:
        (metrics,) = each.values()
        return {**head, **_rows_json(metrics), "element": element}
    elements = [
        {"element": index, "parameters": dict(parameters[index]), **_rows_json(metrics)}
        for index, metrics in each.items()
    ]
    return {**head, "elements": elements}


def _rows_json(metrics: Metrics) -> dict[str, Any]:
    rows = [
        {
            **fields_of(row, "rank attempt time_s"),
            "step": whole(row.step),
            "values": {name: json_value(value) for name, value in row.values.items()},
        }
        for row in metrics.rows
    ]
    return {"rows": rows, "unreadable_lines": metrics.unreadable}


def json_value(value: Value) -> Value:
    """Return a value for JSON, which has no NaN and no infinity: these are text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def plot_lines(metrics: Metrics, width: int) -> list[str]:
    """Return a picture of each metric over the steps for a terminal ``width`` columns wide."""
    lines: list[str] = []
    for name in metrics.names:
        curves = list(curves_of(metrics, name).values())
        lines += [*([""] if lines else []), f"{one_line(name)}{' by step' if curves else ''}"]
        lines += braille_plot(curves, width) if curves else ["no values"]
    return lines


def curves_of(metrics: Metrics, name: str) -> dict[int, list[_Point]]:
    """Return the finite numbers of a metric by rank, over the steps.

    Where none has a step, the numbers are over their positions.
    """
    rows = [
        (number, row, row.values[name])
        for number, row in enumerate(metrics.rows)
        if name in row.values
    ]
    has_steps = any(row.step is not None for _, row, _ in rows)
    points: dict[int, list[_Point]] = {}
    for number, row, value in rows:
        at = row.step if has_steps else number
        if at is not None and isinstance(value, float | int) and math.isfinite(value):
            points.setdefault(row.rank, []).append((float(at), float(value)))
    return points


def save_png(metrics: Metrics, path: Path, title: str) -> None:
    """Draw the metrics below each other into a file.

    Raises:
        HpcrunError: there are no values to draw.
        PlanError: matplotlib is not installed, or the file cannot be written.
    """
    if not metrics.names:
        raise HpcrunError("there are no values to draw")
    with paper_style():
        figure = new_figure(PAGE, 0.6 + 2 * len(metrics.names))
        figure.suptitle(one_line(title))
        panels = figure.subplots(len(metrics.names), squeeze=False, sharex=True)[:, 0]
        for axes, name in zip(panels, metrics.names, strict=True):
            curves = curves_of(metrics, name)
            for number, (rank, points) in enumerate(curves.items()):
                if len(curves) > 1:
                    style = style_of(number)
                else:
                    style = {"color": style_of(0)["color"]}
                marked = {} if len(points) < 50 else {"marker": ""}
                axes.plot(*zip(*points, strict=True), **{**style, **marked}, label=f"rank {rank}")
            axes.set_ylabel(one_line(name))
            if 1 < len(metrics.ranks) <= _MOST_NAMED:
                axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        axes.set_xlabel("step")
        save_figure(figure, path)


def braille_plot(
    curves: Sequence[Sequence[_Point]],
    width: int,
    height: int = _HEIGHT,
    *,
    names: Sequence[str] = (),
) -> list[str]:
    """Return lines that show curves, with the limits of both axes beside the curves.

    Args:
        curves: the points of each curve.
        width: the most columns of a line.
        height: the number of lines with curves.
        names: of the curves; each stands to the right of the line on which its curve ends.
    """
    xs = [x for curve in curves for x, _ in curve]
    ys = [y for curve in curves for _, y in curve]
    (left, right), (bottom, top) = (min(xs), max(xs)), (min(ys), max(ys))
    labels = [f"{top:.4g}", f"{bottom:.4g}"]
    margin = max(map(len, labels))
    ends = _ends(curves, names, bottom, top, height)
    columns = max(_LEAST, width - margin - 2 - max(map(len, ends)))
    cells = [[0] * columns for _ in range(height)]
    for curve in curves:
        dots = [
            (_place(x, left, right, 2 * columns), _place(y, bottom, top, 4 * height))
            for x, y in curve
        ]
        for column, up in _joined(dots):
            row = 4 * height - 1 - up
            cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    lines = []
    for number, row_of_cells in enumerate(cells):
        if number == 0:
            label = labels[0]
        elif number == height - 1:
            label = labels[1]
        else:
            label = ""
        drawn = "".join(chr(0x2800 + cell) for cell in row_of_cells) + ends[number]
        lines.append(f"{label:>{margin}} ┤" + drawn.rstrip("\u2800"))
    first = f"{left:.6g}"
    last = f"{right:.6g}"
    gap = columns - len(first) - len(last)
    lines.append(
        " " * (margin + 2) + (first + " " * gap + last if gap > 0 and left != right else first)
    )
    return lines


def _ends(
    curves: Sequence[Sequence[_Point]], names: Sequence[str], bottom: float, top: float, height: int
) -> list[str]:
    """Return for each line the names of the curves that end on it."""
    canvas: list[list[str]] = [[] for _ in range(height)]
    for curve, name in zip(curves, names, strict=False):
        canvas[height - 1 - _place(curve[-1][1], bottom, top, 4 * height) // 4].append(name)
    return [f" {','.join(here)}" if here else "" for here in canvas]


def _joined(dots: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield dots, and those on the straight lines between them."""
    yield from dots[:1]
    for (x, y), (next_x, next_y) in pairwise(dots):
        steps = max(abs(next_x - x), abs(next_y - y))
        for step in range(1, steps + 1):
            yield x + round((next_x - x) * step / steps), y + round((next_y - y) * step / steps)


def _place(value: float, low: float, high: float, dots: int) -> int:
    if high == low:
        return dots // 2
    # halves cannot overflow
    return min(dots - 1, round((value / 2 - low / 2) / (high / 2 - low / 2) * (dots - 1)))
