"""Forecasts the time of a step on any number of GPUs, and the speed-ups of the next sizes.

The next sizes are those of a measured series.

A step of ``b`` samples on each of N GPUs, of which the measured step on N₁ GPUs with ``b₁`` samples
is known::

    step(N, b) = step(N₁, b₁) · (φ + (1−φ)·b/b₁) · exp(loss(N))

φ is the share of the step that does not shrink with the batch. The loss is what was measured where
it was measured, and grows beyond by the same rate for each doubling: the measured rate, pulled
towards a typical one, since one or two doublings are little evidence. Ten models were compared on
39 published tables that none of them had seen. From one, two and three sizes this one errs 14, 9
and 9 % (median), Amdahl's law 18, 19 and 20 %, the universal scalability law 16, 25 and 22 %, a
model of computation, waiting, network and loader with a typical cost for each 23, 13 and 10 %.
Classes of networks gained nothing.

The serial fraction is what Karp and Flatt (1990) measure, for each size N by itself: Amdahl's law
(1967) for a strong study, ``S(N) = 1/(s + (1-s)/N)``, Gustafson's (1988) for a weak one,
``S(N) = N - s(N-1)``, solved for ``s``. Where it grows from size to size it is no serial work but
the cost of more GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean

from hpcrun.features.scaling.series import Row, Series

TYPICAL_LOSS = 0.06
"""The loss of a doubling where nothing is measured, as a natural logarithm: 6 % of the speed (30
published tables and 76 series of MLPerf Training).
"""
TYPICAL_WEIGHT = 1.0
"""The doublings that have to be measured until the measured rate counts as much as the typical one.
"""
LAUNCH_S = 8e-3
"""The time of a step without samples, where it is not measured: launching the kernels from Python,
and the optimizer. Of 2 to 10 ms it errs least on the published trainings.
"""
_GROWS = 1.2
"""A serial fraction that grows by this factor from each size to the next is the cost of more GPUs.
"""
_MOST_LAUNCH = 0.6  # the largest share of a step that is taken for launches
_RANGE = (0.75, 1.1)
_RANGE_FROM_ONE = (0.65, 1.1)
_RANGE_OFF_THE_NODE = (0.5, 1.1)
"""Factors of a speed-up one doubling away, between which eight of ten published trainings lay: from
several sizes, from one, and from one node to several. They grow with the square
root of the doublings."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """Where a step runs: GPUs on nodes, and samples on each GPU."""

    gpus: int
    nodes: int
    batch_per_gpu: float


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured step."""

    size: StepSize
    step_s: float


@dataclass(frozen=True)
class StepModel:
    """The steps of a training."""

    timed: tuple[TimedStep, ...]  # the measured steps; the first sets the scale
    fixed: float  # φ of the first step, 0 to 1

    @property
    def first(self) -> TimedStep:
        """The measurement that sets the scale."""
        return self.timed[0]

    @cached_property
    def losses(self) -> dict[float, float]:
        """The measured loss, by the doublings from the first measurement's GPUs.

        The doublings are in ascending order.
        """
        losses: dict[float, list[float]] = {}
        for step in self.timed:
            loss = math.log(step.step_s / self.work_s(step.size))
            losses.setdefault(self._doublings(step.size), []).append(loss)
        return {doublings: fmean(losses[doublings]) for doublings in sorted(losses)}

    def work_s(self, size: StepSize) -> float:
        """Return the time of a step if more GPUs lost nothing."""
        growth = size.batch_per_gpu / self.first.size.batch_per_gpu
        return self.first.step_s * (self.fixed + (1 - self.fixed) * growth)

    def loss(self, size: StepSize) -> float:
        """Return the loss at a size: measured, between two measured ones, or beyond them."""
        place = self._doublings(size)
        known = self.losses
        low = next(iter(known))
        high = next(reversed(known))
        if place >= high:
            return known[high] + (place - high) * self.rate
        if place <= low:
            return known[low] + (place - low) * self.rate
        before, after = next(pair for pair in pairwise(known) if place <= pair[1])
        return known[before] + (place - before) / (after - before) * (known[after] - known[before])

    @cached_property
    def rate(self) -> float:
        """The loss of each further doubling; never a gain."""
        low = next(iter(self.losses))
        high = next(reversed(self.losses))
        doublings = high - low
        if not doublings:
            return TYPICAL_LOSS
        measured = (self.losses[high] - self.losses[low]) / doublings
        weight = doublings / (doublings + TYPICAL_WEIGHT)
        return max(0.0, weight * measured + (1 - weight) * TYPICAL_LOSS)

    def step_s(self, size: StepSize) -> float:
        """Return the time of a step: what was measured, else the forecast."""
        measured = [each.step_s for each in self.timed if each.size == size]
        if measured:
            return fmean(measured)
        return self.work_s(size) * math.exp(self.loss(size))

    def half_batch(self) -> float:
        """Return the samples of a GPU at which half of its computing is work on samples.

        This is Hockney's n½.
        """
        return self.fixed / (1 - self.fixed) * self.first.size.batch_per_gpu

    def misfit(self, timed: TimedStep) -> float:
        """Return how far the model is from a measurement, relative: 0.1 is 10 % too long."""
        return self.work_s(timed.size) * math.exp(self.loss(timed.size)) / timed.step_s - 1

    def range_s(self, size: StepSize) -> tuple[float, float]:
        """Return the range in which eight of ten such steps lie.

        The range is the shortest and the longest time, or one time if the step was measured.
        """
        step_s = self.step_s(size)
        if any(step.size == size for step in self.timed):
            return step_s, step_s
        place = self._doublings(size)
        doublings = list(self.losses)
        away = max(place - doublings[-1], doublings[0] - place, 0.0)
        if not away:
            # between measured sizes, and with another batch, half as far
            away = min(_farthest(size, step.size) for step in self.timed) / 2
        slow, fast = _RANGE if len(doublings) > 1 else _RANGE_FROM_ONE
        if self.leaves_node(size):
            slow, fast = _RANGE_OFF_THE_NODE
        root = math.sqrt(away)
        return step_s / fast**root, step_s / slow**root

    def leaves_node(self, size: StepSize) -> bool:
        """Whether all measurements are of one node, and this size is not."""
        return size.nodes > 1 and all(each.size.nodes == 1 for each in self.timed)

    def _doublings(self, size: StepSize) -> float:
        return math.log2(size.gpus / self.first.size.gpus)


