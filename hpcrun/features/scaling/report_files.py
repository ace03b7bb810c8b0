"""A report in every form.

JSON, CSV and LaTeX are for other programs; text in 80 columns, Markdown and one HTML file are for
people.
"""

from __future__ import annotations

import textwrap
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import starmap
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hpcrun.features.scaling.figures import draw_figures
from hpcrun.features.scaling.points import Spread
from hpcrun.features.scaling.sentences import (
    Line,
    answer_lines,
    caption,
    heading,
    hours_name,
    mean_text,
    number_text,
    part_lines,
    percent_text,
    range_text,
    report_lines,
    time_unit,
    times_text,
    whole_percent,
)
from hpcrun.features.scaling.series import Row
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.worth_its_gpus import Advice, pareto, verdict
from hpcrun.views.text import csv_text, fields_of, labelled, one_line

WIDTH = 80
_PLAIN = {"NODES": "1", "RUNS": "1"}  # a column without other values is not shown
_LABEL = 21
# If a line is too narrow, these columns are dropped in this order; Markdown, CSV and HTML have
# them.
_DROPPED = ("BATCH/GPU", "CPU", "GPU", "STEPS", "BATCH", "ACC.", "SAMPLES/S", "GPU-H")


_Value = Callable[[Row, Part], Any]


def _spread(
    mean: str, low: str, high: str, of: Callable[[Row], Spread | None]
) -> dict[str, _Value]:
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
    **_spread(
        "samples_per_s", "samples_per_s_low", "samples_per_s_high", lambda row: row.samples_per_s
    ),
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
"""All numbers of a row, under the names that CSV and JSON have: names are only ever added, at the
end.

Efficiency and shares are from 0 to 1, ``low`` and ``high`` the extremes of the repeats.
"""


def summaries(part: Part) -> list[dict[str, Any]]:
    """Return the numbers of each row by name; the only size of a series has no speed-up."""
    if part.series.compared:
        none = {}
    else:
        none = dict.fromkeys(("speedup", "speedup_low", "speedup_high"))
    return [
        {**{name: value(row, part) for name, value in SUMMARY.items()}, **none}
        for row in part.series.rows
    ]


def summary_csv(report: Report) -> str:
    """Return a CSV line for each size of each series.

    An unknown value is empty, and true and false are 1 and 0.
    """
    rows = (summary.values() for part in report.parts for summary in summaries(part))
    return csv_text(
        SUMMARY,
        ([f"{each:.6g}" if isinstance(each, float) else each for each in row] for row in rows),
    )


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
    """Return text that LaTeX only typesets.

    Letters that pdflatex lacks lose their accents or become ``?``.
    """
    return "".join(_TEX.get(char) or _plain_letters(char) for char in text)


def _plain_letters(char: str) -> str:
    plain = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    return "".join(_TEX.get(each, each) for each in plain if each.isprintable()) or "?"


class Column(NamedTuple):
    """A heading and its cells."""

    heading: str
    short: str  # the heading in a narrow table
    cells: tuple[str, ...]


def table(part: Part) -> tuple[Column, ...]:
    """Return the columns for which the series has values."""
    series, unit, hours = part.series, time_unit(part.series), hours_name(part.series.unit)
    by_rate = series.basis == "throughput"  # samples per second in place of the times
    columns: list[tuple[str, str, Callable[[Row], str]]] = [
        (series.unit[0].upper() + series.unit[1:], series.unit.upper(), lambda row: str(row.gpus)),
        ("Nodes", "NODES", lambda row: str(row.nodes)),
        ("Runs", "RUNS", lambda row: str(row.speedup.n)),
        ("Batch", "BATCH", lambda row: str(row.batch_size or "")),
        (
            "Batch per GPU",
            "BATCH/GPU",
            lambda row: f"{row.batch_size / row.gpus:g}" if row.batch_size else "",
        ),
        ("Steps", "STEPS", lambda row: str(row.steps or "")),
        (
            f"Time ({unit.name})",
            f"TIME {unit.name}",
            lambda row: ("~" if row.time_derived else "") + mean_text(row.time_s, 1 / unit.seconds),
        ),
        ("Range", "RANGE", lambda row: range_text(row.time_s, 1 / unit.seconds)),
        ("Samples/s", "SAMPLES/S", lambda row: mean_text(row.samples_per_s if by_rate else None)),
        ("Range", "RANGE", lambda row: range_text(row.samples_per_s if by_rate else None)),
        (
            "Speed-up",
            "SPEED-UP",
            lambda row: times_text(row.speedup.mean) if series.compared else "",
        ),
        ("Published", "PUBL.", lambda row: _published(row) if series.compared else ""),
        (
            "Efficiency",
            "EFFIC.",
            lambda row: percent_text(row.efficiency) if series.compared else "",
        ),
        (
            hours[0].upper() + hours[1:],
            f"{series.unit[:-1].upper()}-H",
            lambda row: number_text(row.gpu_hours),
        ),
        ("Accuracy", "ACC.", lambda row: f"{row.accuracy.mean:.4g}" if row.accuracy else ""),
        (
            "GPUs busy",
            "GPU",
            lambda row: "" if row.gpu_busy is None else whole_percent(row.gpu_busy),
        ),
        (
            "CPUs busy",
            "CPU",
            lambda row: "" if row.cpu_busy is None else whole_percent(row.cpu_busy),
        ),
        ("Verdict", "VERDICT", lambda row: verdict(row, series, part.advice)),
    ]
    made = (
        Column(heading, short, tuple(map(cell, series.rows))) for heading, short, cell in columns
    )
    return tuple(column for column in made if set(column.cells) - {"", _PLAIN.get(column.short)})


