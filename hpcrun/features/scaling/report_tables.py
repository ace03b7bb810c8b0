"""The table of a series: as cells for every form of a report, and its rows for other programs, summary.csv and .tex."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hpcrun.features.scaling.points import Spread
from hpcrun.features.scaling.sentences import (
    TimeUnit,
    heading,
    hours_name,
    mean_text,
    number_text,
    percent_text,
    range_text,
    time_unit,
    times_text,
)
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.verdict import pareto, verdict
from hpcrun.views.text import csv_text, one_line

_Value = Callable[[Row, Part], Any]


def _spread(mean: str, low: str, high: str, of: Callable[[Row], Spread | None]) -> dict[str, _Value]:
    def end(name: str) -> _Value:
        return lambda row, _: getattr(of(row), name, None)

    return {mean: end("mean"), low: end("low"), high: end("high")}


SUMMARY: dict[str, _Value] = {
    "dataset": lambda _, part: one_line(part.series.dataset),
    "gpus": lambda row, _: row.gpus,
    "nodes": lambda row, _: row.nodes,
    "runs": lambda row, _: row.speedup.n,
    "batch_size": lambda row, _: row.batch_size,
    "steps": lambda row, _: row.steps,
    "time_of": lambda _, part: part.series.time_of,
    **_spread("time_s", "time_low_s", "time_high_s", lambda row: row.time_s),
    "time_derived": lambda row, _: row.time_derived,
    **_spread("samples_per_s", "samples_per_s_low", "samples_per_s_high", lambda row: row.samples_per_s),
    **_spread("speedup", "speedup_low", "speedup_high", lambda row: row.speedup),
    "efficiency": lambda row, part: row.efficiency if part.series.compared else None,
    "gpu_hours": lambda row, _: row.gpu_hours,
    **_spread("accuracy", "accuracy_low", "accuracy_high", lambda row: row.accuracy),
    "data_share": lambda row, _: row.shares.data,
    "sync_share": lambda row, _: row.shares.sync,
    "startup_share": lambda row, _: row.shares.startup,
    "idle_share": lambda row, _: row.shares.idle,
    "pareto": lambda row, part: row in pareto(part.series.rows),
    "verdict": lambda row, part: verdict(row, part.series, part.advice),
    "published_speedup": lambda row, _: row.published,
    "unit": lambda row, _: row.unit,
    "gpu_busy": lambda row, _: row.gpu_busy,
    "cpu_busy": lambda row, _: row.cpu_busy,
}
"""All numbers of a row, under the names that CSV and JSON have: names are only ever added, at the end.

Efficiency and shares are from 0 to 1, ``low`` and ``high`` the extremes of the repeats.
"""


def summaries(part: Part) -> list[dict[str, Any]]:
    """Return the numbers of each row by name; the only size of a series has no speed-up."""
    none = {} if part.series.compared else dict.fromkeys(("speedup", "speedup_low", "speedup_high"))
    return [{**{name: value(row, part) for name, value in SUMMARY.items()}, **none} for row in part.series.rows]


def summary_csv(report: Report) -> str:
    """Return a line for each size of each series; an unknown value is empty, true and false are 1 and 0."""
    rows = (summary for part in report.parts for summary in summaries(part))
    return csv_text(SUMMARY, (map(_short, summary.values()) for summary in rows))


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


# Inside another document \@nodocument is \relax, since \begin{document} sets it.
_TEX_HEAD = r"""% A document of its own, and also tables for \input in another one that has \usepackage{booktabs}.
\expandafter\ifx\csname @nodocument\endcsname\relax\else
  \documentclass{article}
  \usepackage{booktabs}
  \usepackage[margin=2cm]{geometry}
  \def\reportend{\end{document}}
  \begin{document}
