"""The table of a series as cells, for every form that a report has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hpcrun.scaling.series import Row, Series
from hpcrun.scaling.verdict import verdict
from hpcrun.views.report.numbers import (
    TimeUnit,
    mean_text,
    number_text,
    percent_text,
    range_text,
    time_unit,
    times_text,
)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cells.

    Attributes:
        short: the heading in a narrow table.
    """

    heading: str
    short: str
    cells: tuple[str, ...]


def table(series: Series) -> tuple[Column, ...]:
    """Return the columns for which the series has values."""
    rows, unit = series.rows, time_unit(series)
    rates = [row.samples_per_s if series.basis == "throughput" else None for row in rows]  # in place of the times
    columns = (
        _column("GPUs", "GPUS", (str(row.gpus) for row in rows)),
        _column("Nodes", "NODES", (str(row.nodes) for row in rows), plain="1"),
        _column("Runs", "N", (str(row.speedup.n) for row in rows), plain="1"),
        _column("Batch", "BATCH", (str(row.batch_size or "") for row in rows)),
        _column("Steps", "STEPS", (str(row.steps or "") for row in rows)),
        _column(f"Time ({unit.name})", f"TIME {unit.name}", (_time(row, unit) for row in rows)),
        _column("Range", "RANGE", (range_text(row.time_s, 1 / unit.seconds) for row in rows)),
        _column("Samples/s", "SAMPLES/S", (mean_text(rate) for rate in rates)),
        _column("Range", "RANGE", (range_text(rate) for rate in rates)),
        _column("Speed-up", "SPEED-UP", (times_text(row.speedup.mean) for row in rows)),
        _column("Efficiency", "EFFIC.", (percent_text(row.efficiency) for row in rows)),
        _column("GPU-hours", "GPU-H", (number_text(row.gpu_hours) for row in rows)),
        _column("Accuracy", "ACC.", (f"{row.accuracy.mean:.4g}" if row.accuracy else "" for row in rows)),
        _column("Verdict", "VERDICT", (verdict(row, series) for row in rows)),
    )
    return tuple(column for column in columns if column.cells)


def _column(heading: str, short: str, texts: Iterable[str], plain: str = "") -> Column:
    """Return a column, without cells if all of them equal ``plain``."""
    cells = tuple(texts)
    return Column(heading, short, cells if set(cells) - {"", plain} else ())


def _time(row: Row, unit: TimeUnit) -> str:
    return ("~" if row.time_derived else "") + mean_text(row.time_s, 1 / unit.seconds)
