"""A report in every form.

JSON, CSV and LaTeX are for other programs; text in 80 columns, Markdown and one HTML file are for
people.
"""

from __future__ import annotations

import textwrap
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

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
from hpcrun.features.scaling.series import BatchChange, Row, Series
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.worth_its_gpus import Advice, pareto, verdict
from hpcrun.views.text import csv_text, fields_of, labelled, one_line

WIDTH = 80
_PLAIN = {"NODES": "1", "RUNS": "1"}  # a column without other values is not shown
_LABEL = 21
_MARKDOWN = "\\`*_{}[]<>|#!"  # characters with a meaning
# If a line is too narrow, these columns are dropped in this order; Markdown, CSV and HTML have
# them.
_DROPPED = ("BATCH/GPU", "CPU", "GPU", "STEPS", "BATCH", "ACC.", "/S", "GPU-H")


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of a row, under the names that CSV and JSON have.

    Names are only ever added, at the end. Efficiency and shares are from 0 to 1, ``low`` and
    ``high`` the extremes of the repeats.
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
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    efficiency: float | None
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
    published_speedup: float | None
    unit: str
    gpu_busy: float | None
    cpu_busy: float | None


@dataclass(frozen=True, slots=True)
class _Ends:
    """A spread with its ends, or three missing numbers."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None


def _ends(spread: Spread | None) -> _Ends:
    if spread is None:
        return _Ends()
    return _Ends(spread.mean, spread.low, spread.high)


def _summary(row: Row, part: Part, front: Sequence[Row]) -> Summary:
    """Return the numbers of a row; ``front`` are the rows that no other row beats."""
    series = part.series
    time = _ends(row.time_s)
    rate = _ends(row.samples_per_s)
    accuracy = _ends(row.accuracy)
    speedup = _Ends()
    efficiency = None
    if series.compared:
        speedup = _ends(row.speedup)
        efficiency = row.efficiency
    return Summary(
        dataset=one_line(series.dataset),
        gpus=row.gpus,
        nodes=row.nodes,
        runs=row.speedup.n,
        batch_size=row.batch_size,
        steps=row.steps,
        time_of=series.time_of,
        time_s=time.mean,
        time_low_s=time.low,
        time_high_s=time.high,
        time_derived=row.time_derived,
        samples_per_s=rate.mean,
        samples_per_s_low=rate.low,
        samples_per_s_high=rate.high,
        speedup=speedup.mean,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        efficiency=efficiency,
        gpu_hours=row.gpu_hours,
        accuracy=accuracy.mean,
        accuracy_low=accuracy.low,
        accuracy_high=accuracy.high,
        data_share=row.shares.data,
        sync_share=row.shares.sync,
        startup_share=row.shares.startup,
        idle_share=row.shares.idle,
        pareto=row in front,
        verdict=verdict(row, series, part.advice),
        published_speedup=row.published,
        unit=row.unit,
        gpu_busy=row.gpu_busy,
        cpu_busy=row.cpu_busy,
    )


def summaries(part: Part) -> list[dict[str, Any]]:
    """Return the numbers of each row by name; the only size of a series has no speed-up."""
    front = pareto(part.series.rows)
    return [asdict(_summary(row, part, front)) for row in part.series.rows]


def summary_csv(report: Report) -> str:
    """Return a CSV line for each size of each series.

    An unknown value is empty, and true and false are 1 and 0.
    """
    names = [field.name for field in fields(Summary)]
    rows = []
    for part in report.parts:
        for summary in summaries(part):
            rows.append([_csv_number(value) for value in summary.values()])
    return csv_text(names, rows)


def _csv_number(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


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
    letters = [_TEX.get(letter, letter) for letter in plain if letter.isprintable()]
    return "".join(letters) or "?"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cells."""

    heading: str
    short: str  # the heading in a narrow table
    cells: list[str]

    @property
    def tells(self) -> bool:
        """Whether a cell has another value than none or the usual one."""
        return bool({*self.cells} - {"", _PLAIN.get(self.short)})


def table(part: Part) -> tuple[Column, ...]:
    """Return the columns for which the series has values."""
    series = part.series
    rows = series.rows
    columns = _size_columns(series) + _time_columns(series)
    if series.basis == "throughput":  # the rates in place of the times
        rates = [row.samples_per_s for row in rows]
        title = f"{series.rate_of.capitalize()}/s"
        columns.append(Column(title, title.upper(), [mean_text(rate) for rate in rates]))
        columns.append(Column("Range", "RANGE", [range_text(rate) for rate in rates]))
    if series.compared:
        columns += _speedup_columns(rows)
    verdicts: list[str] = [verdict(row, series, part.advice) for row in rows]
    columns += _use_columns(series)
    columns.append(Column("Verdict", "VERDICT", verdicts))
    return tuple(column for column in columns if column.tells)


