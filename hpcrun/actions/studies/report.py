"""report: what a scaling study says, from the runs it measured or from tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import NotFoundError, UsageError
from hpcrun.scaling.batches import BatchChange, batch_changes
from hpcrun.scaling.causes import ScalingDiagnosis, diagnose_series
from hpcrun.scaling.claims import Contradiction, contradictions
from hpcrun.scaling.command import ANY, ScaleCommand
from hpcrun.scaling.fit import Fit, best_fit, fit_series
from hpcrun.scaling.points import Point
from hpcrun.scaling.series import Series, build_series
from hpcrun.scaling.table_file import Claim, Table, load_table
from hpcrun.scaling.verdict import MIN_EFFICIENCY, Advice, advise


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How runs are read and judged.

    Attributes:
        name: of the study, for headings and the folder.
        weak: the work grew with the number of GPUs.
        warmup: first epochs of each run that do not count.
        min_efficiency: what added GPUs must at least bring to be worth their price, 0 to 1.
        command: the study's own, for those that are proposed.
    """

    name: str
    weak: bool = False
    warmup: int = 1
    min_efficiency: float = MIN_EFFICIENCY
    command: ScaleCommand = ANY


@dataclass(frozen=True, slots=True)
class Part:
    """One series and what follows from it.

    Attributes:
        expected: the fit that says what the next sizes will bring; None where none does.
    """

    series: Series
    fits: tuple[Fit, ...]
    expected: Fit | None
    advice: Advice | None
    diagnosis: ScalingDiagnosis | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that a study says.

    Attributes:
        contradictions: where tables contradict themselves.
        remarks: what of the input was not used.
    """

    options: ReportOptions
    parts: tuple[Part, ...]
    changes: tuple[BatchChange, ...]
    contradictions: tuple[Contradiction, ...]
    remarks: tuple[str, ...]


def make_report(
    points: Sequence[Point], options: ReportOptions, *, claims: Iterable[Claim] = (), remarks: Sequence[str] = ()
) -> Report:
    """Compare the sizes of a study, fit the laws, and judge.

    Args:
        claims: numbers of tables to check against the others.
        remarks: what the reader of the points has to say.

    Raises:
        UsageError: an option cannot be.
        NotFoundError: there are no points.
    """
    if options.warmup < 0:
        raise UsageError(f"--warmup {options.warmup}: it must be 0 or more")
    if not 0 < options.min_efficiency <= 1:
        percent = 100 * options.min_efficiency
        raise UsageError(f"--min-efficiency {percent:g}: it must be more than 0 and at most 100 %")
    if not points:
        raise NotFoundError("there are no runs to report on", hint="hpcrun report --from-csv FILE reads a table")
    series = build_series(points, warmup=options.warmup, weak=options.weak)
    return Report(
        options=options,
        parts=tuple(_part(each, options) for each in series),
        changes=batch_changes(series),
        contradictions=contradictions(claims, series),
        remarks=tuple(remarks),
    )


def _part(series: Series, options: ReportOptions) -> Part:
    fits, advice = fit_series(series), advise(series, options.min_efficiency)
    return Part(
        series,
        fits,
        expected=best_fit([fit for fit in fits if fit.describes]),
        advice=advice,
        diagnosis=diagnose_series(series, advice, options.command) if advice else None,
    )


def read_tables(paths: Sequence[Path]) -> Table:
    """Read CSV files into one table; of several each that names no data set is one by its file's name.

    Raises:
        UsageError: one cannot be read.
    """
    tables = [load_table(path, dataset=path.stem if len(paths) > 1 else "") for path in paths]
    return Table(
        tuple(point for table in tables for point in table.points),
        tuple(claim for table in tables for claim in table.claims),
        tuple(remark for table in tables for remark in table.remarks),
    )
