"""The rows of a report for other programs: summary.csv and summary.tex."""

from __future__ import annotations

import unicodedata
from dataclasses import astuple, dataclass, fields

from hpcrun.actions.studies.report import Report
from hpcrun.scaling.measure import Spread
from hpcrun.scaling.series import Series
from hpcrun.scaling.verdict import pareto, verdict
from hpcrun.views.report.cells import table
from hpcrun.views.report.words import heading
from hpcrun.views.text import csv_text, one_line


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of a row, with the names in CSV and JSON: never change or remove names; add new ones at the end.

    Efficiency and shares are from 0 to 1, ``low`` and ``high`` the extremes of the repeats.
    """

    dataset: str
    gpus: int
    nodes: int
    runs: int
    batch_size: int | None
    steps: int | None
    time_of: str
    time_s: float | None
    time_low_s: float | None
    time_high_s: float | None
    time_derived: bool
    samples_per_s: float | None
    samples_per_s_low: float | None
    samples_per_s_high: float | None
    speedup: float
    speedup_low: float
    speedup_high: float
    efficiency: float
    gpu_hours: float | None
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    data_share: float | None
    sync_share: float | None
    startup_share: float | None
    idle_share: float | None
    pareto: bool
    verdict: str


def summaries(series: Series) -> list[Summary]:
    """Return the numbers of each row."""
    front = set(pareto(series.rows))
    return [
        Summary(
            one_line(series.dataset),
            row.gpus,
            row.nodes,
            row.speedup.n,
            row.batch_size,
            row.steps,
            "run" if series.basis == "run" else "epoch",
            *_ends(row.time_s),
            row.time_derived,
            *_ends(row.samples_per_s),
            row.speedup.mean,
            row.speedup.low,
            row.speedup.high,
            row.efficiency,
            row.gpu_hours,
            *_ends(row.accuracy),
            row.shares.data,
            row.shares.sync,
            row.shares.startup,
            row.shares.idle,
            row in front,
            verdict(row, series),
        )
        for row in series.rows
    ]


def _ends(spread: Spread | None) -> tuple[float | None, float | None, float | None]:
    return (spread.mean, spread.low, spread.high) if spread else (None, None, None)


def summary_csv(report: Report) -> str:
    """Return a line for each size of each series; an unknown value is empty, true and false are 1 and 0."""
    found = (summary for part in report.parts for summary in summaries(part.series))
    return csv_text((field.name for field in fields(Summary)), (map(_short, astuple(summary)) for summary in found))


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
    tables = "\n".join(_tex_table(part.series, report) for part in report.parts if part.series.rows)
    return _TEX_HEAD + (tables or "No usable run.\n") + _TEX_TAIL


def _tex_table(series: Series, report: Report) -> str:
    columns = table(series)
    rows = [[column.heading for column in columns], *zip(*(column.cells for column in columns), strict=True)]
    head, *body = (" & ".join(map(tex_text, cells)) + r" \\" for cells in rows)
    kind = "Weak" if series.weak else "Strong"
    lines = [
        r"\begin{table}[htbp]",
        r"\centering\small",
        rf"\caption{{{kind} scaling: {tex_text(heading(series, report))}.}}",
        rf"\begin{{tabular}}{{{'r' * (len(columns) - 1)}l}}",
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
