"""hpcrun scale plan, scale run and scale report: how a training scales.

The commands say this by forecast, by measurement, and as a report.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.actions.hooks import hooks_of
from hpcrun.actions.runs.find import LAST
from hpcrun.cli.complete import MOST_RUNS, profile_name, quiet, run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.job_options import JOB_OPTIONS, SUBMISSION
from hpcrun.cli.options import (
    HelpPanel,
    argument,
    check_least,
    check_one_of,
    flag,
    option,
    takes_options,
)
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, TextPart, note, stderr, stdout, width
from hpcrun.errors import PlanError, UsageError
from hpcrun.features.scaling.sizes import Workload, read_design
from hpcrun.features.scaling.studies import Study, StudyStore
from hpcrun.features.scaling.study_flow import (
    chosen_study,
    list_studies,
    show_status,
    wait_for_study,
)
from hpcrun.features.scaling.worth_its_gpus import MIN_EFFICIENCY
from hpcrun.files.reading import read_text
from hpcrun.files.writing import make_folder, replace_file
from hpcrun.job import run_paths
from hpcrun.job.request.option_panels import (
    CONTAINER,
    ENVIRONMENT,
    IDLE_LIMIT,
    LAUNCH,
    LAUNCHER,
    MODULE,
    NAME_AND_MAIL,
    PLACEMENT,
    PROFILE,
    REQUEUE,
    RESOURCES,
    RESTARTS,
    SNAPSHOT,
)
from hpcrun.job.request.options import OptionPanel, options_of
from hpcrun.views.text import count, written_line

MARK = ".hpcrun-report"
"""Lists the files of a report in its folder: where nothing else is there, the folder may be
replaced.
"""
_FRESH = f"{MARK}."  # begins the name of the folder in which a report is written first
_MEASUREMENT = OptionPanel("Measurement")
_FORECAST = OptionPanel("Forecast")
_TRAINING = OptionPanel("Training")
_STUDY = HelpPanel("Study")


@quiet
def study_name(_: str) -> list[str]:
    """Complete a study: ``last`` and the names of the newest, each once, then their ids."""
    study_ids = StudyStore(make_context(announce=None).store.root).study_ids()
    newest = study_ids[: -MOST_RUNS - 1 : -1]
    names = dict.fromkeys([LAST, *map(run_paths.run_name, newest)])
    return [*names, *newest]


def study_or_run_name(incomplete: str) -> list[str]:
    """Complete a study or a run."""
    return list(dict.fromkeys([*study_name(incomplete), *run_name(incomplete)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """The options of which ``plan.read_workload`` reads the text."""

    samples: str | None = _MEASUREMENT.text("--samples N", "Samples per epoch: 1.2M, 500k.")
    batch_size: str | None = _MEASUREMENT.text(
        "--batch-size N", "Global batch of the measured epoch."
    )
    epoch_time: str | None = _MEASUREMENT.text(
        "--epoch-time TIME", "Time of the measured epoch, 36m or 42.3s, or of a step: 0.108s/step."
    )
    reference_gpus: str | None = _MEASUREMENT.text(
        "--reference-gpus N[/NODES]",
        "GPUs of the measured epoch, and their nodes if they were not the fewest. Default: 1.",
    )
    also: tuple[str, ...] = _MEASUREMENT.several(
        "--also [GPUS:]BATCH=TIME",
        "Another measured epoch: with this global batch, on the same or on other GPUs. Repeatable.",
    )
    source: str | None = _MEASUREMENT.text(
        "--from STUDY|RUN",
        "Read the measured epochs from the metrics of a scaling study or a run.",
        complete=study_or_run_name,
    )
    gpus: str | None = _FORECAST.text(
        "--gpus -G [TYPE:]N,...",
        "Numbers of GPUs to forecast, each of a whole job. Default: 1, 2, 4 and 8 times the "
        "measured ones.",
    )
    nodes: str | None = _FORECAST.text(
        "--nodes -N N,...",
        "Nodes for each number of GPUs, or one number for all. Default: the fewest.",
    )
    mode: str | None = _FORECAST.text(
        "--mode fixed|scaled|both",
        "Keep the global batch (fixed) or the per-GPU batch (scaled). Default: both.",
    )
    price_per_gpu_hour: str | None = _FORECAST.text(
        "--price-per-gpu-hour PRICE", "Price of one GPU-hour. Default: the profile's."
    )
    profile: str | None = _FORECAST.text(
        "--profile -P NAME",
        "Cluster profile, by name or path. Default: as submit, or the study's.",
        complete=profile_name,
    )
    lr: str | None = _TRAINING.text("--lr RATE", "Learning rate at the measured global batch.")
    optimizer: str | None = _TRAINING.text(
        "--optimizer NAME",
        "Optimizer (sgd, adam, adamw ...); decides how the learning rate scales.",
    )
    warmup_epochs: str | None = _TRAINING.text(
        "--warmup-epochs N",
        "Warm-up epochs for a raised learning rate. Default: 5, at most half of --epochs.",
    )
    epochs: str | None = _TRAINING.text(
        "--epochs N", "Epochs of the training, for GPU-hours and cost. Default: 1."
    )
    tokens_per_sample: str | None = _TRAINING.text(
        "--tokens-per-sample N",
        "Tokens, patches or pixels of a sample that a layer processes together. Default: 1.",
    )


FORECAST_OPTIONS = options_of(ForecastOptions)


@takes_options(FORECAST_OPTIONS)
def forecast(
    options: dict[str, Any],
    as_csv: bool = flag("--csv", "Print CSV."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Forecast the time and cost of a training on more GPUs. Nothing runs.

    The forecast starts from an epoch that you measured; two or three
    measurements make it more certain. It says how many GPUs to ask for, and
    shows batch, steps, learning rate, time, GPU-hours and cost.
    """
    check_one_of(csv=as_csv, json=as_json)
    from hpcrun.features.scaling.forecast_display import forecast_csv, forecast_json, forecast_text
    from hpcrun.features.scaling.plan import make_forecast, read_measured

    typed = {name: text for name, text in options.items() if text is not None}
    source = typed.pop("source", None)
    profile = typed.pop("profile", None)
    also = typed.pop("also", None)
    if also:
        typed["also"] = ",".join(also)
    context = make_context()
    known: dict[str, Any] = {}
    if source is not None:
        measured = read_measured(source, context, typed.get("batch_size"))
        known = measured.fields
        profile = profile or measured.profile
        yield note(measured.remarks)
    result = make_forecast(typed, known, context.profile_name(profile), context.surroundings)

    def text() -> Iterable[TextPart]:
        if as_csv:
            return [stdout([forecast_csv(result)])]
        return forecast_text(result, width())

    yield Outcome(text, lambda: forecast_json(result))


