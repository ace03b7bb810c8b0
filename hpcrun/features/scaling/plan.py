"""plan: what to expect of other numbers of GPUs, before anything runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, TypeVar

from hpcrun.actions.jobs.job_defaults import settle_gpu_type
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.runs.find import find_run
from hpcrun.actions.status.status_query import one_status
from hpcrun.cli.context import Context
from hpcrun.errors import NotFoundError, PlanError, UsageError
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
    most_fixed_s,
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
from hpcrun.runs.record import Run
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


_NEEDED = {"samples": "samples", "batch_size": "batch_size", "epoch_time": "epoch_s"}
"""Option of the measured epoch → the field that replaces it."""


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
    # whether sizes that were not measured have numbers
    has_numbers: bool = True
    measured_on_several_nodes: bool = False

    def is_known(self, row: Forecast) -> bool:
        """Whether a row has numbers: a measured size, or a forecast that rests on something."""
        return self.has_numbers or row.size.gpus == self.work.gpus

    def leaves_node(self, row: Forecast) -> bool:
        """Whether a size is on several nodes, and all measured ones were on one."""
        return row.size.nodes > 1 and not self.measured_on_several_nodes


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
    price = None
    if "price_per_gpu_hour" in options:
        name = "price_per_gpu_hour"
        price = read_option(name, options[name], parse_positive)

    profile = load_profile(profile_name, surroundings.profile_folders).profile
    if gpu_type is None:
        listed = ",".join(str(size.gpus) for size in numbers)
        gpu_type = settle_gpu_type(profile, listed, surroundings)
    profile = for_gpu_type(profile, _request(numbers[0], gpu_type))
    if price is None:
        price = profile.price.per_gpu_hour
    sizes = tuple(dict.fromkeys(_job_size(size, gpu_type, profile) for size in numbers))
    fitted = _fitted(work, gpu_type, profile)
    rows = forecast(work, cases, sizes, fitted)
    advice = {}
    for case in cases:
        advice[case] = gpus_to_ask_for([row for row in rows if row.case == case], fitted)
    has_numbers = _has_numbers(fitted, options)
    known_rows = rows if has_numbers else ()
    return ForecastResult(
        work=work,
        profile=profile,
        profile_name=profile_name,
        gpu_type=gpu_type,
        rows=rows,
        advice=advice,
        fills_gpu=fitted.half_batch(),
        remedies=tuple(_remedies(work, known_rows, sizes, fitted)),
        price=price,
        notes=(
            *_assumed(work, profile, rows, fitted, has_numbers=has_numbers),
            *_remarks(work, fitted, rows),
        ),
        has_numbers=has_numbers,
        measured_on_several_nodes=any(step.size.nodes > 1 for step in fitted.timed),
    )


def _has_numbers(fitted: StepModel, options: Mapping[str, str]) -> bool:
    """Whether a forecast rests on more than one size and a guess of the fixed overhead.

    From one size it needs a second batch, the time of a step, or the tokens of a sample.
    """
    if len(fitted.timed) > 1 or "tokens_per_sample" in options:
        return True
    return options.get("epoch_time", "").strip().endswith("/step")


def _fitted(work: MeasuredTraining, gpu_type: str | None, profile: Profile) -> StepModel:
    """Return the model of a step, fitted to the measured epochs on nodes of a profile."""
    nodes = []
    for epoch in work.epochs_measured:
        size = _job_size(Size(epoch.gpus, epoch.nodes), gpu_type, profile)
        nodes.append(size.nodes)
    return fit_steps(work, half_rows(profile.card), nodes, most_fixed_s(profile.card))


def _remedies(
    work: MeasuredTraining, rows: Sequence[Forecast], sizes: Sequence[JobSize], fitted: StepModel
) -> Iterator[Forecast]:
    """Yield a better batch for each size with too little work, where there is one."""
    little: dict[JobSize, Forecast] = {}
    for row in rows:
        if "little work" in row.concerns:
            little.setdefault(row.size, row)
    for row in little.values():
        better = remedy(work, row, sizes, fitted)
        if better:
            yield better


def _doublings(work: MeasuredTraining) -> str:
    """Return the measured number of GPUs and three doublings of it.

    A number is left out where the batch or the data set does not allow it.
    """
    fitting = []
    for factor in (1, 2, 4, 8):
        gpus = work.gpus * factor
        if work.batch_size % gpus == 0 and work.batch_per_gpu * gpus <= work.samples:
            fitting.append(str(gpus))
    return ",".join(fitting)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a study or a run measured."""

    fields: dict[str, Any]  # for ``read_workload``
    profile: str  # of the runs, by name or path
    remarks: list[str]  # what a reader must know of the runs


