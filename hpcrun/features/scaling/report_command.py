"""hpcrun scale report."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, Outcomes, note, stderr, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import UsageError
from hpcrun.features.scaling.studies import StudyStore
from hpcrun.features.scaling.study_flow import explained, list_studies
from hpcrun.features.scaling.study_names import study_name
from hpcrun.views.text import count, one_line

if TYPE_CHECKING:
    from hpcrun.features.scaling.studies import Study
    from hpcrun.features.scaling.study_points import StudyMeasurements

_SHOWN = 8
_option = partial(typer.Option, show_default=False)


def report(
    studies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STUDY",
            help="Study ids, names, or 'last'. Default: list the studies.",
            show_default=False,
            autocompletion=study_name,
        ),
    ] = None,
    from_csv: Annotated[
        list[Path] | None,
        _option("--from-csv", metavar="FILE", help="Read the runs from a table (columns: docs/report.md). Repeatable."),
    ] = None,
    weak: Annotated[
        bool | None,
        _option(
            "--weak/--strong", help="Scaling of the work: per GPU (weak) or in total (strong). Default: the study's."
        ),
    ] = None,
    warmup: Annotated[
        int | None, _option("--warmup", metavar="N", help="First epochs to leave out. Default: the study's, or 1.")
    ] = None,
    min_efficiency: Annotated[
        str | None,
        _option(
            "--min-efficiency",
            metavar="PERCENT",
            help="Target efficiency: what added GPUs must reach to be worth requesting. Default: 65.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        _option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder to write. Default: report-NAME-XXXX, with the end of the study's id.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder with other files; they are kept.")] = False,
    _json: JsonOption = False,
) -> Outcomes:
    """Report how a training scales, and how many GPUs to request.

    Writes text, tables and figures to a folder, once all runs of the studies have ended.
    """
    import_pydantic()
    from hpcrun.features.scaling.report.document import report_files, report_json, report_text
    from hpcrun.features.scaling.report_folder import check_folder, save_report
    from hpcrun.features.scaling.study import find_study
    from hpcrun.features.scaling.study_report import (
        make_report,
        read_tables,
        report_name,
        side_by_side,
        study_options,
        study_remarks,
    )

    context = make_context()
    if not (studies or from_csv):
        yield from list_studies(context)
        yield note(["hint: hpcrun scale report STUDY, or hpcrun scale report --from-csv FILE"])
        return
    found = [find_study(word, StudyStore(context.store.root)) for word in dict.fromkeys(studies or [])]
    yield note(item.note for item in found)
    named = side_by_side([item.study for item in found], tables=bool(from_csv))
    name = report_name([study.name for study in named] or [path.stem for path in (from_csv or ())[:1]])
    # two studies may have the same name
    folder = out or Path(f"report-{name}-{named[0].study_id[-4:]}" if len(named) == 1 else f"report-{name}")
    check_folder(folder, force=force)
    share = _share(min_efficiency)
    options = study_options(named, name=name, weak=weak, warmup=warmup, min_efficiency=share)
    table = read_tables(from_csv or [])
    measured, remarks = _measured(named, context)
    yield note([*remarks, f"hpcrun: {measured.away.message}" if measured.away else None])
    points = (*measured.points, *table.points)
    result = make_report(points, options, claims=table.claims, remarks=(*study_remarks(named), *table.remarks))
    if result.unfinished:
        yield Outcome(
            lambda: [stdout(report_text(result, most=_SHOWN))],
            lambda: {**report_json(result), "folder": None, "files": []},
        )
        return
    made = report_files(result)
    save_report(folder, made.files)
    written = one_line(f"written  {folder}: report.html and {count(len(made.files) - 1, 'other file')}")
    yield Outcome(
        lambda: [stdout(report_text(result, missing=made.missing, most=_SHOWN)), stderr([written])],
        lambda: {**report_json(result), "folder": str(folder), "files": sorted(made.files)},
    )


def _measured(studies: list[Study], context: Context) -> tuple[StudyMeasurements, list[str]]:
    """Return what the runs of studies measured, and remarks.

    Where the scheduler does not respond, runs are as they were last known.
    """
    from hpcrun.features.scaling.study_points import StudyMeasurements, read_points

    if not studies:
        return StudyMeasurements(()), []
    remarks: list[str] = []

    @cache
    def patterns(profile: str) -> dict[str, str]:
        found, remark = context.metric_patterns(profile)
        remarks.extend([remark] if remark else [])
        return found

    measured = read_points(
        studies, context.ports, place=StudyStore(context.store.root), patterns=patterns, explained=explained(context)
    )
    return measured, remarks


def _share(text: str | None) -> float:
    """Read per cent as a part of 1; without a text return the default."""
    from hpcrun.features.scaling.worth import MIN_EFFICIENCY

    if text is None:
        return MIN_EFFICIENCY
    try:
        return float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"--min-efficiency {text!r} is not a percentage", hint="--min-efficiency 65") from None
