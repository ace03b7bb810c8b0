"""report: what a scaling study says, or several studies together.

A study's numbers come from the runs that it measured, or from tables.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcrun.errors import NotFoundError, UsageError
from hpcrun.features.scaling.bottlenecks import ScalingDiagnosis, diagnose_series
from hpcrun.features.scaling.doubts import Doubt, doubts_of
from hpcrun.features.scaling.points import Point
from hpcrun.features.scaling.series import BatchChange, Series, batch_changes, build_series
from hpcrun.features.scaling.sizes import ScaleCommand, Size, Unit
from hpcrun.features.scaling.step_model import Outlook, outlook
from hpcrun.features.scaling.studies import SET_BY_SIZE, Study
from hpcrun.features.scaling.table_claims import Claim, Contradiction, contradictions
from hpcrun.features.scaling.table_file import Table, load_table
from hpcrun.features.scaling.worth_its_gpus import MIN_EFFICIENCY, Advice, advise
from hpcrun.job.request.request_line import option_groups, program_words, with_named_secrets

_ALONE_AFTER = ("noise", "super-linear")
"""The doubts after which runs must not run beside each other."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How runs are read and judged."""

    name: str  # of the study, for headings and the folder
    weak: bool = False  # the work grew with the number of GPUs
    warmup: int = 1  # first epochs of each run that do not count
    # the least marginal efficiency that is worth its price, 0 to 1
    min_efficiency: float = MIN_EFFICIENCY
    # the study's own, for those that are proposed
    command: ScaleCommand = field(default_factory=ScaleCommand)
    unit: Unit = "GPUs"  # what the sizes count


@dataclass(frozen=True, slots=True)
class Part:
    """One series and what follows from it."""

    series: Series
    outlook: Outlook | None  # the serial fraction and the next sizes; None where no answer stands
    advice: Advice | None  # the answer; None where none stands
    tentative: Advice | None  # what the runs suggest, where no answer stands on them
    diagnosis: ScalingDiagnosis | None
    doubts: tuple[Doubt, ...]  # why times are unreliable
    again: str  # the command that measures the unreliable sizes again; "" for none


@dataclass(frozen=True, slots=True)
class Report:
    """All that a study says."""

    options: ReportOptions
    parts: tuple[Part, ...]
    changes: tuple[BatchChange, ...]
    contradictions: tuple[Contradiction, ...]  # where tables contradict themselves
    remarks: tuple[str, ...]  # what of the input was not used
    # how many runs have not ended, by their state; "" for none. No verdict stands before they have.
    unfinished: str


def make_report(
    points: Sequence[Point],
    options: ReportOptions,
    *,
    claims: Iterable[Claim] = (),
    remarks: Sequence[str] = (),
) -> Report:
    """Compare the sizes of a study, judge them, and check the claims of tables.

    The claims are checked against the other numbers of the tables.

    Raises:
        UsageError: the smallest efficiency is not from 1 to 100 %.
        NotFoundError: there are no runs to report on.
    """
    if not 0.01 <= options.min_efficiency <= 1:
        percent = f"{100 * options.min_efficiency:g}"
        raise UsageError(f"--min-efficiency {percent}: it must be from 1 to 100 %")
    if not points:
        raise NotFoundError(
            "there are no runs to report on",
            hint="hpcrun scale report --from-csv FILE reads a table",
        )
    all_series = build_series(points, warmup=options.warmup, weak=options.weak, unit=options.unit)
    unfinished = _unfinished(points)
    parts = [_part(series, options, finished=not unfinished) for series in all_series]
    return Report(
        options=options,
        parts=tuple(parts),
        changes=batch_changes(all_series),
        contradictions=contradictions(claims, all_series),
        remarks=tuple(remarks),
        unfinished=unfinished,
    )


def _unfinished(points: Iterable[Point]) -> str:
    """Return how many runs have not ended, by state: ``1 running, 2 pending``."""
    numbers: Counter[str] = Counter()
    for point in points:
        if not point.ended:
            numbers[point.state.lower().replace("_", " ")] += 1
    return ", ".join(f"{number} {state}" for state, number in numbers.items())


def _part(series: Series, options: ReportOptions, *, finished: bool) -> Part:
    """Return a series with what follows from it."""
    doubts = doubts_of(series, options.warmup)
    doubtful: set[int] = set()
    for doubt in doubts:
        doubtful.update(doubt.gpus)
    again = _again(series, doubts, options.command)
    advice = None
    if finished:
        advice = advise(series, options.min_efficiency, frozenset(doubtful))
    if advice is None:
        return Part(
            series,
            outlook=None,
            advice=None,
            tentative=advise(series, options.min_efficiency),
            diagnosis=None,
            doubts=doubts,
            again=again,
        )
    # unreliable sizes forecast nothing
    reliable = tuple(row for row in series.rows if row.gpus not in doubtful)
    return Part(
        series,
        outlook=outlook(replace(series, rows=reliable)),
        advice=advice,
        tentative=None,
        diagnosis=diagnose_series(series, advice, options.command),
        doubts=doubts,
        again=again,
    )