def _size_columns(series: Series) -> list[Column]:
    """Return what was run."""
    rows = series.rows
    unit = series.unit
    return [
        Column(_capital(unit), unit.upper(), [str(row.gpus) for row in rows]),
        Column("Nodes", "NODES", [str(row.nodes) for row in rows]),
        Column("Runs", "RUNS", [str(row.speedup.n) for row in rows]),
        Column("Batch", "BATCH", [str(row.batch_size or "") for row in rows]),
        Column("Batch per GPU", "BATCH/GPU", [_batch_per_gpu(row) for row in rows]),
        Column("Steps", "STEPS", [str(row.steps or "") for row in rows]),
    ]


def _speedup_columns(rows: Sequence[Row]) -> list[Column]:
    """Return how the sizes compare with the smallest."""
    return [
        Column("Speed-up", "SPEED-UP", [times_text(row.speedup.mean) for row in rows]),
        Column("Published", "PUBL.", [_published(row) for row in rows]),
        Column("Efficiency", "EFFIC.", [percent_text(row.efficiency) for row in rows]),
    ]


def _use_columns(series: Series) -> list[Column]:
    """Return what the sizes cost, reached and kept busy."""
    rows = series.rows
    hours = _capital(hours_name(series.unit))
    short_hours = f"{series.unit[:-1].upper()}-H"
    return [
        Column(hours, short_hours, [number_text(row.gpu_hours) for row in rows]),
        Column("Accuracy", "ACC.", [_accuracy_text(row) for row in rows]),
        Column("GPUs busy", "GPU", [_busy_text(row.gpu_busy) for row in rows]),
        Column("CPUs busy", "CPU", [_busy_text(row.cpu_busy) for row in rows]),
    ]


def _time_columns(series: Series) -> list[Column]:
    """Return the times and their ranges; a derived time has a tilde."""
    unit = time_unit(series)
    factor = 1 / unit.seconds
    times = []
    ranges = []
    for row in series.rows:
        time = mean_text(row.time_s, factor)
        times.append(f"~{time}" if row.time_derived else time)
        ranges.append(range_text(row.time_s, factor))
    return [
        Column(f"Time ({unit.name})", f"TIME {unit.name}", times),
        Column("Range", "RANGE", ranges),
    ]


def _capital(name: str) -> str:
    """Return a name with a capital: ``Ranks``."""
    return name[0].upper() + name[1:]


def _batch_per_gpu(row: Row) -> str:
    return f"{row.batch_size / row.gpus:g}" if row.batch_size else ""


def _accuracy_text(row: Row) -> str:
    return f"{row.accuracy.mean:.4g}" if row.accuracy else ""


def _busy_text(share: float | None) -> str:
    return "" if share is None else whole_percent(share)


def rows_of(part: Part) -> list[tuple[str, ...]]:
    """Return the cells of a series, row by row."""
    cells = [column.cells for column in table(part)]
    return list(zip(*cells, strict=True))