def _farthest(one: StepSize, other: StepSize) -> float:
    """Return how many doublings two sizes differ by, in the quantity that differs most."""
    pairs = zip(astuple(one), astuple(other), strict=True)
    return max(abs(math.log2(value / before)) for value, before in pairs)


def fixed_share(timed: Sequence[TimedStep], half_batch: float, most_s: float = math.inf) -> float:
    """Return the share of the first step that does not shrink with the batch.

    It is measured if two batches were timed on the same GPUs. Else it is the time to launch the
    kernels of a step, as far as the other measurements leave room for it; and of one measured size
    also what follows from ``half_batch``, the samples at which half of the card's computing is
    fixed by its data sheet (0 if unknown), at most ``most_s``. What several sizes lose says more
    than a data sheet.
    """
    first = timed[0]
    batch = first.size.batch_per_gpu
    pair = _farthest_batches(timed)
    if pair:
        return _measured_share(*pair, batch)
    fixed_s = min(LAUNCH_S, _MOST_LAUNCH * first.step_s)
    if all(step.size.gpus == first.size.gpus for step in timed):
        card_s = (first.step_s - fixed_s) * half_batch / (half_batch + batch)
        fixed_s += min(card_s, most_s)
    share = fixed_s / first.step_s
    for step in timed:  # a smaller batch on other GPUs took at least the fixed time
        smaller = step.size.batch_per_gpu / batch
        if smaller < 1:
            most = (step.step_s / first.step_s - smaller) / (1 - smaller)
            share = min(share, max(0.0, most))
    return share


def has_two_batches(timed: Sequence[TimedStep]) -> bool:
    """Whether two batches were timed on the same GPUs, which measures the fixed share."""
    return _farthest_batches(timed) is not None


def _farthest_batches(timed: Sequence[TimedStep]) -> tuple[TimedStep, TimedStep] | None:
    """Return the two steps on the same GPUs whose batches differ most, the smaller batch first.

    Return None if no two batches were timed on the same GPUs.
    """
    farthest = None
    most = 1.0
    for small in timed:
        for large in timed:
            growth = large.size.batch_per_gpu / small.size.batch_per_gpu
            if small.size.gpus == large.size.gpus and growth > most:
                farthest = (small, large)
                most = growth
    return farthest


