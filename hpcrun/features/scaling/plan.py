"""plan: what to expect of other numbers of GPUs, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, TypeVar

from hpcrun.actions.jobs.job_defaults import settle_gpu_type
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.runs.find import find_run
from hpcrun.actions.status.status_query import one_status
from hpcrun.cli.context import Context
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.features.scaling.doubts import SUPER_LINEAR
from hpcrun.features.scaling.forecast import (
    CASES,
    LARGE_GROWTH,
    WARMUP_EPOCHS,
    Case,
    Forecast,
    GpuAdvice,
    JobSize,
    MeasuredEpoch,
    MeasuredTraining,
    Optimizer,
    fit_steps,
    forecast,
    gpus_to_ask_for,
    half_rows,
    remedy,
    steps_per_epoch,
)
from hpcrun.features.scaling.points import Point, measure, read_points, with_measurements
from hpcrun.features.scaling.sizes import Size, parse_sizes
from hpcrun.features.scaling.step_model import StepModel, StepSize
from hpcrun.features.scaling.studies import StudyStore, find_study
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import GpuCount, JobRequest
from hpcrun.job.resources.shape import decide_size, for_gpu_type, multiples_around
from hpcrun.job.text.units import COUNT_FORMS, parse_count, parse_duration, parse_positive
from hpcrun.profiles.load import load_profile
from hpcrun.views.text import count

MOST_SIZES = 64
_NOTABLE_MISFIT = 0.05
LINEAR_HOLDS = 8192
"""Goyal et al. 2017 (arXiv:1706.02677): the error of ResNet-50 on ImageNet stays up to this batch,
and rises beyond.
"""
OPTIMIZERS: dict[str, Optimizer] = {
    **dict.fromkeys(("sgd", "momentum"), "sgd"),
    **dict.fromkeys(("adam", "adamw", "nadam", "rmsprop"), "adam"),
}
"""Name of an optimizer → the optimizer whose rule applies."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """What to expect, and what it rests on."""

    work: MeasuredTraining
    profile: Profile
    profile_name: str  # as it was asked for, by name or path
    gpu_type: str | None  # the one that was named
    rows: tuple[Forecast, ...]
    advice: dict[Case, GpuAdvice]  # the GPUs to ask for in each case that is to be forecast
    # samples of a step below which a GPU spends more than half of its computing on fixed overhead
    fills_gpu: float
    # for each number of GPUs with too little work, a batch that gives them enough
    remedies: tuple[Forecast, ...]
    price: float | None
    notes: tuple[str, ...]  # what was left out, or taken for granted


def make_forecast(
    options: Mapping[str, str],
    known: Mapping[str, Any],
    profile_name: str,
    surroundings: Surroundings,
) -> ForecastResult:
    """Forecast every number of GPUs on a profile.

    ``options``: as typed; ``known``: as ``read_measured`` returns it.

    Raises:
        UsageError: there are too many numbers of GPUs.
    """
    work = read_workload(options, known)
    gpu_type, numbers = parse_sizes(
        options.get("gpus", _doublings(work)), options.get("nodes"), "--gpus"
    )
    if len(numbers) > MOST_SIZES:
        raise UsageError(f"--gpus: {len(numbers)} numbers are more than {MOST_SIZES}")
    cases = read_option("mode", options.get("mode", "both"), lambda text: one_of(text, CASES))
    price = options.get("price_per_gpu_hour")
    if price is None:
        price_h = None
    else:
        price_h = read_option("price_per_gpu_hour", price, parse_positive)

    profile = load_profile(profile_name, surroundings.profile_folders).profile
    gpu_type = gpu_type or settle_gpu_type(
        profile, ",".join(str(size.gpus) for size in numbers), surroundings
    )
    profile = for_gpu_type(profile, _request(numbers[0], gpu_type))
    sizes = tuple(dict.fromkeys(_job_size(size, gpu_type, profile) for size in numbers))
    measured = [
        _job_size(Size(epoch.gpus, epoch.nodes), gpu_type, profile)
        for epoch in work.epochs_measured
    ]
    fitted = fit_steps(work, half_rows(profile.card), [size.nodes for size in measured])
    rows = forecast(work, cases, sizes, fitted)
    little: dict[JobSize, Forecast] = {}
    for row in rows:
        if "little work" in row.concerns:
            little.setdefault(row.size, row)
    return ForecastResult(
        work=work,
        profile=profile,
        profile_name=profile_name,
        gpu_type=gpu_type,
        rows=rows,
        advice={
            case: gpus_to_ask_for([row for row in rows if row.case == case], fitted)
            for case in cases
        },
        fills_gpu=fitted.half_batch(),
        remedies=tuple(
            better for row in little.values() if (better := remedy(work, row, sizes, fitted))
        ),
        price=profile.price.per_gpu_hour if price_h is None else price_h,
        notes=(*_assumed(work, profile, rows, fitted), *_remarks(work, fitted, rows)),
    )


def _doublings(work: MeasuredTraining) -> str:
    """Return the measured number of GPUs and three doublings of it.

    A number is left out where the batch or the data set does not allow it.
    """
    counts = [work.gpus * factor for factor in (1, 2, 4, 8)]
    fitting = [
        gpus
        for gpus in counts
        if work.batch_size % gpus == 0 and work.batch_per_gpu * gpus <= work.samples
    ]
    return ",".join(map(str, fitting))


def _request(size: Size, gpu_type: str | None) -> JobRequest:
    gpus = GpuCount(count=size.gpus, type=gpu_type)
    # nothing runs; a request has a script
    return JobRequest(script="true", gpus=gpus, nodes=size.nodes)


def _job_size(size: Size, gpu_type: str | None, profile: Profile) -> JobSize:
    decided = decide_size(_request(size, gpu_type), profile)
    return JobSize(decided.gpus, decided.nodes)


def read_measured(
    label: str, context: Context, batch_size: str | None = None
) -> tuple[dict[str, Any], str, list[str]]:
    """Read what a study measured, or what a run measured if no study has this label.

    Runs that are not over count with their epochs.

    Returns:
        the fields for ``read_workload``, the profile of the runs by name or path, and what a reader
        must know of them.
    """
    if batch_size is None:
        batch = None
    else:
        batch = read_option("batch_size", batch_size, parse_count)
    try:
        study, note = find_study(label, StudyStore(context.store.root))
    except NotFoundError:
        match = find_run(label, context.store)
        run, note, warmup, profile = (
            match.run,
            match.note,
            1,
            match.run.profile_file or match.run.profile,
        )
        patterns, remark = context.metric_patterns(run.profile)
        point = Point(run.nodes * run.gpus_per_node or run.world_size, run.nodes, run=run.run_id)
        points = [with_measurements(point, one_status(run.run_id, context.ports).runs[0], patterns)]
        remarks = [remark] if remark else []
    else:
        (points, remarks), warmup, profile = (
            read_points([study], context),
            study.warmup,
            study.profile,
        )
    return workload_of(points, warmup, batch), profile, [note, *remarks] if note else remarks


def _assumed(
    work: MeasuredTraining, profile: Profile, rows: Sequence[Forecast], fitted: StepModel
) -> Iterator[str]:
    """Yield what the forecast takes for granted."""
    if any(fitted.leaves_node(StepSize(row.size.gpus, row.size.nodes, 1)) for row in rows):
        yield (
            "no size on several nodes was measured: of nine published trainings that left their "
            "first node, two were "
            "worth it"
        )
    if len({epoch.batch_size // epoch.gpus for epoch in work.epochs_measured}) > 1:
        return
    tokens = work.tokens_per_sample
    full = half_rows(profile.card)
    if tokens == 1:
        sample = "a sample is one row (--tokens-per-sample)"
    else:
        sample = f"a sample is {tokens} rows"
    if full is None:
        yield f"profile {profile.name!r} has no GPU model: how many samples fill its GPU is unknown"
    else:
        yield (
            f"the fixed overhead of a step is estimated: {full:.0f} rows fill the GPU, and "
            f"{sample}; "
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
    most = max(rates, default=0.0)
    if most > SUPER_LINEAR:
        yield (
            f"a measured size has {100 * most:.0f} % of the ideal speed: measure the smallest "
            "one again"
        )
    off = [
        f"{epoch.batch_size} on {count(epoch.gpus, 'GPU')} ({misfit:+.0%})"
        for epoch, each in zip(work.epochs_measured, fitted.timed, strict=True)
        if abs(misfit := fitted.misfit(each)) > _NOTABLE_MISFIT
    ]
    if off:
        yield (
            f"no forecast reproduces all measured epochs; it is off for {', '.join(off)}: "
            "measure again"
        )
    rest = work.samples % work.batch_size
    if rest:
        yield f"the last step of an epoch has only {rest} samples; it is counted as a full step"
    larger = [row for row in rows if row.growth > 1 and work.lr is not None]
    if larger and work.optimizer is None:
        yield (
            "the right learning rate depends on the optimizer: add --optimizer sgd or "
            "--optimizer adam"
        )
    beyond = any(row.batch_size > LINEAR_HOLDS for row in larger) and all(
        row.growth < LARGE_GROWTH for row in larger
    )
    if work.optimizer != "adam" and beyond:
        yield (
            f"the linear rule was shown up to a global batch of {LINEAR_HOLDS}, on ImageNet: "
            "check the accuracy"
        )


def read_workload(
    options: Mapping[str, str], known: Mapping[str, Any] | None = None
) -> MeasuredTraining:
    """Build the workload from the typed options and from what is known of the runs.

    ``options`` has what was typed, by the names of the options. ``known`` is what the runs' metrics
    say.

    Raises:
        UsageError: a part of the measured epoch is missing.
    """
    typed = {
        name: read_option(name, text, _READERS[name])
        for name, text in options.items()
        if name in _READERS
    }
    where = typed.pop("reference_gpus", None)
    if where:
        typed["gpus"], typed["nodes"] = where
    values = {**(known or {}), **typed}
    # option → field
    needed = {"samples": "samples", "batch_size": "batch_size", "epoch_time": "epoch_s"}
    missing = [
        f"--{name.replace('_', '-')}"
        for name in needed
        if not {name, needed[name]} & {*options, *values}
    ]
    if missing:
        raise UsageError(
            f"the measured epoch is incomplete: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            hint="add --samples N, or log samples or samples_per_s with hpcrun_runtime.log_metrics"
            if known
            else "give --samples, --batch-size and --epoch-time, or read them from metrics: --from "
            "RUN or STUDY",
        )
    samples = values["samples"]
    batch_size = values["batch_size"]
    text = options.get("epoch_time")
    if text is not None:
        values["epoch_s"] = read_option(
            "epoch_time", text, lambda text: _epoch_s(text, samples, batch_size)
        )
    text = options.get("also")
    if text is not None:
        more = read_option(
            "also", text, lambda text: [_epoch(part, values) for part in text.split(",")]
        )
        values["also"] = (*values.get("also", ()), *more)
    work = MeasuredTraining(**values)
    _check(work)
    return work


def workload_of(
    points: Sequence[Point], warmup: int, batch_size: int | None = None
) -> dict[str, Any]:
    """Return the fields for ``read_workload`` that are known from the runs of a training.

    Runs of the same size and batch are repeats: their mean counts. The smallest size is the
    reference.

    Raises:
        UsageError: no run has the time of an epoch, or a run does not say its batch.
    """
    timed = [item for point in points if (item := _timed(point, warmup))]
    if not timed:
        raise UsageError(
            "no run has the time of an epoch",
            hint="log it with hpcrun_runtime.log_metrics(epoch_time=...), or give --epoch-time",
        )
    samples = max((point.samples for point, _ in timed if point.samples), default=None)
    sizes: dict[tuple[int, int, int], list[float]] = {}
    for point, epoch_s in timed:
        batch = point.batch_size or batch_size
        if batch is None:
            raise UsageError(
                f"the run on {point.gpus} GPUs does not say its batch",
                hint="add --batch-size, the global batch, or log it with "
                "hpcrun_runtime.log_metrics(batch_size=...)",
            )
        # an epoch of fewer samples, as in part
        if samples and point.samples:
            whole = samples / point.samples
        else:
            whole = 1.0
        sizes.setdefault((point.gpus, point.nodes, batch), []).append(epoch_s * whole)
    epochs = [
        MeasuredEpoch(gpus, batch, fmean(times), nodes)
        for (gpus, nodes, batch), times in sorted(sizes.items())
    ]
    return {
        **asdict(epochs[0]),
        "also": tuple(epochs[1:]),
        **({"samples": samples} if samples else {}),
    }


def _timed(point: Point, warmup: int) -> tuple[Point, float] | None:
    """Return a run with the samples and the time of its epoch.

    One of the two may follow from the samples per second. Return None if there is no time.
    """
    run = measure(point, warmup)
    rate, epoch_s, samples = run.samples_per_s, run.epoch_s, point.samples
    if rate and epoch_s and not samples:
        samples = round(rate * epoch_s)
    if rate and samples and not epoch_s:
        epoch_s = samples / rate
    if epoch_s:
        return (replace(point, samples=samples), epoch_s)
    return None


def read_option(name: str, text: str, parse: Callable[[str], _Item]) -> _Item:
    """Read the value of one option, which an error message names.

    Raises:
        UsageError: ``parse`` refuses the value.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(
            f"--{name.replace('_', '-')}: {error}", hint="see hpcrun scale plan --help"
        ) from None