def rows_of(part: Part) -> list[tuple[str, ...]]:
    """Return the cells of a series, row by row."""
    return list(zip(*(column.cells for column in table(part)), strict=True))


def _published(row: Row) -> str:
    """Return the speed-up of a table, if it differs from the one that follows from its times."""
    written = "" if row.published is None else times_text(row.published)
    return "" if written == times_text(row.speedup.mean) else written


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as a JSON document; shares, efficiencies and fractions are from 0 to 1."""
    return {
        "kind": "scaling-report",
        **fields_of(report.options, "name weak warmup"),
        "finished": not report.unfinished,
        "answers": [line.text for line in answer_lines(report) if not line.label],
        "series": [_part_json(part) for part in report.parts],
        "batches": list(starmap(_change_json, report.changes)),
        "contradictions": [asdict(each) for each in report.contradictions],
        "remarks": list(report.remarks),
    }


def _part_json(part: Part) -> dict[str, Any]:
    series, diagnosis = part.series, part.diagnosis
    return {
        **fields_of(series, "name dataset basis"),
        "sources": list(series.sources),
        "rows": summaries(part),
        "outlook": asdict(part.outlook) if part.outlook else None,
        "advice": _advice_json(part.advice),
        "doubts": [asdict(doubt) for doubt in part.doubts],
        "measure_again": part.again or None,
        "causes": [asdict(cause) for cause in diagnosis.causes] if diagnosis else [],
        "causes_of_gpus": diagnosis.row.gpus if diagnosis else None,
        "not_measured": list(diagnosis.unknown) if diagnosis else [],
        "left_out": [
            {**fields_of(each, "gpus nodes repeat run"), "problem": why}
            for each, why in series.left_out
        ],
        "remarks": list(series.remarks),
    }


def _advice_json(advice: Advice | None) -> dict[str, Any] | None:
    if advice is None:
        return None
    chosen = {
        "fastest": advice.fastest,
        "fewest_gpu_hours": advice.cheapest,
        "best_value": advice.value,
    }
    return {
        **{name: fields_of(row, "gpus nodes") for name, row in chosen.items()},
        "min_efficiency": advice.min_efficiency,
        "added_gpus_efficiency": advice.step.added if advice.step else None,
        "next_added_gpus_efficiency": advice.next_step.added if advice.next_step else None,
    }


def _change_json(dataset: str, before: Row, after: Row) -> dict[str, Any]:
    sides = {
        name: {**fields_of(row, "batch_size steps"), "time_s": row.time_s and row.time_s.mean}
        for name, row in (("before", before), ("after", after))
    }
    return {"dataset": dataset, **fields_of(after, "gpus nodes"), **sides}


def report_files(report: Report) -> tuple[dict[str, bytes], list[str]]:
    """Return every file of a report by name, and the reasons why some figures are missing."""
    drawn, missing = draw_figures(report)
    pictures = {name: content for name, content in drawn.items() if name.endswith(".png")}
    texts = {
        "summary.csv": summary_csv(report),
        "summary.tex": summary_tex(report),
        "report.txt": "\n".join(report_text(report, missing)) + "\n",
        "report.md": report_markdown(report, missing=missing, figures=pictures),
        "report.html": report_html(report, figures=pictures, missing=missing),
    }
    return drawn | {
        name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()
    }, missing


def _notes(report: Report, missing: Sequence[str]) -> list[Line]:
    """Return the sentences about all series together, and the reasons why figures are missing."""
    return [*report_lines(report), *(Line("figures", reason) for reason in missing)]


def report_text(report: Report, missing: Sequence[str] = ()) -> list[str]:
    """Return the report as lines. ``missing``: why figures were not drawn."""
    lines = [text for line in answer_lines(report) for text in _wrapped(line)]
    lines += [""] if lines else []
    for part in report.parts:
        lines += textwrap.wrap(f"{heading(part.series, report)}: {caption(part.series)}", WIDTH)
        lines += _aligned(table(part)) if part.series.rows else []
        sentences = [text for line in part_lines(part) for text in _wrapped(line)]
        lines += ["", *sentences, ""] if sentences else [""]
    rest = _notes(report, missing)
    lines += [text for line in rest for text in _wrapped(line)]
    return lines if rest else lines[:-1]


def _aligned(columns: Sequence[Column]) -> list[str]:
    texts = [(column.short, *column.cells) for column in columns]
    for name in _DROPPED:
        if sum(max(map(len, cells)) + 1 for cells in texts) - 1 <= WIDTH:
            break
        texts = [cells for cells in texts if cells[0] != name]
    widths = [max(map(len, cells)) for cells in texts]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= WIDTH else " "
    padded = (
        [cell.rjust(width) for cell in cells] for cells, width in zip(texts, widths, strict=True)
    )
    return [gap.join(row) for row in zip(*padded, strict=True)]


def _wrapped(line: Line) -> list[str]:
    # a number and its % stay on one line
    text = line.text.replace(" %", "\u00a0%")
    if line.label:
        lines = labelled(line.label, text, _LABEL, WIDTH)
    else:
        lines = textwrap.wrap(text, WIDTH)
    texts = [text.replace("\u00a0", " ") for text in lines]
    return [*texts, *([f"{' ' * _LABEL}{line.command}"] if line.command else [])]


def report_markdown(report: Report, *, missing: Sequence[str], figures: Mapping[str, bytes]) -> str:
    """Return the report as Markdown, with the figures beside it."""
    return _rendered("report.md.j2", report, missing, figures, _plain)


def summary_tex(report: Report) -> str:
    """Return a booktabs table for each series."""
    return _rendered("summary.tex.j2", report, escape=tex_text)


def report_html(report: Report, *, missing: Sequence[str], figures: Mapping[str, bytes]) -> str:
    """Return the page, which contains the figures, by name as PNG, and loads or runs nothing."""
    return _rendered("report.html.j2", report, missing, figures)


def _rendered(
    template: str,
    report: Report,
    missing: Sequence[str] = (),
    figures: Mapping[str, bytes] = MappingProxyType({}),
    escape: Callable[[str], str] | None = None,
) -> str:
    """Return the report by a template, with all its values escaped.

    The values are escaped for HTML unless ``escape`` is given.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def finalize(value: object) -> object:
        if escape and not isinstance(value, Markup):
            return escape(str(value))
        return value

    environment = Environment(
        autoescape=escape is None,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize,
    )
    source = environment.from_string(Path(__file__).with_name(template).read_text("utf-8"))
    return source.render(
        title=one_line(report.options.name),
        answers=answer_lines(report),
        sections=[
            {
                "kind": "Weak" if part.series.weak else "Strong",
                "heading": heading(part.series, report),
                "caption": caption(part.series),
                "headings": [column.heading for column in table(part)],
                "rows": rows_of(part),
                "lines": part_lines(part),
            }
            for part in report.parts
        ],
        notes=_notes(report, missing),
        # larger than on paper, and sharp on every screen
        images=[
            (name, int.from_bytes(content[16:20], "big") * 96 // 220, b64encode(content).decode())
            for name, content in figures.items()
        ],
    )


def _plain(text: str) -> str:
    """Return text that has no meaning for Markdown."""
    escaped = "".join(f"\\{char}" if char in "\\`*_{}[]<>|#!" else char for char in text)
    return " ".join(escaped.split())
