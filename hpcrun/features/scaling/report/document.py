"""A whole report: as one JSON document, as plain text in 80 columns, as Markdown, as a single HTML file; all its files.

The HTML file contains the figures, and loads or runs nothing.
"""

from __future__ import annotations

import textwrap
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from hpcrun.features.scaling.report.figures import ReportFiles, draw_figures
from hpcrun.features.scaling.report.tables import Column, summaries, summary_csv, summary_tex, table
from hpcrun.features.scaling.report.words import Line, answer_lines, caption, heading, part_lines, report_lines
from hpcrun.features.scaling.series import BatchChange
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.verdict import Advice
from hpcrun.views.text import labelled, one_line


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as a JSON document; shares, efficiencies and fractions are from 0 to 1."""
    options = report.options
    return {
        "kind": "scaling-report",
        "name": options.name,
        "weak": options.weak,
        "warmup": options.warmup,
        "finished": not report.unfinished,
        "answers": [line.text for line in answer_lines(report) if not line.label],
        "series": [_part_json(part) for part in report.parts],
        "batches": [_change_json(change) for change in report.changes],
        "contradictions": [asdict(each) for each in report.contradictions],
        "remarks": list(report.remarks),
    }


def _part_json(part: Part) -> dict[str, Any]:
    series, diagnosis = part.series, part.diagnosis
    return {
        "name": series.name,
        "dataset": series.dataset,
        "basis": series.basis,
        "sources": list(series.sources),
        "rows": summaries(part),
        "outlook": asdict(part.outlook) if part.outlook else None,
        "advice": _advice_json(part.advice) if part.advice else None,
        "doubts": [asdict(doubt) for doubt in part.doubts],
        "measure_again": part.again or None,
        "causes": [asdict(cause) for cause in diagnosis.causes] if diagnosis else [],
        "causes_of_gpus": diagnosis.row.gpus if diagnosis else None,
        "not_measured": list(diagnosis.unknown) if diagnosis else [],
        "left_out": [
            {"gpus": point.gpus, "nodes": point.nodes, "repeat": point.repeat, "run": point.run, "problem": problem}
            for point, problem in series.left_out
        ],
        "remarks": list(series.remarks),
    }


def _advice_json(advice: Advice) -> dict[str, Any]:
    chosen = {"fastest": advice.fastest, "fewest_gpu_hours": advice.cheapest, "best_value": advice.value}
    return {
        **{name: {"gpus": row.gpus, "nodes": row.nodes} for name, row in chosen.items()},
        "min_efficiency": advice.min_efficiency,
        "added_gpus_efficiency": advice.step.added if advice.step else None,
        "next_added_gpus_efficiency": advice.next_step.added if advice.next_step else None,
    }


def _change_json(change: BatchChange) -> dict[str, Any]:
    def side(row: Any) -> dict[str, Any]:
        return {"batch_size": row.batch_size, "time_s": row.time_s.mean, "steps": row.steps}

    row = change.after
    return {
        "dataset": change.dataset,
        "gpus": row.gpus,
        "nodes": row.nodes,
        "before": side(change.before),
        "after": side(row),
    }


def report_files(report: Report) -> ReportFiles:
    """Return every file of a report."""
    drawn = draw_figures(report)
    pictures = {name: content for name, content in drawn.files.items() if name.endswith(".png")}
    texts = {
        "summary.csv": summary_csv(report),
        "summary.tex": summary_tex(report),
        "report.txt": "\n".join(report_text(report, missing=drawn.missing)) + "\n",
        "report.md": report_markdown(report, missing=drawn.missing, figures=tuple(pictures)),
        "report.html": report_html(report, figures=pictures, missing=drawn.missing),
    }
    encoded = {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}
    return ReportFiles({**drawn.files, **encoded}, drawn.missing)


WIDTH = 80
_LABEL = 21
# If a line is too narrow, these columns are dropped in this order; Markdown, CSV and HTML have them.
_DROPPED = ("BATCH/GPU", "CPU", "GPU", "STEPS", "BATCH", "ACC.", "SAMPLES/S", "GPU-H")


def _notes(report: Report, missing: Sequence[str]) -> list[Line]:
    """Return the sentences about all series together, and the reasons why figures are missing."""
    return [*report_lines(report), *(Line("figures", reason) for reason in missing)]


def report_text(report: Report, *, missing: Sequence[str] = (), most: int | None = None) -> list[str]:
    """Return the report as lines.

    Args:
        missing: the figures that were not drawn, with the reasons.
        most: how many series are shown; None for all.
    """
    lines = [text for line in answer_lines(report, most) for text in _wrapped(line)]
    lines += [""] if lines else []
    for part in report.parts[:most]:
        lines += [*part_text(part, report), ""]
    if most is not None and len(report.parts) > most:
        lines += [f"... and {len(report.parts) - most} more (see report.txt)", ""]
    rest = _notes(report, missing)
    lines += [text for line in rest for text in _wrapped(line)]
    return lines if rest else lines[:-1]


def part_text(part: Part, report: Report) -> list[str]:
    """Return one series: its table, and the sentences about it."""
    said = [text for line in part_lines(part) for text in _wrapped(line)]
    return [
        *textwrap.wrap(f"{heading(part.series, report)}: {caption(part.series)}", WIDTH),
        *(_aligned(table(part)) if part.series.rows else ()),
        *(["", *said] if said else ()),
    ]


def _aligned(columns: Sequence[Column]) -> list[str]:
    texts = _fitting([(column.short, *column.cells) for column in columns])
    widths = [max(map(len, cells)) for cells in texts]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= WIDTH else " "
    rows = zip(
        *([cell.rjust(width) for cell in cells] for cells, width in zip(texts, widths, strict=True)), strict=True
    )
    return [gap.join(row) for row in rows]


def _fitting(texts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the columns that fit into a line."""
    for name in _DROPPED:
        if sum(max(map(len, cells)) + 1 for cells in texts) - 1 <= WIDTH:
            break
        texts = [cells for cells in texts if cells[0] != name]
    return texts