def _request(size: Size, gpu_type: str | None) -> JobRequest:
    gpus = GpuCount(count=size.gpus, type=gpu_type)
    # nothing runs; a request has a script
    return JobRequest(script="true", gpus=gpus, nodes=size.nodes)


def _job_size(size: Size, gpu_type: str | None, profile: Profile) -> JobSize:
    decided = decide_size(_request(size, gpu_type), profile)
    return JobSize(decided.gpus, decided.nodes)


def read_measured(label: str, context: Context, batch_size: str | None = None) -> Measured:
    """Return what a study measured, or what a run measured if no study has this label.

    Runs that are not over count with their epochs.
    """
    batch = None
    if batch_size is not None:
        batch = read_option("batch_size", batch_size, parse_count)
    try:
        study, note = find_study(label, StudyStore(context.store.root))
    except NotFoundError:
        match = find_run(label, context.store)
        note = match.note
        warmup = 1
        profile = match.run.profile_file or match.run.profile
        points, remarks = _read_run(match.run, context)
    else:
        warmup = study.warmup
        profile = study.profile
        points, remarks = read_points([study], context)
    if note:
        remarks = [note, *remarks]
    return Measured(workload_of(points, warmup, batch), profile, remarks)


def _read_run(run: Run, context: Context) -> tuple[list[Point], list[str]]:
    """Return what a run measured, and remarks.

    Raises:
        PlanError: only the script of the run knows its size.
    """
    patterns, remark = context.metric_patterns(run.profile)
    status = one_status(run.run_id, context.ports).runs[0]
    run = status.run  # with the nodes that it has got
    gpus = run.nodes * run.gpus_per_node or run.world_size
    if not gpus:
        raise PlanError(f"{run.run_id}: its script decides its GPUs and ranks, which are not known")
    point = with_measurements(Point(gpus, run.nodes, run=run.run_id), status, patterns)
    return [point], [remark] if remark else []


def _assumed(
    work: MeasuredTraining,
    profile: Profile,
    rows: Sequence[Forecast],
    fitted: StepModel,
    *,
    has_numbers: bool,
) -> Iterator[str]:
    """Yield what the forecast takes for granted."""
    sizes = [StepSize(row.size.gpus, row.size.nodes, 1) for row in rows]
    if any(fitted.leaves_node(size) for size in sizes):
        yield (
            "no size on several nodes was measured: of nine published trainings that left their "
            "first node, two were worth it"
        )
    if len(fitted.timed) > 1:
        return
    if not has_numbers:
        yield (
            "one size and no step decide nothing: for numbers, add --tokens-per-sample N, another "
            "batch as --also BATCH=TIME, or the time of a step, --epoch-time 0.1s/step"
        )
        return
    full = half_rows(profile.card)
    if full is None:
        yield f"profile {profile.name!r} has no GPU model: how many samples fill its GPU is unknown"
        return
    tokens = work.tokens_per_sample
    sample = f"a sample is {tokens} rows"
    if tokens == 1:
        sample = "a sample is one row (--tokens-per-sample)"
    yield (
        f"the fixed overhead of a step is estimated: {full:.0f} rows fill the GPU, and {sample}; "
        "to measure it, add --also BATCH=TIME"
    )


