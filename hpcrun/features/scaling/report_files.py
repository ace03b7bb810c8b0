"""A whole report as JSON, as text in 80 columns, as Markdown, as one HTML file; and saving all its files."""

from __future__ import annotations

import os
import tempfile
import textwrap
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcrun.errors import PlanError
from hpcrun.features.scaling.figures import ReportFiles, draw_figures
from hpcrun.features.scaling.report_tables import Column, rows_of, summaries, summary_csv, summary_tex, table
from hpcrun.features.scaling.sentences import Line, answer_lines, caption, heading, part_lines, report_lines
from hpcrun.features.scaling.series import BatchChange, Row
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.verdict import Advice
from hpcrun.reading import read_text
from hpcrun.views.text import labelled, one_line
from hpcrun.writing import replace_file

MARK = ".hpcrun-report"
"""Lists the files of a report in its folder: where nothing else is there, the folder may be replaced."""
WIDTH = 80
_LABEL = 21
# If a line is too narrow, these columns are dropped in this order; Markdown, CSV and HTML have them.
_DROPPED = ("BATCH/GPU", "CPU", "GPU", "STEPS", "BATCH", "ACC.", "SAMPLES/S", "GPU-H")


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
    def side(row: Row) -> dict[str, Any]:
        return {"batch_size": row.batch_size, "time_s": row.time_s and row.time_s.mean, "steps": row.steps}

    size = {"dataset": change.dataset, "gpus": change.after.gpus, "nodes": change.after.nodes}
    return {**size, "before": side(change.before), "after": side(change.after)}


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
        lines += [*_part_text(part, report), ""]
    if most is not None and len(report.parts) > most:
        lines += [f"... and {len(report.parts) - most} more (see report.txt)", ""]
    rest = _notes(report, missing)
    lines += [text for line in rest for text in _wrapped(line)]
    return lines if rest else lines[:-1]


def _part_text(part: Part, report: Report) -> list[str]:
    """Return one series: its table, and the sentences about it."""
    sentences = [text for line in part_lines(part) for text in _wrapped(line)]
    return [
        *textwrap.wrap(f"{heading(part.series, report)}: {caption(part.series)}", WIDTH),
        *(_aligned(table(part)) if part.series.rows else ()),
        *(["", *sentences] if sentences else ()),
    ]


def _aligned(columns: Sequence[Column]) -> list[str]:
    texts = [(column.short, *column.cells) for column in columns]
    for name in _DROPPED:
        if sum(max(map(len, cells)) + 1 for cells in texts) - 1 <= WIDTH:
            break
        texts = [cells for cells in texts if cells[0] != name]
    widths = [max(map(len, cells)) for cells in texts]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= WIDTH else " "
    padded = ([cell.rjust(width) for cell in cells] for cells, width in zip(texts, widths, strict=True))
    return [gap.join(row) for row in zip(*padded, strict=True)]


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
            blocks.append(_markdown_table(part))
        blocks.append("\n".join(_item(line) for line in part_lines(part)))
    rest = _notes(report, missing)
    if rest:
        blocks += ["## Notes", "\n".join(map(_item, rest))]
    blocks += [f"![{name}]({name})" for name in figures]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(part: Part) -> str:
    head = [_plain(column.heading) for column in table(part)]
    body = [[_plain(cell) for cell in row] for row in rows_of(part)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["--:"] * len(head), *body))


def _item(line: Line) -> str:
    command = f" ``{line.command}``" if line.command else ""
    return f"* **{_plain(line.label)}**: {_plain(line.text)}{command}" if line.label else f"**{_plain(line.text)}**"


def _plain(text: str) -> str:
    """Return text that has no meaning for Markdown."""
    escaped = "".join(f"\\{char}" if char in "\\`*_{}[]<>|#!" else char for char in text)
    return " ".join(escaped.split())


def report_html(report: Report, *, figures: Mapping[str, bytes], missing: Sequence[str]) -> str:
    """Return the page, which contains the figures, and loads or runs nothing.

    Args:
        figures: name → PNG.
        missing: the figures that were not drawn, with the reasons.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(Path(__file__).with_name("report.html.j2").read_text("utf-8"))
    return template.render(
        title=one_line(f"Scaling report: {report.options.name}"),
        answers=answer_lines(report),
        sections=[
            {
                "heading": heading(part.series, report),
                "caption": caption(part.series),
                "headings": [column.heading for column in table(part)],
                "rows": rows_of(part),
                "lines": part_lines(part),
            }
            for part in report.parts
        ],
        notes=_notes(report, missing),
        images=[
            # larger than on paper, and sharp on every screen
            {
                "name": name,
                "width": int.from_bytes(content[16:20], "big") * 96 // 220,
                "data": b64encode(content).decode(),
            }
            for name, content in figures.items()
        ],
    )


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder with files that no report wrote, before any work is done."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise PlanError(f"{folder} is not a folder", hint="choose another one with --out DIR")
    others = _others(folder)
    if others and not force:
        raise PlanError(
            f"{folder} contains other files: {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}",
            hint="choose another folder with --out DIR, or keep these files and write with --force",
        )


def save_report(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a report.

    A new folder appears whole. In one that is there each file is replaced, what a report before it wrote besides is
    removed, and what others wrote stays; on a full disk it stays as it was.
    """
    folder = folder.resolve()
    marked = {**files, MARK: "".join(f"{name}\n" for name in sorted(files)).encode()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
            fresh = Path(beside, "new")
            fresh.mkdir(mode=0o755)
            for name, content in marked.items():
                replace_file(fresh / name, content, durable=False, mode=0o644)  # only its owner may write to it
            if not folder.exists():
                fresh.rename(folder)
                return
            for name in {entry.name for entry in folder.iterdir()} - {*_others(folder), *marked}:
                (folder / name).unlink()
            for name in marked:
                os.replace(fresh / name, folder / name)
    except OSError as error:
        raise PlanError(f"cannot write {folder}: {error.strerror}", hint="choose another one with --out DIR") from None


def _others(folder: Path) -> list[str]:
    """Return what lies in a folder and no report wrote."""
    try:
        of_report = {MARK, *read_text(folder / MARK).splitlines()}
    except OSError:
        of_report = set()
    # a report has no folders: one that its list names is somebody's all the same
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in of_report or entry.is_dir())