_OF_SCALE_RUN = (
    RESOURCES,
    IDLE_LIMIT,
    PROFILE,
    PLACEMENT,
    LAUNCHER,
    LAUNCH,
    ENVIRONMENT,
    CONTAINER,
    MODULE,
    REQUEUE,
    RESTARTS,
    SNAPSHOT,
    NAME_AND_MAIL,
)
"""A study sets the sizes itself, and each of its runs has one program."""


@takes_options(JOB_OPTIONS, panels=_OF_SCALE_RUN, own_first=True)
def scale(
    options: dict[str, Any],
    script: str | None = argument("SCRIPT", "A .py file, a module with -m, or any program."),
    args: list[str] | None = argument(
        "ARGS", "Arguments of the script; {batch_size}, {lr}, {gpus} become the values of each run."
    ),
    gpus: str | None = _STUDY.option(
        "--gpus -G [TYPE:]1,2,4", "GPUs of each run, over all its nodes."
    ),
    ranks: str | None = _STUDY.option(
        "--ranks 1,2,4", "Ranks of each run on CPUs, instead of --gpus."
    ),
    nodes: str | None = _STUDY.option(
        "--nodes -N 1,1,2",
        "Nodes of each run, or one number for all. Default: the fewest that hold the GPUs.",
    ),
    weak: bool = _STUDY.flag(
        "--weak/--strong",
        "Keep the per-GPU batch (weak), or the global batch (strong, the default).",
    ),
    batch_size: int | None = _STUDY.option(
        "--batch-size N",
        "Value of {batch_size}: the global batch, or with --weak the per-GPU batch.",
    ),
    lr: str | None = _STUDY.option(
        "--lr RATE", "Value of {lr} for that batch; it is scaled with the global batch."
    ),
    repeat: int = _STUDY.option("--repeat N", "Runs of each size.", default=1),
    warmup: int = _STUDY.option(
        "--warmup N", "First epochs to leave out of the measurement.", default=1
    ),
    dataset: str = _STUDY.option(
        "--dataset NAME", "Value of {dataset}, shown in the report.", default=""
    ),
    chain: bool | None = _STUDY.option(
        "--chain/--parallel",
        "Run one after the other, or all at once. Default: --parallel with Slurm, --chain without.",
    ),
    resume: str | None = SUBMISSION.option(
        "--resume STUDY", "Submit the missing runs of a study.", complete=study_name
    ),
    shown: str | None = SUBMISSION.option(
        "--show STUDY",
        "Show the runs of a study; with --wait, after the last has ended.",
        complete=study_name,
    ),
    listing: bool = SUBMISSION.flag("--list", "List the studies."),
    dry_run: bool = SUBMISSION.flag("--dry-run", "Show all runs and one script; submit nothing."),
    wait: bool = SUBMISSION.flag(
        "--wait", "Wait until all runs end. Exit status 0 if all completed, else 7."
    ),
    as_json: JsonOption = False,
) -> Outcomes:
    """Measure how a training scales: run it on several numbers of GPUs.

    hpcrun scale report shows the result.
    Write hpcrun's options before SCRIPT; all words after it go to the script.
    """
    context = make_context()
    if listing:
        yield from list_studies(context)
        return
    if shown is not None or resume is not None:
        describes_study = bool(script is not None or gpus or ranks)
        _check_names_only(shown, resume, describes_study=describes_study)
    if shown is not None:
        study = yield from chosen_study(shown, context)
        if wait:
            wait_for_study(study, context)
        yield from show_status(study, context, check=wait)
        return
    from hpcrun.features.scaling.scale import resume_study, run_study

    if resume is not None:
        yield from resume_study(resume, context, dry_run=dry_run, wait=wait, as_json=as_json)
        return
    if script is None:
        raise UsageError(
            "SCRIPT is missing",
            hint="hpcrun scale run --gpus 1,2,4 train.py, or hpcrun scale run --list",
        )
    check_least("--warmup", warmup, 0)
    check_least("--repeat", repeat, 1)
    workload = Workload("weak" if weak else "strong", batch_size, lr, dataset)
    design, remark = read_design(
        workload, gpus=gpus, ranks=ranks, nodes=nodes, repeat=repeat, warmup=warmup
    )
    if remark:
        yield note([f"note: {remark}"])
    options["script"] = script
    options["args"] = args or []
    yield from run_study(
        options, design, context, chain=chain, dry_run=dry_run, wait=wait, as_json=as_json
    )


