"""hpcrun report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli.output import JsonOption, show, show_json, tell
from hpcrun.errors import UsageError
from hpcrun.views.text import one_line

_SHOWN = 8


def report(
    from_csv: Annotated[
        list[Path] | None,
        typer.Option(
            "--from-csv",
            metavar="FILE",
            help="Runs from a table. Repeatable; docs/report.md has its columns.",
            show_default=False,
        ),
    ] = None,
    weak: Annotated[
        bool, typer.Option("--weak/--strong", help="The work grew with the GPUs, or stayed the same.")
    ] = False,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", help="First epochs of a run that do not count.")] = 1,
    min_efficiency: Annotated[
        str,
        typer.Option(
            "--min-efficiency", metavar="PERCENT", help="What added GPUs must bring to be worth asking for: 70, 70%."
        ),
    ] = "70",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder to write; by default report-NAME.", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that has other files too; they stay.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say how a training scales, why, and how many GPUs to ask for: as text, tables and figures in a folder."""
    from hpcrun.actions.report import ReportOptions, make_report, read_tables
    from hpcrun.actions.report_folder import check_folder, save_report
    from hpcrun.views.report.document import report_json
    from hpcrun.views.report.files import report_files
    from hpcrun.views.report.text import report_text

    if not from_csv:
        raise UsageError("nothing to report on", hint="hpcrun report --from-csv FILE")
    name = from_csv[0].stem
    folder = out or Path(f"report-{name}")
    check_folder(folder, force=force)
    table = read_tables(from_csv)
    options = ReportOptions(name, weak=weak, warmup=warmup, min_efficiency=_share(min_efficiency))
    result = make_report(table.points, options, claims=table.claims, remarks=table.remarks)
    files = report_files(result)
    save_report(folder, files.contents)
    if as_json:
        show_json({**report_json(result), "folder": str(folder), "files": sorted(files.contents)})
        return
    show(report_text(result, missing=files.missing, most=_SHOWN))
    tell([one_line(f"written  {folder}: {', '.join(sorted(files.contents))}")])


def _share(text: str) -> float:
    """Read per cent as a part of 1."""
    try:
        return float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"--min-efficiency {text!r} is not a number of per cent", hint="--min-efficiency 70") from None