def _remarks(work: MeasuredTraining, fitted: StepModel, rows: Sequence[Forecast]) -> Iterator[str]:
    """Yield what a reader must know of the measurements and the batches."""
    most = _most_of_ideal(fitted)
    if most > SUPER_LINEAR:
        percent = f"{100 * most:.0f} %"
        yield f"a measured size has {percent} of the ideal speed: measure the smallest one again"
    missed = _missed(work, fitted)
    if missed:
        yield (
            f"no forecast reproduces all measured epochs; it is off for {', '.join(missed)}: "
            "measure again"
        )
    rest = work.samples % work.batch_size
    if rest:
        yield f"the last step of an epoch has only {rest} samples; it is counted as a full step"
    if work.lr is None:
        return
    larger = [row for row in rows if row.growth > 1]
    if larger and work.optimizer is None:
        yield (
            "the right learning rate depends on the optimizer: add --optimizer sgd or "
            "--optimizer adam"
        )
    is_beyond = any(row.batch_size > LINEAR_HOLDS for row in larger)
    grows_much = any(row.growth >= LARGE_GROWTH for row in larger)
    if work.optimizer != "adam" and is_beyond and not grows_much:
        yield (
            f"the linear rule was shown up to a global batch of {LINEAR_HOLDS}, on ImageNet: "
            "check the accuracy"
        )


def _most_of_ideal(fitted: StepModel) -> float:
    """Return the largest measured share of the ideal speed, of sizes with no larger batch."""
    first = fitted.first
    most = 0.0
    for timed in fitted.timed:
        is_larger = timed.size.gpus > first.size.gpus
        if is_larger and timed.size.batch_per_gpu <= first.size.batch_per_gpu:
            rate = timed.size.batch_per_gpu / timed.step_s
            most = max(most, rate * first.step_s / first.size.batch_per_gpu)
    return most


def _missed(work: MeasuredTraining, fitted: StepModel) -> list[str]:
    """Return the measured epochs that the model does not reproduce, with its error."""
    missed = []
    for epoch, timed in zip(work.epochs_measured, fitted.timed, strict=True):
        misfit = fitted.misfit(timed)
        if abs(misfit) > _NOTABLE_MISFIT:
            missed.append(f"{epoch.batch_size} on {count(epoch.gpus, 'GPU')} ({misfit:+.0%})")
    return missed


def read_workload(
    options: Mapping[str, str], known: Mapping[str, Any] | None = None
) -> MeasuredTraining:
    """Build the workload from the typed options and from what is known of the runs.

    ``options`` has what was typed, by the names of the options. ``known`` is what the runs' metrics
    say.

    Raises:
        UsageError: a part of the measured epoch is missing.
    """
    typed = {}
    for name, text in options.items():
        if name in _READERS:
            typed[name] = read_option(name, text, _READERS[name])
    where = typed.pop("reference_gpus", None)
    if where:
        gpus, nodes = where
        typed["gpus"] = gpus
        typed["nodes"] = nodes
    values = {**(known or {}), **typed}
    missing = []
    for option, field in _NEEDED.items():
        if option not in options and field not in values:
            missing.append(f"--{option.replace('_', '-')}")
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        if known:
            hint = (
                "add --samples N, or log samples or samples_per_s with hpcrun_runtime.log_metrics"
            )
        else:
            hint = (
                "give --samples, --batch-size and --epoch-time, or read them from metrics: --from "
                "RUN or STUDY"
            )
        raise UsageError(
            f"the measured epoch is incomplete: {', '.join(missing)} {verb} missing", hint=hint
        )
    samples = values["samples"]
    batch_size = values["batch_size"]
    time = options.get("epoch_time")
    if time is not None:
        values["epoch_s"] = read_option(
            "epoch_time", time, lambda text: _epoch_s(text, samples, batch_size)
        )
    also = options.get("also")
    if also is not None:
        epochs = read_option(
            "also", also, lambda text: [_epoch(part, values) for part in text.split(",")]
        )
        values["also"] = (*values.get("also", ()), *epochs)
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
    timed = [_timed(point, warmup) for point in points]
    runs = [run for run in timed if run is not None]
    if not runs:
        raise UsageError(
            "no run has the time of an epoch",
            hint="log it with hpcrun_runtime.log_metrics(epoch_time=...), or give --epoch-time",
        )
    samples = max((run.samples for run in runs if run.samples), default=None)
    sizes: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for run in runs:
        point = run.point
        batch = point.batch_size or batch_size
        if batch is None:
            raise UsageError(
                f"the run on {point.gpus} GPUs does not say its batch",
                hint="add --batch-size, the global batch, or log it with "
                "hpcrun_runtime.log_metrics(batch_size=...)",
            )
        whole = 1.0
        if samples and run.samples:
            whole = samples / run.samples  # an epoch of fewer samples, as in part
        sizes[point.gpus, point.nodes, batch].append(run.epoch_s * whole)
    epochs = []
    for (gpus, nodes, batch), times in sorted(sizes.items()):
        epochs.append(MeasuredEpoch(gpus, batch, fmean(times), nodes))
    fields = asdict(epochs[0])
    fields["also"] = tuple(epochs[1:])
    if samples:
        fields["samples"] = samples
    return fields


