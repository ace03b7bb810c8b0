"""A whole report: its numbers as one JSON document, and all its files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hpcrun.actions.studies.report import Part, Report
from hpcrun.scaling.series import BatchChange
from hpcrun.scaling.verdict import Advice
from hpcrun.views.report.figures import draw_figures
from hpcrun.views.report.html import report_html
from hpcrun.views.report.tables import summaries, summary_csv, summary_tex
from hpcrun.views.report.text import report_markdown, report_text
from hpcrun.views.report.words import answer_lines


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
        "series": [_part(part) for part in report.parts],
        "batches": [_change(change) for change in report.changes],
        "contradictions": [asdict(each) for each in report.contradictions],
        "remarks": list(report.remarks),
    }


def _part(part: Part) -> dict[str, Any]:
    series, diagnosis = part.series, part.diagnosis
    return {
        "name": series.name,
        "dataset": series.dataset,
        "basis": series.basis,
        "sources": list(series.sources),
        "rows": summaries(part),
        "fits": [{**asdict(fit), "describes": fit.describes} for fit in part.fits],
        "predicted_by": part.expected.law if part.expected else None,
        "advice": _advice(part.advice) if part.advice else None,
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


def _advice(advice: Advice) -> dict[str, Any]:
    chosen = {"fastest": advice.fastest, "fewest_gpu_hours": advice.cheapest, "best_value": advice.value}
    return {
        **{name: {"gpus": row.gpus, "nodes": row.nodes} for name, row in chosen.items()},
        "min_efficiency": advice.min_efficiency,
        "added_gpus_efficiency": advice.step.added if advice.step else None,
        "next_added_gpus_efficiency": advice.next_step.added if advice.next_step else None,
        "efficient_up_to_gpus": advice.overall.gpus,
    }


def _change(change: BatchChange) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class Files:
    """The files by name, and the reasons why some figures are missing."""

    contents: dict[str, bytes]
    missing: tuple[str, ...]


def report_files(report: Report) -> Files:
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
    return Files({**drawn.files, **encoded}, drawn.missing)