def _wrapped(line: Line) -> list[str]:
    # a number and its % stay on one line
    text = line.text.replace(" %", "\u00a0%")
    lines = labelled(line.label, text, _LABEL, WIDTH) if line.label else textwrap.wrap(text, WIDTH)
    texts = [text.replace("\u00a0", " ") for text in lines]
    return [*texts, *([f"{' ' * _LABEL}{line.command}"] if line.command else [])]


def report_markdown(report: Report, *, missing: Sequence[str], figures: Sequence[str]) -> str:
    """Return the report as Markdown, with the figures beside it."""
    blocks = [f"# {_plain(report.options.name)}", *map(_item, answer_lines(report))]
    for part in report.parts:
        blocks += [f"## {_plain(heading(part.series, report))}", _plain(caption(part.series))]
        if part.series.rows:
            blocks.append("\n".join(_markdown_table(table(part))))
        blocks.append("\n".join(_item(line) for line in part_lines(part)))
    rest = _notes(report, missing)
    if rest:
        blocks += ["## Notes", "\n".join(map(_item, rest))]
    blocks += [f"![{name}]({name})" for name in figures]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(columns: Sequence[Column]) -> list[str]:
    rows = [[column.heading for column in columns], *zip(*(column.cells for column in columns), strict=True)]
    head, *body = ([_plain(cell) for cell in cells] for cells in rows)
    return [f"| {' | '.join(cells)} |" for cells in (head, ["--:"] * len(columns), *body)]


def _item(line: Line) -> str:
    command = f" ``{line.command}``" if line.command else ""
    return f"* **{_plain(line.label)}**: {_plain(line.text)}{command}" if line.label else f"**{_plain(line.text)}**"


def _plain(text: str) -> str:
    """Return text that has no meaning for Markdown."""
    escaped = "".join(f"\\{char}" if char in "\\`*_{}[]<>|#!" else char for char in text)
    return " ".join(escaped.split())


_STYLE = """\
:root { color-scheme: light dark; --page: #fff; --ink: #222; --line: #ddd; --code: #f3f3f3 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--page); overflow-wrap: anywhere }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
th { border-bottom: 2px solid var(--ink) }
th:last-child, td:last-child { text-align: left }
.wide { overflow-x: auto } .answer { font-size: 1.3rem; font-weight: 600 }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1rem }
dt { font-weight: 600 } dd { margin: 0 }
code { background: var(--code); padding: .1rem .3rem }
img { max-width: 100%; height: auto; margin: 1rem 0; background: #fff; break-inside: avoid }
@media (max-width: 40rem) { dl { display: block } dd { margin-bottom: .5rem } table { font-size: .7rem }
  th, td { padding: .25rem .12rem; white-space: normal; overflow-wrap: normal } }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --ink: #e6edf3; --line: #30363d; --code: #161b22 } }
@media print { :root { color-scheme: light; --page: #fff; --ink: #000; --line: #ccc; --code: #fff }
  body { max-width: none; margin: 0; padding: 0; font-size: 10pt } table { font-size: 7.5pt }
  th, td { padding: .1rem .25rem; white-space: normal } h2 { break-after: avoid } }"""
# default-src 'none': even an unescaped name could load and run nothing
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def report_html(report: Report, *, figures: Mapping[str, bytes], missing: Sequence[str]) -> str:
    """Return the page.

    Args:
        figures: name → PNG.
        missing: the figures that were not drawn, with the reasons.
    """
    title = escape(one_line(f"Scaling report: {report.options.name}"))
    rest = _notes(report, missing)
    body = [
        f"<h1>{title}</h1>",
        *map(_answer, answer_lines(report)),
        *(_section(part, report) for part in report.parts),
        *(["<h2>Notes</h2>", _list(rest)] if rest else []),
        *(["<h2>Figures</h2>"] if figures else []),
        *(_image(name, content) for name, content in figures.items()),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>\n{_STYLE}\n</style></head>",
            "<body>",
            *body,
            "</body></html>\n",
        ]
    )


def _answer(line: Line) -> str:
    label = f"{escape(line.label)}: " if line.label else ""
    return f"<p{'' if label else ' class=answer'}>{label}{escape(line.text)}{_command(line)}</p>"


def _section(part: Part, report: Report) -> str:
    blocks = [f"<h2>{escape(heading(part.series, report))}</h2>", f"<p>{escape(caption(part.series))}</p>"]
    if part.series.rows:
        columns = table(part)
        rows = zip(*(column.cells for column in columns), strict=True)
        head = "".join(f"<th>{escape(column.heading)}</th>" for column in columns)
        body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        blocks.append(f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}\n</table></div>')
    return "\n".join([*blocks, _list(part_lines(part))])


def _list(lines: Sequence[Line]) -> str:
    items = (f"<dt>{escape(line.label)}</dt><dd>{escape(line.text)}{_command(line)}</dd>" for line in lines)
    return "<dl>\n" + "\n".join(items) + "\n</dl>"


def _command(line: Line) -> str:
    return f"<br><code>{escape(line.command)}</code>" if line.command else ""


def _image(name: str, content: bytes) -> str:
    data = b64encode(content).decode()
    width = int.from_bytes(content[16:20], "big") * 96 // 220  # larger than on paper, and sharp on every screen
    return f'<img alt="{escape(name)}" width="{width}" src="data:image/png;base64,{data}">'
