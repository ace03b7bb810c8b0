"""plan: what to expect of other numbers of GPUs, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcrun.actions.jobs.choices import settle_gpu_type
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.runs.find import find_run
from hpcrun.actions.status.status import one_status
from hpcrun.cli.context import Context
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.features.scaling.forecast import (
    CASES,
    LARGE_GROWTH,
    Case,
    Forecast,
    GpuAdvice,
    JobSize,
    fit_steps,
    forecast,
    gpus_to_ask_for,
    half_rows,
    remedy,
)
from hpcrun.features.scaling.points import Point
from hpcrun.features.scaling.sizes import Size, parse_sizes
from hpcrun.features.scaling.step_model import StepModel, StepSize
from hpcrun.features.scaling.studies import StudyStore
from hpcrun.features.scaling.study import find_study, read_points, with_measurements
from hpcrun.features.scaling.verdict import SUPER_LINEAR
from hpcrun.features.scaling.workload import MeasuredTraining, one_of, read_option, read_workload, workload_of
from hpcrun.job.profile import Profile
from hpcrun.job.request import GpuCount, JobRequest
from hpcrun.job.shape import decide_shape, for_gpu_type
from hpcrun.job.units import parse_count, parse_positive
from hpcrun.profiles.load import load_profile

MOST_SIZES = 64
_NOTABLE_MISFIT = 0.05

LINEAR_HOLDS = 8192
"""Goyal et al. 2017 (arXiv:1706.02677): the error of ResNet-50 on ImageNet stays up to this batch, and rises beyond."""


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """What is to be forecast."""

    work: MeasuredTraining
    gpu_type: str | None  # the one that was named
    sizes: tuple[Size, ...]  # without a number of nodes, the profile's GPUs per node decide it
    cases: tuple[Case, ...]
    price: float | None  # of a GPU for an hour; None takes the profile's


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """What to expect, and what it rests on."""

    question: ForecastRequest
    profile: Profile
    profile_name: str  # as it was asked for, by name or path
    gpu_type: str | None  # the one that was named
    rows: tuple[Forecast, ...]
    advice: dict[Case, GpuAdvice]  # the GPUs to ask for in each case
    fills_gpu: float  # samples of a step below which a GPU spends more than half of its computing on fixed overhead
    remedies: tuple[Forecast, ...]  # for each number of GPUs with too little work, a batch that gives them enough
    price: float | None
    notes: tuple[str, ...]  # what was left out, or taken for granted


def read_question(options: Mapping[str, str], known: Mapping[str, Any] | None = None) -> ForecastRequest:
    """Build the question from what was typed, by the names of the options.

    Args:
        known: what the metrics of runs say of the training, as ``workload_of`` returns it.
    """
    work = read_workload(options, known)
    gpu_type, sizes = parse_sizes(options.get("gpus", _doublings(work)), options.get("nodes"), "--gpus")
    if len(sizes) > MOST_SIZES:
        raise UsageError(f"--gpus: {len(sizes)} numbers are more than {MOST_SIZES}")
    cases = read_option("mode", options.get("mode", "both"), lambda text: one_of(text, CASES))
    price = options.get("price_per_gpu_hour")
    each_h = None if price is None else read_option("price_per_gpu_hour", price, parse_positive)
    return ForecastRequest(work, gpu_type, sizes, cases, each_h)


def _doublings(work: MeasuredTraining) -> str:
    """Return the measured GPUs and three doublings of them, as far as the batch and the data set allow."""
    counts = [work.gpus * factor for factor in (1, 2, 4, 8)]
    fitting = [gpus for gpus in counts if work.batch_size % gpus == 0 and work.batch_per_gpu * gpus <= work.samples]
    return ",".join(map(str, fitting))


def read_measured(label: str, context: Context, batch_size: str | None = None) -> tuple[dict[str, Any], str, list[str]]:
    """Read what a study measured, or a run if no study has this name; runs that are not over count with their epochs.

    Args:
        label: of the study or run.
        batch_size: the global batch of runs that do not record theirs, as typed.

    Returns:
        the fields for ``read_question``, the profile of the runs by name or path, and what a reader must know of them.
    """
    batch = None if batch_size is None else read_option("batch_size", batch_size, parse_count)
    ports = context.ports
    try:
        study = find_study(label, StudyStore(ports.store.root)).study
    except NotFoundError:
        match = find_run(label, ports.store)
        run = match.run
        (item,) = one_status(run.run_id, ports).runs
        point = Point(run.nodes * run.gpus_per_node or run.world_size, run.nodes, run=run.run_id)
        measured = with_measurements(point, item, context.metric_patterns(run.profile)[0])
        return workload_of([measured], 1, batch), run.profile_file or run.profile, [match.note] if match.note else []
    points = read_points([study], ports, patterns=lambda profile: context.metric_patterns(profile)[0])
    away = [f"hpcrun: {points.away.message}"] if points.away else []
    return workload_of(points.points, study.warmup, batch), study.profile, away


def make_forecast(question: ForecastRequest, profile_name: str, surroundings: Surroundings) -> ForecastResult:
    """Forecast every number of GPUs on a profile."""
    profile = load_profile(profile_name, surroundings.profile_folders).profile
    work, numbers = question.work, ",".join(str(size.gpus) for size in question.sizes)
    gpu_type = question.gpu_type or settle_gpu_type(profile, numbers, surroundings)
    profile = for_gpu_type(profile, _request(question.sizes[0], gpu_type))
    sizes = tuple(dict.fromkeys(_job_size(size, gpu_type, profile) for size in question.sizes))
    measured = [_job_size(Size(epoch.gpus, epoch.nodes), gpu_type, profile) for epoch in work.epochs_measured]
    fitted = fit_steps(work, half_rows(profile.card), [size.nodes for size in measured])
    rows = forecast(work, question.cases, sizes, fitted)
    advice = {case: gpus_to_ask_for([row for row in rows if row.case == case], fitted) for case in question.cases}
    return ForecastResult(
        question=question,
        profile=profile,
        profile_name=profile_name,
        gpu_type=gpu_type,
        rows=rows,
        advice=advice,
        fills_gpu=fitted.half_batch(),
        remedies=_remedies(work, rows, sizes, fitted),
        price=question.price if question.price is not None else profile.price.per_gpu_hour,
        notes=(*_assumed(work, profile, rows, fitted), *_remarks(work, fitted, rows)),
    )


def _request(size: Size, gpu_type: str | None) -> JobRequest:
    gpus = GpuCount(count=size.gpus, type=gpu_type)
    return JobRequest(script="true", gpus=gpus, nodes=size.nodes)  # nothing runs; a request has a script


def _job_size(size: Size, gpu_type: str | None, profile: Profile) -> JobSize:
    shape = decide_shape(_request(size, gpu_type), profile)
    return JobSize(shape.gpus, shape.nodes)


def _remedies(
    work: MeasuredTraining, rows: Sequence[Forecast], sizes: Sequence[JobSize], fitted: StepModel
) -> tuple[Forecast, ...]:
    """Return for each size with too little work a larger batch, if there is one to recommend."""
    little: dict[JobSize, Forecast] = {}
    for row in rows:
        if "little work" in row.concerns:
            little.setdefault(row.size, row)
    return tuple(filter(None, (remedy(work, row, sizes, fitted) for row in little.values())))


def _assumed(work: MeasuredTraining, profile: Profile, rows: Sequence[Forecast], fitted: StepModel) -> Iterator[str]:
    """Yield what the forecast takes for granted."""
    if any(fitted.leaves_node(StepSize(row.size.gpus, row.size.nodes, 1)) for row in rows):
        yield (
            "no size on several nodes was measured: of nine published trainings that left their first node, two were "
            "worth it"
        )
    if len({epoch.batch_size // epoch.gpus for epoch in work.epochs_measured}) > 1:
        return
    tokens, full = work.tokens_per_sample, half_rows(profile.card)
    sample = "a sample is one row (--tokens-per-sample)" if tokens == 1 else f"a sample is {tokens} rows"
    if full is None:
        yield f"profile {profile.name!r} has no GPU model: how many samples fill its GPU is unknown"
    else:
        yield (
            f"the fixed overhead of a step is estimated: {full:.0f} rows fill the GPU, and {sample}; "
            "to measure it, add --also BATCH=TIME"
        )


def _remarks(work: MeasuredTraining, fitted: StepModel, rows: Sequence[Forecast]) -> Iterator[str]:
    """Yield what a reader must know of the measurements and the batches."""
    first = fitted.first
    rates = (
        each.size.batch_per_gpu / each.step_s * first.step_s / first.size.batch_per_gpu
        for each in fitted.timed
        if each.size.batch_per_gpu <= first.size.batch_per_gpu and each.size.gpus > first.size.gpus
    )
    if (most := max(rates, default=0.0)) > SUPER_LINEAR:
        yield f"a measured size has {100 * most:.0f} % of the ideal speed: measure the smallest one again"
    misfits = [(epoch, fitted.misfit(each)) for epoch, each in zip(work.epochs_measured, fitted.timed, strict=True)]
    off = [
        f"{epoch.batch_size} on {epoch.gpus} {'GPU' if epoch.gpus == 1 else 'GPUs'} ({misfit:+.0%})"
        for epoch, misfit in misfits
        if abs(misfit) > _NOTABLE_MISFIT
    ]
    if off:
        yield f"no forecast reproduces all measured epochs; it is off for {', '.join(off)}: measure again"
    if rest := work.samples % work.batch_size:
        yield f"the last step of an epoch has only {rest} samples; it is counted as a full step"
    larger = [row for row in rows if row.growth > 1 and work.lr is not None]
    if larger and work.optimizer is None:
        yield "the right learning rate depends on the optimizer: add --optimizer sgd or --optimizer adam"
    beyond = any(row.batch_size > LINEAR_HOLDS for row in larger) and all(row.growth < LARGE_GROWTH for row in larger)
    if work.optimizer != "adam" and beyond:
        yield f"the linear rule was shown up to a global batch of {LINEAR_HOLDS}, on ImageNet: check the accuracy"
