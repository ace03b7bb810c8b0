"""The measured training from which a forecast starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, TypeVar

from hpcrun.errors import UsageError
from hpcrun.features.scaling.points import Point, measure
from hpcrun.job.shape import multiples_around
from hpcrun.job.units import COUNT_FORMS, parse_count, parse_duration, parse_positive

Optimizer = Literal["sgd", "adam"]

WARMUP_EPOCHS = 5
"""Goyal et al. 2017 (arXiv:1706.02677, section 2.2): the rate is raised gradually over the first 5 epochs."""

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": "sgd",
    "momentum": "sgd",
    "adam": "adam",
    "adamw": "adam",
    "nadam": "adam",
    "rmsprop": "adam",
}
"""Name of an optimizer → the optimizer whose rule applies."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """The time of an epoch with some global batch on some GPUs."""

    gpus: int
    batch_size: int
    epoch_s: float
    nodes: int | None = None  # None for the fewest that hold the GPUs


@dataclass(frozen=True, slots=True)
class MeasuredTraining:
    """One measured epoch, others for comparison, and the properties of the training."""

    samples: int  # of the data set in one epoch
    batch_size: int  # the global batch of the measured GPUs
    epoch_s: float  # the time of an epoch on them
    gpus: int = 1  # the number of measured GPUs
    nodes: int | None = None  # of the measured GPUs; None for the fewest that hold them
    also: tuple[MeasuredEpoch, ...] = ()  # other measured epochs, with another batch or on other GPUs
    lr: float | None = None
    optimizer: Optimizer | None = None
    warmup_epochs: float | None = None
    epochs: int = 1
    tokens_per_sample: int = 1  # tokens, patches or pixels of one sample that pass through a layer together

    @property
    def batch_per_gpu(self) -> int:
        """The measured batch of one GPU."""
        return self.batch_size // self.gpus

    @property
    def most_per_gpu(self) -> int:
        """The largest measured batch of one GPU."""
        return max(epoch.batch_size // epoch.gpus for epoch in self.epochs_measured)

    @property
    def epochs_measured(self) -> tuple[MeasuredEpoch, ...]:
        """All measured epochs, the one that sets the scale first."""
        return (MeasuredEpoch(self.gpus, self.batch_size, self.epoch_s, self.nodes), *self.also)

    @property
    def step_s(self) -> float:
        """The measured time of a step."""
        return self.epoch_s / steps_per_epoch(self.samples, self.batch_size)

    @property
    def warmup(self) -> float:
        """Epochs of warm-up: as given, else those of Goyal et al., and at most half of a short training."""
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return min(WARMUP_EPOCHS, self.epochs / 2) if self.epochs > 1 else WARMUP_EPOCHS


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Return the steps of an epoch, the last one with the rest, like torch's DataLoader by default."""
    return -(-samples // batch_size)


def read_workload(options: Mapping[str, str], known: Mapping[str, Any] | None = None) -> MeasuredTraining:
    """Build the workload from the typed values, by the names of the options.

    Args:
        known: fields that were read from the metrics of runs; a typed value replaces them, ``also`` adds to them.
    """
    typed = {name: read_option(name, text, _READERS[name]) for name, text in options.items() if name in _READERS}
    if where := typed.pop("reference_gpus", None):
        typed["gpus"], typed["nodes"] = where
    values = {**(known or {}), **typed}
    missing = [
        f"--{name.replace('_', '-')}" for name, field in NEEDED.items() if not {name, field} & {*options, *values}
    ]
    if missing:
        raise UsageError(
            f"the measured epoch is incomplete: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            hint="add --samples N, or log samples or samples_per_s with hpcrun_runtime.log_metrics"
            if known
            else "give --samples, --batch-size and --epoch-time, or read them from metrics: --from RUN or STUDY",
        )
    samples, batch_size = values["samples"], values["batch_size"]
    if (text := options.get("epoch_time")) is not None:
        values["epoch_s"] = read_option("epoch_time", text, lambda text: _epoch_s(text, samples, batch_size))
    if (text := options.get("also")) is not None:
        more = read_option("also", text, lambda text: [_epoch(part, values) for part in text.split(",")])
        values["also"] = (*values.get("also", ()), *more)
    work = MeasuredTraining(**values)
    _check(work)
    return work


def workload_of(points: Sequence[Point], warmup: int, batch_size: int | None = None) -> dict[str, Any]:
    """Return what the runs of a training say of it: the fields for ``read_workload``, those that are known.

    Runs of the same size and batch are repeats: their mean counts. The smallest size is the reference.

    Args:
        warmup: first epochs of each run that do not count.
        batch_size: the global batch of runs that do not say theirs.
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
                hint="add --batch-size, the global batch, or log it with hpcrun_runtime.log_metrics(batch_size=...)",
            )
        whole = samples / point.samples if samples and point.samples else 1.0  # an epoch of fewer samples, as in part
        sizes.setdefault((point.gpus, point.nodes, batch), []).append(epoch_s * whole)
    epochs = [MeasuredEpoch(gpus, batch, fmean(times), nodes) for (gpus, nodes, batch), times in sorted(sizes.items())]
    first = epochs[0]
    known = {
        "samples": samples,
        "batch_size": first.batch_size,
        "epoch_s": first.epoch_s,
        "gpus": first.gpus,
        "nodes": first.nodes,
        "also": tuple(epochs[1:]),
    }
    return {name: value for name, value in known.items() if value is not None}


def _timed(point: Point, warmup: int) -> tuple[Point, float] | None:
    """Return a run with the samples and the time of its epoch; one of them may follow from its samples per second."""
    run = measure(point, warmup)
    rate, epoch_s, samples = run.samples_per_s, run.epoch_s, point.samples
    if rate and epoch_s and not samples:
        samples = round(rate * epoch_s)
    if rate and samples and not epoch_s:
        epoch_s = samples / rate
    return (replace(point, samples=samples), epoch_s) if epoch_s else None


def read_option(name: str, text: str, parse: Callable[[str], _Item]) -> _Item:
    """Read the value of one option, which an error message names."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"--{name.replace('_', '-')}: {error}", hint="see hpcrun scale plan --help") from None


def one_of(text: str, known: Mapping[str, _Item]) -> _Item:
    """Return the meaning of a word."""
    if text.lower() not in known:
        raise ValueError(f"{text!r} is none of {', '.join(known)}")
    return known[text.lower()]


def _epoch_s(text: str, samples: int, batch_size: int) -> float:
    """Read the time of an epoch, or of a step: ``36m``, ``0.108s/step``."""
    time = text.strip().removesuffix("/step")
    return parse_duration(time) * (1 if time == text.strip() else steps_per_epoch(samples, batch_size))


def _epoch(text: str, known: Mapping[str, Any]) -> MeasuredEpoch:
    """Read ``[GPUS[/NODES]:]BATCH=TIME``; without GPUS they are those of the measured epoch."""
    size, equals, time = text.strip().partition("=")
    if not equals:
        raise ValueError(f"{size!r} has no '='; write BATCH=TIME or GPUS:BATCH=TIME, such as 4096=17m or 4:4096=17m")
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
NEEDED = {"samples": "samples", "batch_size": "batch_size", "epoch_time": "epoch_s"}
"""Options without which nothing was measured, and their fields."""


def _check(work: MeasuredTraining) -> None:
    for option, epoch in zip(["--batch-size", *["--also"] * len(work.also)], work.epochs_measured, strict=True):
        if epoch.batch_size > work.samples:
            raise UsageError(
                f"{option} {epoch.batch_size} is more than the {work.samples} samples of an epoch",
                hint=f"--samples takes {COUNT_FORMS}",
            )
        if epoch.batch_size % epoch.gpus:
            on = f"--reference-gpus {epoch.gpus}" if epoch.gpus == work.gpus else f"{epoch.gpus} GPUs"
            raise UsageError(
                f"{option} {epoch.batch_size} does not divide by {on}: {epoch.batch_size / epoch.gpus:.2f} each",
                hint=f"give the global batch: {multiples_around(epoch.batch_size, epoch.gpus)}",
            )
    sizes = [(epoch.gpus, epoch.nodes, epoch.batch_size) for epoch in work.epochs_measured]
    if twice := next((size for size in sizes if sizes.count(size) > 1), None):
        gpus, _, batch_size = twice
        raise UsageError(
            f"--also {gpus}:{batch_size} is measured twice"
            if gpus != work.gpus or batch_size != work.batch_size
            else f"--also {batch_size} is the batch of --batch-size",
            hint=f"give an epoch with another batch, such as {batch_size * 2}, or on other GPUs: "
            f"--also {gpus * 2}:{batch_size}=TIME",
        )
    if work.warmup_epochs is not None and work.epochs > 1 and work.warmup_epochs > work.epochs:
        raise UsageError(
            f"--warmup-epochs {work.warmup_epochs:g} is more than --epochs {work.epochs}",
            hint=f"--epochs is the total number of epochs; Goyal et al. took {WARMUP_EPOCHS} of 90",
        )
