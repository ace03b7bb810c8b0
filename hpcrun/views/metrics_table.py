"""Metrics as a table, CSV, JSON, a picture, or curves in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.errors import HpcrunError
from hpcrun.job.request.parameters import Parameters, parameters_text
from hpcrun.runs.metric_files import MetricsRow, Value
from hpcrun.views.figure import PAGE, new_figure, paper_style, save_figure, style_of
from hpcrun.views.text import csv_text, fields_of, one_line, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

_Point = tuple[float, float]
_HEIGHT = 10
_MOST_NAMED = 16
_MOST_MARKED = 49
"""A curve of more points has no markers."""
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
    several = [name for name in ("rank", "attempt") if _has_several(each, name)]
    numbers = [*map(str.upper, several), "STEP", *map(one_line, names), "TIME"]
    no_row = ["-"] * len(numbers)
    rows = []
    for index, metrics in each.items():
        element = []
        if parameters:
            element = [str(index), parameters_text(parameters[index])]
        lines = [_cells(row, several, names) for row in metrics.rows]
        rows += [[*element, *cells] for cells in lines or [no_row]]
    front = ["ELEMENT", "PARAMETERS"] if parameters else []
    return text_table([*front, *numbers], rows, right=("ELEMENT", *numbers))


def _has_several(each: Mapping[Any, Metrics], name: str) -> bool:
    """Return whether the rows of a run, or of an element, differ in their rank or attempt."""
    for metrics in each.values():
        if len({getattr(row, name) for row in metrics.rows}) > 1:
            return True
    return False


def _cells(row: MetricsRow, several: Sequence[str], names: Sequence[str]) -> list[str]:
    values: list[Value | None] = []
    if "rank" in several:
        values.append(row.rank)
    if "attempt" in several:
        values.append(row.attempt + 1)  # people count from 1
    values.append(row.step)
    values += [row.values.get(name) for name in names]
    return [*map(value_text, values), _clock(row.time_s)]


def _names(each: Mapping[Any, Metrics]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for metrics in each.values():
        names |= dict.fromkeys(metrics.names)
    return tuple(names)


def value_text(value: Value | None) -> str:
    """Return a readable number: six digits for a fraction, all digits for an integer."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < 1e9
        if not is_whole:
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
    front = [] if None in each else ["element"]
    headings = [*front, "rank", "attempt", "step", "time", *names]
    return csv_text(headings, _csv_rows(each, names))


def _csv_rows(
    each: Mapping[Any, Metrics], names: Sequence[str]
) -> Iterator[list[int | Value | None]]:
    is_sweep = None not in each
    for index, metrics in each.items():
        front = [index] if is_sweep else []
        for row in metrics.rows:
            values = [whole(row.values.get(name)) for name in names]
            yield [*front, row.rank, row.attempt, whole(row.step), whole(row.time_s), *values]


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
    elements = []
    for index, metrics in each.items():
        front = {"element": index, "parameters": dict(parameters[index])}
        elements.append({**front, **_rows_json(metrics)})
    return {**head, "elements": elements}


def _rows_json(metrics: Metrics) -> dict[str, Any]:
    rows = []
    for row in metrics.rows:
        place = {**fields_of(row, "rank attempt time_s"), "step": whole(row.step)}
        values = {name: json_value(value) for name, value in row.values.items()}
        rows.append({**place, "values": values})
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
        if lines:
            lines.append("")
        curves = list(curves_of(metrics, name).values())
        if curves:
            lines.append(f"{one_line(name)} by step")
            lines += braille_plot(curves, width)
        else:
            lines += [one_line(name), "no values"]
    return lines


def curves_of(metrics: Metrics, name: str) -> dict[int, list[_Point]]:
    """Return the finite numbers of a metric by rank, over the steps.

    Where none has a step, or the steps begin again, the numbers are over their positions.
    """
    rows = [(number, row) for number, row in enumerate(metrics.rows) if name in row.values]
    has_steps = any(row.step is not None for _, row in rows) and not _begin_again(metrics.rows)
    points: dict[int, list[_Point]] = {}
    for number, row in rows:
        at = row.step if has_steps else number
        value = row.values[name]
        if at is not None and isinstance(value, float | int) and math.isfinite(value):
            points.setdefault(row.rank, []).append((float(at), float(value)))
    return points