def _check_names_only(shown: str | None, resume: str | None, *, describes_study: bool) -> None:
    """Check that one study is named, and none described beside it.

    Raises:
        UsageError: two are named, or one is described.
    """
    if describes_study or (shown and resume):
        hint = "hpcrun scale run --list"
        raise UsageError("--resume and --show take a study, without SCRIPT and sizes", hint=hint)


def report(
    studies: list[str] | None = argument(
        "STUDY", "Study ids, names, or 'last'. Default: list the studies.", complete=study_name
    ),
    from_csv: list[Path] | None = option(
        "--from-csv FILE", "Read the runs from a table (columns: docs/report.md). Repeatable."
    ),
    gpus_per_node: int | None = option(
        "--gpus-per-node N", "GPUs of each node, for tables that have only nodes."
    ),
    weak: bool | None = option(
        "--weak/--strong",
        "Scaling of the work: per GPU (weak) or in total (strong). Default: the study's.",
    ),
    warmup: int | None = option(
        "--warmup N", "First epochs to leave out. Default: the study's, or 1."
    ),
    min_efficiency: int = option(
        "--min-efficiency PERCENT",
        "Target efficiency: what added GPUs must reach to be worth requesting.",
        default=round(100 * MIN_EFFICIENCY),
    ),
    out: Path | None = option(
        "--out -o DIR",
        "Folder to write. Default: report-NAME-XXXX, with the end of the study's id.",
    ),
    force: bool = flag("--force", "Write to a folder with other files; they are kept."),
    _json: JsonOption = False,
) -> Outcomes:
    """Report how a training scales, and how many GPUs to request.

    Writes text, tables and figures to a folder, once all runs of the studies have ended.
    """
    from hpcrun.features.scaling.points import read_points
    from hpcrun.features.scaling.report_files import report_files, report_json, report_text
    from hpcrun.features.scaling.study_report import (
        make_report,
        read_tables,
        report_name,
        side_by_side,
        study_options,
        study_remarks,
    )

    check_least("--warmup", warmup, 0)
    check_least("--gpus-per-node", gpus_per_node, 1)
    context = make_context()
    if not (studies or from_csv):
        yield from list_studies(context)
        yield note(["hint: hpcrun scale report STUDY, or hpcrun scale report --from-csv FILE"])
        return
    chosen = {}
    for label in studies or []:
        study = yield from chosen_study(label, context)
        chosen[study.study_id] = study
    named = side_by_side(list(chosen.values()), tables=bool(from_csv))
    name = report_name([study.name for study in named] or [path.stem for path in from_csv or ()])
    folder = out or _report_folder(name, named)
    check_folder(folder, force=force)
    settings = study_options(
        named, name=name, weak=weak, warmup=warmup, min_efficiency=min_efficiency
    )
    table = read_tables(from_csv or [], gpus_per_node)
    points, notes = read_points(named, context)
    yield note(notes)
    remarks = [*study_remarks(named), *table.remarks]
    result = make_report((*points, *table.points), settings, claims=table.claims, remarks=remarks)
    if result.unfinished:
        yield Outcome(
            lambda: [stdout(report_text(result))],
            lambda: {**report_json(result), "folder": None, "files": []},
        )
        return
    files, missing = report_files(result)
    save_report(folder, files)
    others = count(len(files) - 1, "other file")
    written = written_line(folder, f": report.html and {others}")
    yield Outcome(
        lambda: [stdout(report_text(result, missing)), stderr([written])],
        lambda: {
            **report_json(result),
            "folder": hooks_of("remote").file_place(folder),
            "files": sorted(files),
        },
    )