def _published(row: Row) -> str:
    """Return the speed-up of a table, if it differs from the one that follows from its times."""
    if row.published is None:
        return ""
    published = times_text(row.published)
    return "" if published == times_text(row.speedup.mean) else published


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as a JSON document; shares, efficiencies and fractions are from 0 to 1."""
    return {
        "kind": "scaling-report",
        **fields_of(report.options, "name weak warmup"),
        "finished": not report.unfinished,
        "answers": [line.text for line in answer_lines(report) if not line.label],
        "series": [_part_json(part) for part in report.parts],
        "batches": [_change_json(change) for change in report.changes],
        "contradictions": [asdict(each) for each in report.contradictions],
        "remarks": list(report.remarks),
    }


def _part_json(part: Part) -> dict[str, Any]:
    series = part.series
    diagnosis = part.diagnosis
    causes: list[dict[str, Any]] = []
    causes_of_gpus = None
    not_measured: list[str] = []
    if diagnosis:
        causes = [asdict(cause) for cause in diagnosis.causes]
        causes_of_gpus = diagnosis.row.gpus
        not_measured = list(diagnosis.unknown)
    left_out = []
    for point, problem in series.left_out:
        left_out.append({**fields_of(point, "gpus nodes repeat run"), "problem": problem})
    return {
        **fields_of(series, "name dataset basis"),
        "sources": list(series.sources),
        "rows": summaries(part),
        "outlook": asdict(part.outlook) if part.outlook else None,
        "advice": _advice_json(part.advice),
        "doubts": [asdict(doubt) for doubt in part.doubts],
        "measure_again": part.again or None,
        "causes": causes,
        "causes_of_gpus": causes_of_gpus,
        "not_measured": not_measured,
        "left_out": left_out,
        "remarks": list(series.remarks),
    }


def _advice_json(advice: Advice | None) -> dict[str, Any] | None:
    if advice is None:
        return None
    added = advice.step.added if advice.step else None
    next_added = advice.next_step.added if advice.next_step else None
    return {
        "fastest": fields_of(advice.fastest, "gpus nodes"),
        "fewest_gpu_hours": fields_of(advice.cheapest, "gpus nodes"),
        "best_value": fields_of(advice.value, "gpus nodes"),
        "min_efficiency": advice.min_efficiency,
        "added_gpus_efficiency": added,
        "next_added_gpus_efficiency": next_added,
    }


def _change_json(change: BatchChange) -> dict[str, Any]:
    return {
        "dataset": change.dataset,
        **fields_of(change.after, "gpus nodes"),
        "before": _batch_json(change.before),
        "after": _batch_json(change.after),
    }


def _batch_json(row: Row) -> dict[str, Any]:
    time_s = row.time_s.mean if row.time_s else None
    return {**fields_of(row, "batch_size steps"), "time_s": time_s}


def report_files(report: Report) -> tuple[dict[str, bytes], list[str]]:
    """Return every file of a report by name, and the reasons why some figures are missing."""
    files, missing = draw_figures(report)
    pictures = {name: content for name, content in files.items() if name.endswith(".png")}
    texts = {
        "summary.csv": summary_csv(report),
        "summary.tex": summary_tex(report),
        "report.txt": "\n".join(report_text(report, missing)) + "\n",
        "report.md": report_markdown(report, missing=missing, figures=pictures),
        "report.html": report_html(report, figures=pictures, missing=missing),
    }
    for name, text in texts.items():
        files[name] = text.encode("utf-8", "backslashreplace")
    return files, missing


def _notes(report: Report, missing: Sequence[str]) -> list[Line]:
    """Return the sentences about all series together, and the reasons why figures are missing."""
    return report_lines(report) + [Line("figures", reason) for reason in missing]


def report_text(report: Report, missing: Sequence[str] = ()) -> list[str]:
    """Return the report as lines. ``missing``: why figures were not drawn."""
    lines = _all_wrapped(answer_lines(report))
    if lines:
        lines.append("")
    for part in report.parts:
        lines += textwrap.wrap(f"{heading(part.series, report)}: {caption(part.series)}", WIDTH)
        if part.series.rows:
            lines += _aligned(table(part))
        sentences = _all_wrapped(part_lines(part))
        if sentences:
            lines += ["", *sentences]
        lines.append("")
    notes = _notes(report, missing)
    if not notes:
        return lines[:-1]
    return lines + _all_wrapped(notes)


def _aligned(columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table that is no wider than the text."""
    texts = [[column.short, *column.cells] for column in columns]
    for name in _DROPPED:
        if _width_of(texts, gap=1) <= WIDTH:
            break
        texts = [cells for cells in texts if _dropped_name(cells[0]) != name]
    gap = "  " if _width_of(texts, gap=2) <= WIDTH else " "
    padded = []
    for cells in texts:
        width = max(map(len, cells))
        padded.append([cell.rjust(width) for cell in cells])
    return [gap.join(row) for row in zip(*padded, strict=True)]


def _dropped_name(heading: str) -> str:
    """Return the name of a column in _DROPPED: that of a rate, whatever it counts, is ``/S``."""
    return "/S" if heading.endswith("/S") else heading


def _width_of(columns: Sequence[Sequence[str]], gap: int) -> int:
    """Return the width of a table with ``gap`` spaces between its columns."""
    widths = [max(map(len, cells)) for cells in columns]
    return sum(widths) + gap * (len(widths) - 1)


def _all_wrapped(lines: Iterable[Line]) -> list[str]:
    texts = []
    for line in lines:
        texts += _wrapped(line)
    return texts


def _wrapped(line: Line) -> list[str]:
    # a number and its % stay on one line
    text = line.text.replace(" %", "\u00a0%")
    if line.label:
        lines = labelled(line.label, text, _LABEL, WIDTH)
    else:
        lines = textwrap.wrap(text, WIDTH)
    texts = [text.replace("\u00a0", " ") for text in lines]
    if line.command:
        texts.append(f"{' ' * _LABEL}{line.command}")
    return texts


@dataclass(frozen=True, slots=True)
class _Image:
    """A figure on a page."""

    name: str
    width: int
    data: str  # PNG in base64


def _image(name: str, content: bytes) -> _Image:
    pixels = int.from_bytes(content[16:20], "big")
    # larger than on paper, and sharp on every screen
    return _Image(name, pixels * 96 // 220, b64encode(content).decode())


def _section(part: Part, report: Report) -> dict[str, Any]:
    """Return what a template shows of one series."""
    return {
        "kind": "Weak" if part.series.weak else "Strong",
        "heading": heading(part.series, report),
        "caption": caption(part.series),
        "headings": [column.heading for column in table(part)],
        "rows": rows_of(part),
        "lines": part_lines(part),
    }


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
    text = Path(__file__).with_name(template).read_text("utf-8")
    return environment.from_string(text).render(
        title=one_line(report.options.name),
        answers=answer_lines(report),
        sections=[_section(part, report) for part in report.parts],
        notes=_notes(report, missing),
        images=[_image(name, content) for name, content in figures.items()],
    )


def _plain(text: str) -> str:
    """Return text that has no meaning for Markdown."""
    escaped = [f"\\{char}" if char in _MARKDOWN else char for char in text]
    return " ".join("".join(escaped).split())