def one_of(text: str, known: Mapping[str, _Item]) -> _Item:
    """Return the meaning of a word.

    Raises:
        ValueError: the word is not a known one.
    """
    if text.lower() not in known:
        raise ValueError(f"{text!r} is none of {', '.join(known)}")
    return known[text.lower()]


def _epoch_s(text: str, samples: int, batch_size: int) -> float:
    """Read the time of an epoch, or of a step: ``36m``, ``0.108s/step``."""
    time = text.strip().removesuffix("/step")
    return parse_duration(time) * (
        1 if time == text.strip() else steps_per_epoch(samples, batch_size)
    )


def _epoch(text: str, known: Mapping[str, Any]) -> MeasuredEpoch:
    """Read ``[GPUS[/NODES]:]BATCH=TIME``.

    Without GPUS, the GPUs and nodes of the measured epoch count.

    Raises:
        ValueError: the text has no ``=``, or a part of it cannot be read.
    """
    size, equals, time = text.strip().partition("=")
    if not equals:
        raise ValueError(
            f"{size!r} has no '='; write BATCH=TIME or GPUS:BATCH=TIME, such as 4096=17m or "
            "4:4096=17m"
        )
    where, colon, batch = size.rpartition(":")
    batch_size = parse_count(batch)
    gpus, nodes = _gpus_on_nodes(where) if colon else (known.get("gpus", 1), known.get("nodes"))
    return MeasuredEpoch(gpus, batch_size, _epoch_s(time, known["samples"], batch_size), nodes)


