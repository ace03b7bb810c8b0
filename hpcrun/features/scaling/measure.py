"""The numbers of one run without its warm-up, and the spread over runs of one size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import NamedTuple

from hpcrun.features.scaling.points import Epoch, Point


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over repeats, with the smallest and the largest one.

    Attributes:
        deviation: the repeats' standard deviation over their mean; 0 for a single one.
    """

    mean: float
    low: float
    high: float
    n: int = 1
    deviation: float = 0.0

    def scaled(self, factor: float) -> Spread:
        """Return it in another unit."""
        return replace(self, mean=self.mean * factor, low=self.low * factor, high=self.high * factor)

    def under(self, whole: float) -> Spread:
        """Return the quotients of a whole and the values: the speeds for times."""
        return replace(self, mean=whole / self.mean, low=whole / self.high, high=whole / self.low)


class Shares(NamedTuple):
    """Shares of the time, each from 0 to 1, or None if not measured.

    Attributes:
        data: of an epoch, waiting for data on the first rank.
        sync: of an epoch, synchronising the ranks.
        startup: of the run, before its first epoch began.
        idle: of an epoch, the time for which an average rank waits for the rank with the most samples.
    """

    data: float | None = None
    sync: float | None = None
    startup: float | None = None
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
    epochs = point.epochs[min(warmup, max(0, len(point.epochs) - 1)) :]
    epoch_s = mean(map(positive, (epoch.time_s for epoch in epochs)))
    rate = mean(map(positive, (epoch.samples_per_s for epoch in epochs)))
    if rate is None and epoch_s and point.samples:
        rate = point.samples / epoch_s
    accuracies = _numbers(epoch.accuracy for epoch in point.epochs)
    accuracy = accuracies[-1] if accuracies else None
    return RunMeasurement(point, epoch_s, rate, positive(point.total_s), accuracy, _shares(point, epochs))


def positive(value: float | None) -> float | None:
    """Return a number by which one can divide, else None: a metric may be NaN, or a clock may run backwards."""
    return value if value is not None and 0 < value < math.inf else None


def _shares(point: Point, epochs: Sequence[Epoch]) -> Shares:
    most = max(point.rank_samples, default=0)
    return Shares(
        data=mean(_part(epoch.data_s, epoch.time_s) for epoch in epochs),
        sync=mean(_part(epoch.sync_s, epoch.time_s) for epoch in epochs),
        startup=_part(point.startup_s, point.total_s),
        idle=1 - fmean(point.rank_samples) / most if most else None,
    )


def _part(part: float | None, whole: float | None) -> float | None:
    whole = positive(whole)
    return None if part is None or whole is None else part / whole


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are numbers."""
    there = _numbers(values)
    return fmean(there) if there else None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the values that are numbers."""
    there = _numbers(values)
    if not there:
        return None
    middle = fmean(there)
    deviation = stdev(there) / middle if len(there) > 1 and middle else 0.0
    return Spread(middle, min(there), max(there), len(there), deviation)


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def mean_shares(shares: Sequence[Shares]) -> Shares:
    """Return the means over runs."""
    return Shares(*map(mean, zip(*shares, strict=True)))
