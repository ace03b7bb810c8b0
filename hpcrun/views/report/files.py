"""All files of a report."""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.actions.studies.report import Report
from hpcrun.views.report.figures import draw_figures
from hpcrun.views.report.html import report_html
from hpcrun.views.report.tables import summary_csv, summary_tex
from hpcrun.views.report.text import report_markdown, report_text


@dataclass(frozen=True, slots=True)
class Files:
    """The files by name, and the reasons why some figures are missing."""

    contents: dict[str, bytes]
    missing: tuple[str, ...]


def report_files(report: Report) -> Files:
    """Return every file of a report."""
    drawn = draw_figures(report)
    texts = {
        "summary.csv": summary_csv(report),
        "summary.tex": summary_tex(report),
        "report.txt": "\n".join(report_text(report, missing=drawn.missing)) + "\n",
        "report.md": report_markdown(report, missing=drawn.missing, figures=tuple(drawn.files)),
        "report.html": report_html(report, figures=drawn.files, missing=drawn.missing),
    }
    encoded = {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}
    return Files({**drawn.files, **encoded}, drawn.missing)