@dataclass(frozen=True, slots=True)
class _TimedRun:
    """A run with the time of its epoch."""

    point: Point
    epoch_s: float
    samples: int | None  # of an epoch


def _timed(point: Point, warmup: int) -> _TimedRun | None:
    """Return a run with the samples and the time of its epoch.

    One of the two may follow from the samples per second. Return None if there is no time.
    """
    run = measure(point, warmup)
    rate = run.samples_per_s
    epoch_s = run.epoch_s
    samples = point.samples
    if rate and epoch_s and not samples:
        samples = round(rate * epoch_s)
    if rate and samples and not epoch_s:
        epoch_s = samples / rate
    if not epoch_s:
        return None
    return _TimedRun(point, epoch_s, samples)


def read_option(name: str, text: str, parse: Callable[[str], _Item]) -> _Item:
    """Read the value of one option, which an error message names.

    Raises:
        UsageError: ``parse`` refuses the value.
    """
    try:
        return parse(text)
    except ValueError as error:
        message = f"--{name.replace('_', '-')}: {error}"
        raise UsageError(message, hint="see hpcrun scale plan --help") from None


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
    written = text.strip()
    time_s = parse_duration(written.removesuffix("/step"))
    if written.endswith("/step"):
        return time_s * steps_per_epoch(samples, batch_size)
    return time_s


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
    gpus = known.get("gpus", 1)
    nodes = known.get("nodes")
    if colon:
        gpus, nodes = _gpus_on_nodes(where)
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
    """Check that the measured epochs are possible and different.

    Raises:
        UsageError: they are not, or the warm-up is longer than the training.
    """
    option = "--batch-size"
    for epoch in work.epochs_measured:
        _check_batch(option, epoch, work.samples)
        option = "--also"
    sizes = Counter((epoch.gpus, epoch.nodes, epoch.batch_size) for epoch in work.epochs_measured)
    for (gpus, _, batch_size), times in sizes.items():
        if times > 1:
            other_gpus = f"--also {gpus * 2}:{batch_size}=TIME"
            raise UsageError(
                f"--also {gpus}:{batch_size} is measured twice",
                hint=f"give an epoch with another batch, such as {batch_size * 2}, or on other "
                f"GPUs: {other_gpus}",
            )
    if work.warmup_epochs is not None and 1 < work.epochs < work.warmup_epochs:
        raise UsageError(
            f"--warmup-epochs {work.warmup_epochs:g} is more than --epochs {work.epochs}",
            hint=f"--epochs is the total number of epochs; Goyal et al. took {WARMUP_EPOCHS} of 90",
        )


def _check_batch(option: str, epoch: MeasuredEpoch, samples: int) -> None:
    """Check the batch of a measured epoch.

    Raises:
        UsageError: the batch is larger than an epoch, or does not divide by the GPUs.
    """
    batch_size = epoch.batch_size
    if batch_size > samples:
        raise UsageError(
            f"{option} {batch_size} is more than the {samples} samples of an epoch",
            hint=f"--samples takes {COUNT_FORMS}",
        )
    if batch_size % epoch.gpus:
        each = f"{batch_size / epoch.gpus:.2f} each"
        raise UsageError(
            f"{option} {batch_size} does not divide by {epoch.gpus} GPUs: {each}",
            hint=f"give the global batch: {multiples_around(batch_size, epoch.gpus)}",
        )
