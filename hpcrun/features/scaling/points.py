"""The measurements of a study: a run at one number of GPUs, epoch by epoch; its means without the warm-up. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

Source = Literal["metrics", "log", "elapsed", "csv"]
"""The source of a point's times: ``hpcrun_runtime.log_metrics``, patterns in the logs, Slurm's elapsed time
(start-up included), or a table."""
TIMED = ("epoch_time", "samples_per_s")
"""The metrics that make a row an epoch: the first one if a run has it, else the second one."""

# field of Epoch → the metrics for it, the most exact first
_METRICS: dict[str, tuple[str, ...]] = {
    "time_s": ("epoch_time",),
    "samples_per_s": ("samples_per_s",),
    "accuracy": ("val_accuracy", "accuracy"),
    "loss": ("loss",),
    "data_s": ("data_time",),
    "sync_s": ("sync_time",),
}


class Epoch(NamedTuple):
    """One epoch of one run; None for missing values. A tuple: a study's file has a short list for each."""

    number: int  # as counted by the run
    time_s: float | None = None  # seconds of training, without validation if the run measures it separately
    samples_per_s: float | None = None  # over all ranks
    accuracy: float | None = None  # of the validation, 0 to 1 or in per cent, as recorded by the run
    loss: float | None = None
    data_s: float | None = None  # seconds in which the first rank waited for its next batch
    sync_s: float | None = None  # seconds that the ranks' synchronisation added


@dataclass(frozen=True, slots=True)
class Point:
    """One run at one size."""

    gpus: int  # of the whole job; its ranks if it has no GPUs
    nodes: int = 1
    dataset: str = ""  # the name of the data set; "" if a study has only one
    repeat: int = 1  # from 1
    state: str = "COMPLETED"  # Slurm's state; a point is usable if it is COMPLETED
    run: str = ""  # the run's id; "" for a row of a table
    source: Source = "metrics"
    epochs: tuple[Epoch, ...] = ()  # in their order, the warm-up's included
    total_s: float | None = None  # seconds of the whole run
    startup_s: float | None = None  # seconds from the start of the job until the first epoch began
    batch_size: int | None = None  # the global batch
    samples: int | None = None  # of the data set in one epoch
    rank_samples: tuple[int, ...] = ()  # the samples of each rank in one epoch, in order of rank
    parameters: int | None = None  # of the model
    problem: str = ""  # the reason why it is not in the table, in one line; "" for none
    speedup: float | None = None  # over the smallest size, if a published table has only this
    # gpu_busy, cpu_busy: the busy share of its GPUs, and of the CPUs that it had, by its own samples
    gpu_busy: float | None = None
    cpu_busy: float | None = None

    def counted(self, warmup: int) -> tuple[Epoch, ...]:
        """Return the epochs without the first ``warmup``; the last epoch always counts."""
        return self.epochs[warmup:] or self.epochs[-1:]


def epochs_of(rows: Iterable[tuple[float | None, Mapping[str, Any]]]) -> tuple[Epoch, ...]:
    """Return the epochs among a rank's metrics, ordered by their numbers.

    Args:
        rows: the step, which is the epoch's number, and the metrics. A row without a step has the next number.
    """
    listed = list(rows)
    timed = next((name for name in TIMED if any(number(values.get(name)) for _, values in listed)), None)
    if timed is None:
        return ()
    epochs: dict[int, Epoch] = {}
    for step, values in listed:
        if not positive(number(values.get(timed))):
            continue
        at = max(epochs, default=0) + 1 if step is None or not math.isfinite(step) else int(step)
        numbers = {field: _first(names, values) for field, names in _METRICS.items()}
        numbers |= {field: positive(numbers[field]) for field in ("time_s", "samples_per_s")}
        epochs[at] = Epoch(at, **numbers)
    return tuple(epochs[at] for at in sorted(epochs))


def _first(names: Iterable[str], values: Mapping[str, Any]) -> float | None:
    return next((value for name in names if (value := number(values.get(name))) is not None), None)


def number(value: Any) -> float | None:
    """Return a metric as a number, None if it is text, infinite, or NaN."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(values: Iterable[Any]) -> int | None:
    """Return the last metric that is a whole number over 0, such as a batch size."""
    numbers = [at for value in values if (at := positive(number(value))) and at.is_integer()]
    return int(numbers[-1]) if numbers else None


def positive(value: float | None) -> float | None:
    """Return a number by which one can divide, else None: a metric may be NaN, or a clock may run backwards."""
    return value if value is not None and 0 < value < math.inf else None


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over repeats, with the smallest and the largest one."""

    mean: float
    low: float
    high: float
    n: int = 1
    deviation: float = 0.0  # the repeats' standard deviation over their mean; 0 for a single one

    def scaled(self, factor: float) -> Spread:
        """Return it in another unit."""
        return replace(self, mean=self.mean * factor, low=self.low * factor, high=self.high * factor)

    def under(self, whole: float) -> Spread:
        """Return the quotients of a whole and the values: the speeds for times."""
        return replace(self, mean=whole / self.mean, low=whole / self.high, high=whole / self.low)


class Shares(NamedTuple):
    """Shares of the time, each from 0 to 1, or None if not measured."""

    data: float | None = None  # of an epoch, waiting for data on the first rank
    sync: float | None = None  # of an epoch, synchronising the ranks
    startup: float | None = None  # of the run, before its first epoch began
    # of an epoch, the time for which an average rank waits for the rank with the most samples
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class RunMeasurement:
    """The numbers of one run, each None if missing: means over its epochs, and the last accuracy.

    Times and samples per second are more than 0.
    """

    point: Point
    epoch_s: float | None
    samples_per_s: float | None
    run_s: float | None
    accuracy: float | None
    shares: Shares


def measure(point: Point, warmup: int) -> RunMeasurement:
    """Return the means of a run over its epochs, without the first ``warmup``; the last epoch always counts."""
    epochs, most = point.counted(warmup), max(point.rank_samples, default=0)
    epoch_s = mean(positive(epoch.time_s) for epoch in epochs)
    rate = mean(positive(epoch.samples_per_s) for epoch in epochs)
    if rate is None and epoch_s and point.samples:
        rate = point.samples / epoch_s
    shares = Shares(
        data=mean(_part(epoch.data_s, epoch.time_s) for epoch in epochs),
        sync=mean(_part(epoch.sync_s, epoch.time_s) for epoch in epochs),
        startup=_part(point.startup_s, point.total_s),
        idle=1 - fmean(point.rank_samples) / most if most else None,
    )
    accuracy = next(reversed(_numbers(epoch.accuracy for epoch in point.epochs)), None)
    return RunMeasurement(point, epoch_s, rate, positive(point.total_s), accuracy, shares)


def _part(part: float | None, whole: float | None) -> float | None:
    whole = positive(whole)
    return None if part is None or whole is None else part / whole


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are numbers."""
    numbers = _numbers(values)
    return fmean(numbers) if numbers else None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the values that are numbers."""
    numbers = _numbers(values)
    if not numbers:
        return None
    middle = fmean(numbers)
    deviation = stdev(numbers) / middle if len(numbers) > 1 and middle else 0.0
    return Spread(middle, min(numbers), max(numbers), len(numbers), deviation)


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def mean_shares(shares: Sequence[Shares]) -> Shares:
    """Return the means over runs."""
    return Shares(*map(mean, zip(*shares, strict=True)))