\fi
"""
_TEX_TAIL = "\\csname reportend\\endcsname\n"


def summary_tex(report: Report) -> str:
    """Return a booktabs table for each series."""
    tables = "\n".join(_tex_table(part, report) for part in report.parts if part.series.rows)
    return _TEX_HEAD + (tables or "No usable run.\n") + _TEX_TAIL


def _tex_table(part: Part, report: Report) -> str:
    series, headings = part.series, [column.heading for column in table(part)]
    head, *body = (" & ".join(map(tex_text, cells)) + r" \\" for cells in (headings, *rows_of(part)))
    kind = "Weak" if series.weak else "Strong"
    lines = [
        r"\begin{table}[htbp]",
        r"\centering\small",
        rf"\caption{{{kind} scaling: {tex_text(heading(series, report))}.}}",
        rf"\begin{{tabular}}{{{'r' * (len(headings) - 1)}l}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_TEX = {
    **{char: rf"\{char}" for char in "&%#_{}"},
    "$": r"\char36{}",  # \$ needs another font
    "\\": r"\textbackslash{}",
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "×": r"$\times$",
    "–": "--",
}


def tex_text(text: str) -> str:
    """Return text that LaTeX only typesets; letters that pdflatex lacks lose their accents or become ?."""
    return "".join(_TEX.get(char) or _plain_letters(char) for char in text)


def _plain_letters(char: str) -> str:
    plain = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    return "".join(_TEX.get(each, each) for each in plain if each.isprintable()) or "?"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cells."""

    heading: str
    short: str  # the heading in a narrow table
    cells: tuple[str, ...]


def table(part: Part) -> tuple[Column, ...]:
    """Return the columns for which the series has values."""
    series, rows, unit = part.series, part.series.rows, time_unit(part.series)
    compared = rows if series.compared else ()
    rates = [row.samples_per_s if series.basis == "throughput" else None for row in rows]  # in place of the times
    columns = (
        _column(series.unit[0].upper() + series.unit[1:], series.unit.upper(), (str(row.gpus) for row in rows)),
        _column("Nodes", "NODES", (str(row.nodes) for row in rows), plain="1"),
        _column("Runs", "RUNS", (str(row.speedup.n) for row in rows), plain="1"),
        _column("Batch", "BATCH", (str(row.batch_size or "") for row in rows)),
        _column("Batch per GPU", "BATCH/GPU", (_share(row.batch_size, row.gpus) for row in rows)),
        _column("Steps", "STEPS", (str(row.steps or "") for row in rows)),
        _column(f"Time ({unit.name})", f"TIME {unit.name}", (_time(row, unit) for row in rows)),
        _column("Range", "RANGE", (range_text(row.time_s, 1 / unit.seconds) for row in rows)),
        _column("Samples/s", "SAMPLES/S", (mean_text(rate) for rate in rates)),
        _column("Range", "RANGE", (range_text(rate) for rate in rates)),
        _column("Speed-up", "SPEED-UP", (times_text(row.speedup.mean) for row in compared)),
        _column("Published", "PUBL.", map(_published, compared)),
        _column("Efficiency", "EFFIC.", (percent_text(row.efficiency) for row in compared)),
        _column(_hours(series), f"{series.unit[:-1].upper()}-H", (number_text(row.gpu_hours) for row in rows)),
        _column("Accuracy", "ACC.", (f"{row.accuracy.mean:.4g}" if row.accuracy else "" for row in rows)),
        _column("GPUs busy", "GPU", (_busy(row.gpu_busy) for row in rows)),
        _column("CPUs busy", "CPU", (_busy(row.cpu_busy) for row in rows)),
        _column("Verdict", "VERDICT", (verdict(row, series, part.advice) for row in rows)),
    )
    return tuple(column for column in columns if column.cells)


def rows_of(part: Part) -> list[tuple[str, ...]]:
    """Return the cells of a series, row by row."""
    return list(zip(*(column.cells for column in table(part)), strict=True))


def _column(heading: str, short: str, texts: Iterable[str], plain: str = "") -> Column:
    """Return a column, without cells if all of them equal ``plain``."""
    cells = tuple(texts)
    return Column(heading, short, cells if set(cells) - {"", plain} else ())


def _hours(series: Series) -> str:
    name = hours_name(series.unit)
    return name[0].upper() + name[1:]


def _share(batch: int | None, gpus: int) -> str:
    return f"{batch / gpus:g}" if batch else ""


def _busy(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _published(row: Row) -> str:
    """Return the speed-up of a table, if it differs from the one that follows from its times."""
    written = "" if row.published is None else times_text(row.published)
    return "" if written == times_text(row.speedup.mean) else written


def _time(row: Row, unit: TimeUnit) -> str:
    return ("~" if row.time_derived else "") + mean_text(row.time_s, 1 / unit.seconds)
