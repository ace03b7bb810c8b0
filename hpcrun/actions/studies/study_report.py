"""How studies are reported on: what their records say that the runs do not."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcrun.actions.studies.report import ReportOptions
from hpcrun.errors import UsageError
from hpcrun.runs.studies import Study
from hpcrun.scaling.command import ANY, ScaleCommand

_NAMED = 3


def side_by_side(studies: Sequence[Study], *, tables: bool = False) -> list[Study]:
    """Return studies with a name for the data set of each, where one stands beside others and has none.

    Studies of one name and one data set are repeats of each other.

    Args:
        tables: they stand beside tables.
    """
    if not tables and len({study.name for study in studies}) == 1:
        return list(studies)
    return [study if study.dataset else replace(study, dataset=study.name) for study in studies]


def report_name(names: Iterable[str]) -> str:
    """Return a name for a report on studies and tables of these names: also that of its folder."""
    several = list(dict.fromkeys(names))
    rest = f"-and-{len(several) - _NAMED}-more" if len(several) > _NAMED else ""
    return "-".join(several[:_NAMED])[:150] + rest


def study_options(
    studies: Sequence[Study], *, name: str, weak: bool | None, warmup: int | None, min_efficiency: float
) -> ReportOptions:
    """Return how some studies are to be read: as they were asked for, unless it is said otherwise.

    Args:
        studies: none, where all runs come from tables.

    Raises:
        UsageError: some are of strong scaling and some of weak.
    """
    kinds = {study.scaling for study in studies}
    if weak is None and len(kinds) > 1:
        raise UsageError("strong and weak scaling studies cannot be compared", hint="report each study on its own")
    return ReportOptions(
        name,
        weak=kinds == {"weak"} if weak is None else weak,
        warmup=max((study.warmup for study in studies), default=1) if warmup is None else warmup,
        min_efficiency=min_efficiency,
        command=command_of(studies[0]) if studies else ANY,
    )


def study_remarks(studies: Sequence[Study]) -> list[str]:
    """Return what the reader of a report must know of the studies."""
    remarks = []
    if ranks := [study.name for study in studies if study.unit == "ranks"]:
        remarks.append(f"{', '.join(dict.fromkeys(ranks))}: the sizes are CPU ranks; the report calls them GPUs")
    if len({study.warmup for study in studies}) > 1:
        remarks.append("the studies differ in --warmup; the largest value is used")
    return remarks


def command_of(study: Study) -> ScaleCommand:
    """Return the command that a study was, for those that a report proposes."""
    request = study.request
    words = [*(["--module"] if request.get("module") else []), request["script"], *request.get("args", ())]
    said = {"--lr": study.lr, "--dataset": study.dataset, "--launcher": request.get("launcher")}
    options = [word for option, value in said.items() if value for word in (option, value)]
    return ScaleCommand(
        script=shlex.join(words),
        sizes="--ranks" if study.unit == "ranks" else "--gpus",
        profile=shlex.join(["-P", study.profile]),
        options=shlex.join([*options, *(["--weak"] if study.scaling == "weak" else [])]),
        batch_size=study.batch_size,
        weak=study.scaling == "weak",
    )