def _begin_again(rows: Sequence[MetricsRow]) -> bool:
    """Whether the steps of a rank begin again with an epoch."""
    stated = [row for row in rows if row.step is not None]
    for before, row in pairwise(stated):
        is_later = row.rank == before.rank and row.epoch != before.epoch
        if is_later and (row.step or 0) <= (before.step or 0):
            return True
    return False


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
            _draw_curves(axes, curves_of(metrics, name))
            axes.set_ylabel(one_line(name))
            if 1 < len(metrics.ranks) <= _MOST_NAMED:
                axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        axes.set_xlabel("step")
        save_figure(figure, path)


def _draw_curves(axes: Axes, curves: Mapping[int, Sequence[_Point]]) -> None:
    """Draw the curve of each rank; one alone is a plain line."""
    for number, (rank, points) in enumerate(curves.items()):
        style = style_of(number)
        if len(curves) == 1:
            style = {"color": style["color"]}
        if len(points) > _MOST_MARKED:
            style["marker"] = ""
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, **style, label=f"rank {rank}")


@dataclass(frozen=True, slots=True)
class _DotAxis:
    """The range of the numbers on an axis, and how many dots the axis has."""

    low: float
    high: float
    dots: int

    def place(self, number: float) -> int:
        """Return the dot of a number, from 0."""
        if self.high == self.low:
            return self.dots // 2
        # halves cannot overflow
        share = (number / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return min(self.dots - 1, round(share * (self.dots - 1)))


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
    points = list(chain.from_iterable(curves))
    xs = [x for x, _ in points]
    ys = [y for _, y in points]
    upward = _DotAxis(min(ys), max(ys), 4 * height)
    labels = [f"{upward.high:.4g}", *[""] * (height - 2), f"{upward.low:.4g}"]
    margin = max(map(len, labels))
    ends = _ends(curves, names, upward, height)
    columns = max(_LEAST, width - margin - 2 - max(map(len, ends)))
    across = _DotAxis(min(xs), max(xs), 2 * columns)
    cells = [[0] * columns for _ in range(height)]
    for curve in curves:
        dots = [(across.place(x), upward.place(y)) for x, y in curve]
        for column, up in _joined(dots):
            row = 4 * height - 1 - up
            cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    lines = []
    for number, row_of_cells in enumerate(cells):
        drawn = "".join(chr(0x2800 + cell) for cell in row_of_cells) + ends[number]
        lines.append(f"{labels[number]:>{margin}} ┤" + drawn.rstrip("\u2800"))
    lines.append(" " * (margin + 2) + _limits_text(across, columns))
    return lines


def _limits_text(axis: _DotAxis, columns: int) -> str:
    """Return the limits of an axis at its two ends; only the first where both have no room."""
    first = f"{axis.low:.6g}"
    last = f"{axis.high:.6g}"
    gap = columns - len(first) - len(last)
    if gap <= 0 or axis.low == axis.high:
        return first
    return first + " " * gap + last


def _ends(
    curves: Sequence[Sequence[_Point]], names: Sequence[str], upward: _DotAxis, height: int
) -> list[str]:
    """Return for each line the names of the curves that end on it."""
    on_lines: list[list[str]] = [[] for _ in range(height)]
    for curve, name in zip(curves, names, strict=False):
        _, last = curve[-1]
        line = height - 1 - upward.place(last) // 4
        on_lines[line].append(name)
    return [f" {','.join(names_here)}" if names_here else "" for names_here in on_lines]


def _joined(dots: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield dots, and those on the straight lines between them."""
    yield from dots[:1]
    for (x, y), (next_x, next_y) in pairwise(dots):
        steps = max(abs(next_x - x), abs(next_y - y))
        for step in range(1, steps + 1):
            yield x + round((next_x - x) * step / steps), y + round((next_y - y) * step / steps)
