"""A report as plain text in 80 columns, and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hpcrun.actions.studies.report import Part, Report
from hpcrun.views.report.tables import Column, table
from hpcrun.views.report.words import Line, answer_lines, caption, heading, part_lines, report_lines
from hpcrun.views.text import labelled

WIDTH = 80
_LABEL = 21
# If a line is too narrow, these columns are dropped in this order; Markdown, CSV and HTML have them.
_DROPPED = ("CPU", "GPU", "STEPS", "BATCH", "ACC.", "SAMPLES/S", "GPU-H")


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
    rest = [*report_lines(report), *(Line("figures", reason) for reason in missing)]
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
    rest = [*report_lines(report), *(Line("figures", reason) for reason in missing)]
    if rest:
        blocks += ["## Notes", "\n".join(map(_item, rest))]
    blocks += [f"![{name}]({name})" for name in figures]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(columns: Sequence[Column]) -> list[str]:
    rows = zip(*(column.cells for column in columns), strict=True)
    lines = [[column.heading for column in columns], ["--:"] * len(columns), *rows]
    return ["| " + " | ".join(map(_cell, cells)) + " |" for cells in lines]


def _cell(text: str) -> str:
    return text if text == "--:" else _plain(text)


def _item(line: Line) -> str:
    command = f" ``{line.command}``" if line.command else ""
    return f"* **{_plain(line.label)}**: {_plain(line.text)}{command}" if line.label else f"**{_plain(line.text)}**"


def _plain(text: str) -> str:
    """Return text that has no meaning for Markdown."""
    escaped = "".join(f"\\{char}" if char in "\\`*_{}[]<>|#!" else char for char in text)
    return " ".join(escaped.split())