def _measured_share(small: TimedStep, large: TimedStep, batch: float) -> float:
    """Return the share of a step with a batch that two steps show not to shrink with it."""
    added = large.size.batch_per_gpu - small.size.batch_per_gpu
    each_s = (large.step_s - small.step_s) / added
    if each_s <= 0:
        return 0.99
    constant_s = small.step_s - each_s * small.size.batch_per_gpu
    share = constant_s / (constant_s + each_s * batch)
    return min(max(share, 0.0), 0.99)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The speed-up forecast for a size that was not run, with a range.

    Eight of ten published speed-ups lie in such a range.
    """

    gpus: int
    speedup: float
    low: float
    high: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What follows from a series."""

    gpus: int  # the largest size of the series
    # the fraction of the work on one GPU that does not become faster, 0 to 1, by the largest size
    serial: float
    serial_range: tuple[float, float]  # its smallest and largest value over the sizes
    grows: bool  # it grows from size to size
    # the speed-up of the largest size if the work had grown with the GPUs (Gustafson)
    with_more_work: float
    predictions: tuple[Prediction, ...]  # for the next two doublings


def outlook(series: Series) -> Outlook:
    """Return what follows from a series of several sizes."""
    first, *others = series.sizes
    fractions = [_serial_fraction(first, row, weak=series.weak) for row in others]
    gpus = others[-1].gpus
    serial = fractions[-1]
    return Outlook(
        gpus,
        serial,
        (min(fractions), max(fractions)),
        grows=_grows(fractions),
        with_more_work=gpus - serial * (gpus - 1),
        predictions=(
            _prediction(series.sizes, 2, weak=series.weak),
            _prediction(series.sizes, 4, weak=series.weak),
        ),
    )


def _grows(fractions: Sequence[float]) -> bool:
    """Whether a serial fraction grows from each of several sizes to the next."""
    if len(fractions) < 2:
        return False
    return all(after > _GROWS * before for before, after in pairwise(fractions))


def _serial_fraction(first: Row, row: Row, *, weak: bool) -> float:
    """Return the constant share of ``a + b·x`` at one GPU.

    The share is of the time with x = 1/N, or of a weak study's speed with x = N.
    """
    ratio = row.speedup.mean / first.speedup.mean
    if weak:
        start = float(first.gpus)
        end = float(row.gpus)
        value = ratio
    else:
        start = 1.0 / first.gpus
        end = 1.0 / row.gpus
        value = 1.0 / ratio
    slope = max((value - 1) / (end - start), 0.0)
    constant = max(1 - slope * start, 0.0)
    return constant / (constant + slope)


def _prediction(sizes: Sequence[Row], factor: int, *, weak: bool) -> Prediction:
    """Return the forecast for so many times the GPUs of the largest size."""
    first = sizes[0]
    last = sizes[-1]
    timed = _timed(sizes, weak=weak)
    model = StepModel(timed, fixed_share(timed, 0.0) if _has_times(first) else 0.0)
    gpus = factor * last.gpus
    batch = timed[-1].size.batch_per_gpu
    nodes = factor * last.nodes if last.nodes > 1 else 1
    size = StepSize(gpus, nodes, batch if weak else batch / factor)
    short_s, long_s = model.range_s(size)
    base = timed[0]
    # of the baseline's speed: samples per second over its own
    work = first.speedup.mean * gpus * size.batch_per_gpu
    work *= base.step_s / (base.size.gpus * base.size.batch_per_gpu)
    speedup = work / model.step_s(size)
    ideal = last.speedup.mean / last.efficiency * factor
    return Prediction(
        size.gpus,
        speedup,
        low=work / long_s,
        high=work / short_s,
        efficiency=speedup / ideal,
    )


def _has_times(row: Row) -> bool:
    """Whether the time of a step is known, from the batch and the rate or the samples."""
    return _step_s(row) is not None


def _step_s(row: Row) -> float | None:
    samples = row.points[0].samples
    if row.batch_size is None:
        return None
    if row.samples_per_s is not None:
        return row.batch_size / row.samples_per_s.mean
    if row.time_s is not None and samples:
        return row.time_s.mean * row.batch_size / samples
    return None


def _timed(sizes: Sequence[Row], *, weak: bool) -> tuple[TimedStep, ...]:
    """Return the steps of a series, whose speeds are the speed-ups.

    A batch that is unknown stays the same, in all or on each GPU.
    """
    first = sizes[0]
    known = all(row.batch_size is not None for row in sizes)
    step_s = _step_s(first) or 1.0
    base = (first.batch_size or first.gpus) if known else first.gpus
    timed = []
    for row in sizes:
        batch = base * row.gpus // first.gpus if weak else base
        if known and row.batch_size:
            batch = row.batch_size
        relative = first.speedup.mean / row.speedup.mean
        size = StepSize(row.gpus, row.nodes, batch / row.gpus)
        timed.append(TimedStep(size, step_s * relative * batch / base))
    return tuple(timed)