def _report_folder(name: str, studies: Sequence[Study]) -> Path:
    """Return the folder for a report; two studies may have the same name."""
    if len(studies) == 1:
        return Path(f"report-{name}-{studies[0].study_id[-4:]}")
    return Path(f"report-{name}")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder with files that no report wrote, before any work is done.

    Raises:
        PlanError: the path is not a folder, or other files are in it and ``force`` is not set.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise PlanError(f"{folder} is not a folder", hint="choose another one with --out DIR")
    others = [name for name in _others(folder) if not name.startswith(_FRESH)]
    if not others or force:
        return
    names = ", ".join(others[:3])
    if len(others) > 3:
        names += " ..."
    raise PlanError(
        f"{folder} contains other files: {names}",
        hint="choose another folder with --out DIR, or keep these files and write with --force",
    )


def save_report(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a report in place of the files of an earlier report.

    What others wrote stays, and a report with a file of its name is refused; on a full disk the
    folder stays as it was.

    Raises:
        PlanError: a file of another origin has the name of a file of the report, or the folder
            cannot be written.
    """
    folder = folder.resolve()
    mark = "".join(f"{name}\n" for name in sorted(files))
    marked = {MARK: mark.encode(), **files}
    try:
        make_folder(folder)
        leftovers = list(folder.glob(f"{_FRESH}*"))  # of reports that were killed
        with tempfile.TemporaryDirectory(prefix=_FRESH, dir=folder) as fresh:
            for leftover in leftovers:
                leftover.rename(Path(fresh, leftover.name))  # and so it is removed
            for name, content in marked.items():
                # only its owner may write to it
                replace_file(Path(fresh, name), content, durable=False, mode=0o644)
            others = _others(folder)
            kept = ", ".join(name for name in others if name in marked)
            if kept:
                raise PlanError(
                    f"{folder}: no report wrote {kept}", hint="choose another folder with --out DIR"
                )
            names = {entry.name for entry in folder.iterdir()}
            for name in names - {*others, *marked}:
                (folder / name).unlink()
            for name in marked:
                os.replace(Path(fresh, name), folder / name)
    except OSError as error:
        message = f"cannot write {folder}: {error.strerror}"
        raise PlanError(message, hint="choose another one with --out DIR") from None


def _others(folder: Path) -> list[str]:
    """Return what lies in a folder and no report wrote."""
    try:
        of_report = {MARK, *read_text(folder / MARK).splitlines()}
    except OSError:
        of_report = set()
    others = []
    for entry in folder.iterdir():
        # a report has no folders: one that its list names is somebody's all the same
        if entry.name not in of_report or entry.is_dir():
            others.append(entry.name)
    return sorted(others)