def _again(series: Series, doubts: Sequence[Doubt], command: ScaleCommand) -> str:
    """Return the command that runs the unreliable sizes three times.

    After noise, the command runs one run after the other.
    """
    unreliable: set[int] = set()
    for doubt in doubts:
        unreliable.update(doubt.again)
    sizes = [Size(row.gpus, row.nodes) for row in series.sizes if row.gpus in unreliable]
    if not sizes:
        return ""
    options = {"--repeat": "3"}
    if any(doubt.kind in _ALONE_AFTER for doubt in doubts):
        options["--chain"] = ""
    return command.scale(sizes, options=options)


def read_tables(paths: Sequence[Path], gpus_per_node: int | None = None) -> Table:
    """Read CSV files into one table.

    Of several, the name of a file is the data set of its rows that name none. ``gpus_per_node`` is
    for tables that have only nodes.
    """
    points: list[Point] = []
    claims: list[Claim] = []
    remarks: list[str] = []
    for path in paths:
        dataset = path.stem if len(paths) > 1 else ""
        table = load_table(path, dataset, gpus_per_node)
        points += table.points
        claims += table.claims
        remarks += table.remarks
    return Table(tuple(points), tuple(claims), tuple(remarks))


def side_by_side(studies: Sequence[Study], *, tables: bool = False) -> list[Study]:
    """Return studies with a name for the data set of each study.

    A study without such a name gets one where it stands beside others or tables.

    Studies of one name and one data set are repeats of each other.
    """
    if not tables and len({study.name for study in studies}) == 1:
        return list(studies)
    return [study if study.dataset else replace(study, dataset=study.name) for study in studies]


def report_name(names: Iterable[str]) -> str:
    """Return a name for a report on studies and tables of these names: also that of its folder."""
    return "-".join(dict.fromkeys(names))[:150]


def study_options(
    studies: Sequence[Study],
    *,
    name: str,
    weak: bool | None,
    warmup: int | None,
    min_efficiency: int,
) -> ReportOptions:
    """Return how some studies, or none, are to be read.

    A study is read as it was submitted, unless an option says otherwise.

    Raises:
        UsageError: the studies are of strong and of weak scaling, and ``weak`` does not decide.
    """
    if weak is None:
        kinds = {study.scaling for study in studies}
        if len(kinds) > 1:
            raise UsageError(
                "strong and weak scaling studies cannot be compared",
                hint="report each study on its own",
            )
        weak = kinds == {"weak"}
    if warmup is None:
        warmup = max((study.warmup for study in studies), default=1)
    commands = {command_of(study) for study in studies}
    # of several, none is that of all data sets
    command = commands.pop() if len(commands) == 1 else ScaleCommand()
    units = {study.unit for study in studies}
    return ReportOptions(
        name,
        weak=weak,
        warmup=warmup,
        min_efficiency=min_efficiency / 100,
        command=command,
        unit="ranks" if units == {"ranks"} else "GPUs",
    )


def study_remarks(studies: Sequence[Study]) -> list[str]:
    """Return what the reader of a report must know of the studies."""
    remarks = []
    of_ranks = [study.name for study in studies if study.unit == "ranks"]
    if 0 < len(of_ranks) < len(studies):
        names = ", ".join(dict.fromkeys(of_ranks))
        remarks.append(f"{names}: the sizes are CPU ranks; the report calls them GPUs")
    if len({study.warmup for study in studies}) > 1:
        remarks.append("the studies differ in --warmup; the largest value is used")
    return remarks


def command_of(study: Study) -> ScaleCommand:
    """Return the command that submitted a study; a report proposes variants of it."""
    given = {name: value for name, value in study.request.items() if name not in SET_BY_SIZE}
    request = with_named_secrets(given)
    options: list[str] = []
    if study.lr:
        options += ["--lr", study.lr]
    if study.dataset:
        options += ["--dataset", study.dataset]
    _, *groups = option_groups(request, study.profile)
    for group in groups:
        options += group
    weak = study.scaling == "weak"
    if weak:
        options.append("--weak")
    return ScaleCommand(
        script=shlex.join(program_words(request)),
        sizes="--ranks" if study.unit == "ranks" else "--gpus",
        profile=shlex.join(["-P", study.profile]),
        options=shlex.join(options),
        gpu_type=study.gpu_type,
        batch_size=study.batch_size,
        weak=weak,
    )