def _gpus_on_nodes(text: str) -> tuple[int, int | None]:
    """Read ``GPUS`` or ``GPUS/NODES``."""
    gpus, slash, nodes = text.partition("/")
    return parse_count(gpus), parse_count(nodes) if slash else None


_READERS: dict[str, Callable[[str], Any]] = {
    "samples": parse_count,
    "batch_size": parse_count,
    "reference_gpus": _gpus_on_nodes,
    "lr": parse_positive,
    "optimizer": lambda text: one_of(text, OPTIMIZERS),
    "warmup_epochs": parse_positive,
    "epochs": parse_count,
    "tokens_per_sample": parse_count,
}
"""How the value of an option is read that needs no other one."""


def _check(work: MeasuredTraining) -> None:
    for option, epoch in zip(
        ["--batch-size", *["--also"] * len(work.also)], work.epochs_measured, strict=True
    ):
        if epoch.batch_size > work.samples:
            raise UsageError(
                f"{option} {epoch.batch_size} is more than the {work.samples} samples of an epoch",
                hint=f"--samples takes {COUNT_FORMS}",
            )
        if epoch.batch_size % epoch.gpus:
            each = f"{epoch.batch_size / epoch.gpus:.2f} each"
            raise UsageError(
                f"{option} {epoch.batch_size} does not divide by {epoch.gpus} GPUs: {each}",
                hint=f"give the global batch: {multiples_around(epoch.batch_size, epoch.gpus)}",
            )
    sizes = [(epoch.gpus, epoch.nodes, epoch.batch_size) for epoch in work.epochs_measured]
    twice = next((size for size in sizes if sizes.count(size) > 1), None)
    if twice:
        gpus, _, batch_size = twice
        raise UsageError(
            f"--also {gpus}:{batch_size} is measured twice",
            hint=f"give an epoch with another batch, such as {batch_size * 2}, or on other GPUs: "
            f"--also {gpus * 2}:{batch_size}=TIME",
        )
    if work.warmup_epochs is not None and work.epochs > 1 and work.warmup_epochs > work.epochs:
        raise UsageError(
            f"--warmup-epochs {work.warmup_epochs:g} is more than --epochs {work.epochs}",
            hint=f"--epochs is the total number of epochs; Goyal et al. took {WARMUP_EPOCHS} of 90",
        )
