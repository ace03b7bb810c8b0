"""The time of a step on any number of GPUs: one loss for each doubling of the GPUs, and the fixed share of a step.

A step of ``b`` samples on each of N GPUs, of which the measured step on N₁ GPUs with ``b₁`` samples is known::

    step(N, b) = step(N₁, b₁) · (φ + (1−φ)·b/b₁) · exp(loss(N))

φ is the share of the step that does not shrink with the batch. The loss is what was measured where it was measured, and
grows beyond by the same rate for each doubling: the measured rate, pulled towards a typical one, since one or two
doublings are little evidence. Ten models were compared on 39 published tables that none of them had seen. From one, two
and three sizes this one errs 14, 9 and 9 % (median), Amdahl's law 18, 19 and 20 %, the universal scalability law 16, 25
and 22 %, a model of computation, waiting, network and loader with a typical cost for each 23, 13 and 10 %. Classes of
networks gained nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

TYPICAL_LOSS = 0.07
"""The loss of a doubling where nothing is measured, as a natural logarithm: 7 % of the speed (33 published series)."""
TYPICAL_WEIGHT = 2.0
"""The doublings that have to be measured until the measured rate counts as much as the typical one."""
LAUNCH_S = 3e-3
"""Launching the kernels of a small model's step from Python: about 5 µs each, some hundreds of them."""
_MOST_LAUNCH = 0.6  # the largest share of a step that is taken for launches
_RANGE = (0.75, 1.1)
_RANGE_FROM_ONE = (0.65, 1.1)
_RANGE_OFF_THE_NODE = (0.5, 1.1)
"""Factors of a speed-up one doubling away, between which eight of ten published trainings lay: from several sizes, from
one, and from one on the first node to several nodes. They grow with the square root of the doublings."""


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
    """The steps of a training.

    Attributes:
        timed: the measured steps; the first sets the scale.
        fixed: φ of the first step, 0 to 1.
    """

    timed: tuple[TimedStep, ...]
    fixed: float

    @property
    def first(self) -> TimedStep:
        """The measurement that sets the scale."""
        return self.timed[0]

    @cached_property
    def losses(self) -> dict[float, float]:
        """Doublings from the first measurement's GPUs → the measured loss there, in ascending order."""
        found: dict[float, list[float]] = {}
        for each in self.timed:
            found.setdefault(self._doublings(each.size), []).append(math.log(each.step_s / self.work_s(each.size)))
        return {doublings: fmean(found[doublings]) for doublings in sorted(found)}

    def work_s(self, size: StepSize) -> float:
        """Return the time of a step if more GPUs lost nothing."""
        growth = size.batch_per_gpu / self.first.size.batch_per_gpu
        return self.first.step_s * (self.fixed + (1 - self.fixed) * growth)

    def loss(self, size: StepSize) -> float:
        """Return the loss at a size: measured, between two measured ones, or beyond them."""
        place, known = self._doublings(size), self.losses
        low, high = next(iter(known)), next(reversed(known))
        if place > high:
            return known[high] + (place - high) * self.rate
        if place < low:
            return known[low] + (place - low) * self.rate
        before = max(one for one in known if one <= place)
        after = min(one for one in known if one >= place)
        share = (place - before) / (after - before) if after > before else 0.0
        return known[before] + share * (known[after] - known[before])

    @cached_property
    def rate(self) -> float:
        """The loss of each further doubling; never a gain."""
        low, high = next(iter(self.losses)), next(reversed(self.losses))
        doublings = high - low
        weight = doublings / (doublings + TYPICAL_WEIGHT)
        measured = (self.losses[high] - self.losses[low]) / doublings if doublings else 0.0
        return max(0.0, weight * measured + (1 - weight) * TYPICAL_LOSS)

    def step_s(self, size: StepSize) -> float:
        """Return the time of a step: what was measured, else the forecast."""
        measured = [each.step_s for each in self.timed if each.size == size]
        return fmean(measured) if measured else self.work_s(size) * math.exp(self.loss(size))

    def half_batch(self) -> float:
        """Return the samples of a GPU at which half of its computing is work on samples (Hockney's n½)."""
        return self.fixed / (1 - self.fixed) * self.first.size.batch_per_gpu

    def misfit(self, timed: TimedStep) -> float:
        """Return how far the model is from a measurement, relative: 0.1 is 10 % too long."""
        return self.work_s(timed.size) * math.exp(self.loss(timed.size)) / timed.step_s - 1

    def range_s(self, size: StepSize) -> tuple[float, float]:
        """Return the range in which eight of ten such steps lie: the shortest and the longest, one time if measured."""
        step_s = self.step_s(size)
        if any(each.size == size for each in self.timed):
            return step_s, step_s
        place, doublings = self._doublings(size), [*self.losses]
        away = max(place - doublings[-1], doublings[0] - place, 0.0)
        batches = [abs(math.log2(size.batch_per_gpu / each.size.batch_per_gpu)) for each in self.timed]
        away = math.sqrt(away or min(batches) / 2)  # another batch on measured GPUs is half as far
        slow, fast = _RANGE
        if len(doublings) == 1:
            slow, fast = _RANGE_OFF_THE_NODE if self.leaves_node(size) else _RANGE_FROM_ONE
        return step_s / fast**away, step_s / slow**away

    def leaves_node(self, size: StepSize) -> bool:
        """Whether all measurements are of one node, and this size is not."""
        return size.nodes > 1 and all(each.size.nodes == 1 for each in self.timed)

    def _doublings(self, size: StepSize) -> float:
        return math.log2(size.gpus / self.first.size.gpus)


def fixed_share(timed: Sequence[TimedStep], half_batch: float) -> float:
    """Return the share of the first step that does not shrink with the batch.

    It is measured if two batches were timed on the same GPUs. Else it follows from the card's data sheet, with the time
    to launch the kernels of a step, as far as the other measurements leave room for it.

    Args:
        half_batch: samples at which half of a GPU's computing is fixed, by its data sheet; 0 if unknown.
    """
    first = timed[0]
    batch = first.size.batch_per_gpu
    pairs = [
        (one, other)
        for one in timed
        for other in timed
        if one.size.gpus == other.size.gpus and one.size.batch_per_gpu < other.size.batch_per_gpu
    ]
    if pairs:
        small, large = max(pairs, key=lambda pair: pair[1].size.batch_per_gpu / pair[0].size.batch_per_gpu)
        each_s = (large.step_s - small.step_s) / (large.size.batch_per_gpu - small.size.batch_per_gpu)
        constant_s = small.step_s - each_s * small.size.batch_per_gpu
        return min(max(constant_s / (constant_s + each_s * batch), 0.0), 0.99) if each_s > 0 else 0.99
    launch_s = min(LAUNCH_S, _MOST_LAUNCH * first.step_s)
    share = (launch_s + (first.step_s - launch_s) * half_batch / (half_batch + batch)) / first.step_s
    for each in timed:  # a smaller batch on other GPUs took at least the fixed time
        smaller = each.size.batch_per_gpu / batch
        if smaller < 1:
            share = min(share, max(0.0, (each.step_s / first.step_s - smaller) / (1 - smaller)))
    return share
