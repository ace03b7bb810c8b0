"""The time of a step on any number of GPUs: typical costs, moved until they reproduce what was measured.

A step on N GPUs with b samples on each::

    GPUs  = (fixed + each·b) · (1 + wait·log2 N) + exposed all-reduce + sync·log2 N
    step  = the larger of GPUs and loader·b·N

* ``fixed + each·b``: computation, T_grad of Pollux (Qiao et al. 2021, arXiv:2008.12260).
* ``wait``: a step ends with its slowest rank; so does the share of a node's CPUs and memory that its GPUs compete for.
* ``sync``: what each step costs beyond the bytes as soon as there are several ranks: launching the collectives,
  DDP's hooks, ranks that start late. AG News in ``tests/data/scaling_tables.yaml`` lost 6 ms a step.
* the all-reduce: ``hpcrun.scaling.communication``, times a factor inside a node and another between nodes.
* ``loader``: a data loader or a file system that all ranks share delivers so many samples per second, and no more.

One measurement cannot tell these apart. So each has a typical value and a spread (``TYPICAL``), and the measurements
move them: the most probable values by least squares (Levenberg-Marquardt), and a range by Laplace's approximation.
More measurements leave less to the typical values, and the range becomes narrower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hpcrun.scaling.communication import (
    BACKWARD_SHARE,
    ETHERNET_25,
    PCIE_3,
    Network,
    bucket_overlap,
    ring_allreduce_s,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LAUNCH_S = 3e-3
"""Launching the kernels of a small model's step from Python: about 5 µs each, some hundreds of them."""
_MOST_LAUNCH = 0.6  # the largest share of a step that is taken for launches before anything is known
TYPICAL_PARAMETERS = 25_000_000
"""The model size if none is given: ResNet-50's, within a factor of 5 either way."""
NOISE = 0.03
"""The relative difference of two measurements of the same epoch."""
CONTRADICTION = 0.25
"""The relative misfit from which measurements contradict each other or the model."""
DISCREPANCY = 0.1
"""The relative error of the model one doubling away from the nearest measurement.

It grows with the square root of the doublings. Chosen so that four of five values of the back-test lie in their range
of 80 %.
"""
_INSIDE_RANGE = (10.0, 90.0)
_DRAWS = 400
_SEED = 20_260_101  # any fixed seed: the same numbers must give the same forecast
_MOST_STEPS = 100
_SHARP = 8  # of the norm that takes the larger of two times, without a corner that would stop the fit


@dataclass(frozen=True, slots=True)
class CostTerm:
    """A cost of a step before anything is measured: normal in its logarithm.

    Attributes:
        middle: as likely too large as too small.
        spread: the factor within which two of three trainings lie.
    """

    middle: float
    spread: float


TYPICAL = {
    "wait": CostTerm(0.02, 3.0),
    "sync": CostTerm(5e-4, 4.0),
    "inside": CostTerm(2.0, 2.2),
    "between": CostTerm(1.0, 2.7),
    "loader": CostTerm(1 / 60, 4.0),
}
"""Slowdown for each doubling; seconds for each doubling; factors of the estimated all-reduce inside and between nodes;
the loader's time for a sample over the GPU's. From the tables of the back-test (tests/data/scaling_tables.yaml)."""
_FIXED_SPREAD = 1.2  # of the logit of the fixed share of a step: 50 % may be 23 to 77 %
_UNKNOWN_FIXED_SPREAD = 2.5  # the same if nothing says how many samples fill the GPU: 50 % may be 8 to 92 %
_UNKNOWN_SIZE = 5.0  # the factor by which the size of a model, or a link, may be wrong if it is not given


@dataclass(frozen=True, slots=True)
class StepSize:
    """Where a step runs: GPUs on nodes, and samples on each GPU."""

    gpus: int
    nodes: int
    batch_per_gpu: float

    def doublings_from(self, other: StepSize) -> float:
        """Return the distance to another size: doublings of GPUs and nodes, and half of those of the batch."""
        larger = max(abs(math.log2(self.gpus / other.gpus)), abs(math.log2(self.nodes / other.nodes)))
        return larger + abs(math.log2(self.batch_per_gpu / other.batch_per_gpu)) / 2


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured step."""

    size: StepSize
    step_s: float


@dataclass(frozen=True, slots=True)
class StepParts:
    """The parts of a step's time, in seconds.

    Attributes:
        fixed_s, samples_s: computing, whatever the batch and for its samples.
        waiting_s: for the slowest rank, and what synchronising costs beyond the bytes.
        comm_s: the whole all-reduce.
        exposed_s: the part of it that does not overlap with the backward pass.
        loader_s: what the data loader adds.
    """

    fixed_s: float
    samples_s: float
    waiting_s: float
    comm_s: float
    exposed_s: float
    loader_s: float

    @property
    def step_s(self) -> float:
        """The time of the step."""
        return self.fixed_s + self.samples_s + self.waiting_s + self.exposed_s + self.loader_s


@dataclass(frozen=True)
class StepModel:
    """What is known of a training's step before its measurements are used.

    Attributes:
        first: the measurement that sets the scale.
        half_batch: samples at which half of a GPU's computing is fixed, by its data sheet; 0 if unknown.
        parameters: of the model; None if unknown.
        overlap: the share of the all-reduce that may run beside the backward pass; None: as DDP's buckets allow.
    """

    first: TimedStep
    half_batch: float
    parameters: int | None
    gradient_bytes: int
    overlap: float | None
    network: Network

    @property
    def payload(self) -> int:
        """The bytes of a step's gradients."""
        return (self.parameters or TYPICAL_PARAMETERS) * self.gradient_bytes

    @cached_property
    def middles(self) -> Array:
        """The most probable values before any measurement: logarithms, the fixed share as a logit."""
        import numpy as np

        step_s, batch = self.first.step_s, self.first.size.batch_per_gpu
        launch_s = min(LAUNCH_S, _MOST_LAUNCH * step_s)
        fixed = (launch_s + (step_s - launch_s) * self.half_batch / (self.half_batch + batch)) / step_s
        return np.array(
            [math.log(step_s), math.log(fixed / (1 - fixed)), *(math.log(term.middle) for term in TYPICAL.values())]
        )

    @cached_property
    def spreads(self) -> Array:
        """The standard deviations around them."""
        import numpy as np

        wide = math.log(_UNKNOWN_SIZE)
        spread = {name: math.log(term.spread) for name, term in TYPICAL.items()}
        links = {"inside": self.network.inside, "between": self.network.between}
        for name, link in links.items():
            if self.parameters is None or link is None:
                spread[name] = max(spread[name], wide)
        fixed = _FIXED_SPREAD if self.half_batch else _UNKNOWN_FIXED_SPREAD
        return np.array([10.0, fixed, *spread.values()])

    def ring_s(self, size: StepSize) -> tuple[float, float]:
        """Return the all-reduce inside a node by the links' rates, and what the network between nodes adds."""
        known = Network(self.network.inside or PCIE_3, self.network.between or ETHERNET_25)
        per_node = size.gpus // size.nodes
        inside = ring_allreduce_s(self.payload, per_node, 1, known) or 0.0
        whole = ring_allreduce_s(self.payload, per_node, size.nodes, known) or 0.0
        return inside, max(0.0, whole - inside)

    def parts(self, values: Array, size: StepSize) -> tuple[Array, ...]:
        """Return fixed, samples, waiting, all-reduce, exposed and loader's time for each row of values."""
        import numpy as np

        compute, logit, wait, sync, inside, between, loader = np.moveaxis(values, -1, 0)
        share = 1 / (1 + np.exp(-logit))
        growth = size.batch_per_gpu / self.first.size.batch_per_gpu
        doublings = math.log2(size.gpus)
        fixed_s, samples_s = np.exp(compute) * share, np.exp(compute) * (1 - share) * growth
        waiting_s = (fixed_s + samples_s) * np.exp(wait) * doublings + np.exp(sync) * doublings
        ring = self.ring_s(size)
        comm_s = ring[0] * np.exp(inside) + ring[1] * np.exp(between)
        overlap = bucket_overlap(self.payload) if self.overlap is None else self.overlap
        exposed_s = comm_s - np.minimum(overlap * comm_s, BACKWARD_SHARE * (fixed_s + samples_s))
        gpu_s = fixed_s + samples_s + waiting_s + exposed_s
        busy = compute + loader + math.log(growth * size.gpus) - np.log(gpu_s)  # the loader's time over the GPUs'
        loader_s = gpu_s * np.expm1(np.logaddexp(0.0, _SHARP * busy) / _SHARP)
        return fixed_s, samples_s, waiting_s, comm_s, exposed_s, loader_s

    def log_s(self, values: Array, size: StepSize) -> Array:
        """Return the logarithm of the step's time for each row of values."""
        import numpy as np

        fixed, samples, waiting, _, exposed, loader = self.parts(values, size)
        logarithm: Array = np.log(fixed + samples + waiting + exposed + loader)
        return logarithm

    def fit(self, timed: Sequence[TimedStep]) -> FittedSteps:
        """Return the most probable values after some measurements, and how certain they are."""
        import numpy as np

        def residuals(standard: Array) -> Array:
            values = self.middles + self.spreads * standard
            misfit = [(float(self.log_s(values, each.size)) - math.log(each.step_s)) / NOISE for each in timed]
            return np.array([*misfit, *standard])

        # a loader that is nowhere near the limit has no slope to follow: begin a second time with one that is
        starts = [np.zeros(len(self.middles)), np.append(np.zeros(len(self.middles) - 1), 3.0)]
        found, curvature = min(
            (_least_squares(residuals, start) for start in starts),
            key=lambda end: float(np.sum(residuals(end[0]) ** 2)),
        )
        scale = np.diag(self.spreads)
        return FittedSteps(
            self, tuple(timed), self.middles + self.spreads * found, scale @ np.linalg.inv(curvature) @ scale
        )


@dataclass(frozen=True)
class FittedSteps:
    """A model of steps after some measurements.

    Attributes:
        values: the most probable ones.
        covariance: of them.
    """

    model: StepModel
    timed: tuple[TimedStep, ...]
    values: Array
    covariance: Array

    @cached_property
    def _scale(self) -> float:
        """The first measurement is forecast exactly, the others as the model fits them."""
        import numpy as np

        first = self.model.first
        return first.step_s / float(np.exp(self.model.log_s(self.values, first.size)))

    def parts(self, size: StepSize) -> StepParts:
        """Return the parts of a step's time."""
        return StepParts(*(float(part) * self._scale for part in self.model.parts(self.values, size)))

    def half_batch(self) -> float:
        """Return the samples of a GPU at which half of its computing is work on samples (Hockney's n½)."""
        at = self.parts(self.model.first.size)
        return at.fixed_s / at.samples_s * self.model.first.size.batch_per_gpu

    def misfit(self, timed: TimedStep) -> float:
        """Return how far the model is from a measurement, relative: 0.1 is 10 % too long."""
        return self.parts(timed.size).step_s / timed.step_s - 1

    @cached_property
    def _draws(self) -> Array:
        """Values that are as probable as others, a row each."""
        import numpy as np

        draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, len(self.values)))
        values: Array = self.values + draws @ np.linalg.cholesky(self.covariance).T
        return values

    def range_s(self, size: StepSize) -> tuple[float, float]:
        """Return the range in which four of five such steps lie: the shortest and the longest, one time if measured."""
        import numpy as np

        middle = self.parts(size).step_s
        distance = min(size.doublings_from(each.size) for each in self.timed)
        if distance == 0:
            return middle, middle
        off = DISCREPANCY * math.sqrt(distance) * np.random.default_rng(_SEED + 1).standard_normal(_DRAWS)
        low, high = self._scale * np.exp(np.percentile(self.model.log_s(self._draws, size) + off, _INSIDE_RANGE))
        return min(max(float(low), self._ideal_s(size)), middle), max(float(high), middle)

    def _ideal_s(self, size: StepSize) -> float:
        """Return the time of a step if more GPUs cost nothing: no range ends below it."""
        first, parts = self.model.first, self.parts(size)
        if size.gpus < first.size.gpus:
            return 0.0
        grown = size.batch_per_gpu / first.size.batch_per_gpu
        return parts.fixed_s + parts.samples_s if grown > 1 else first.step_s * grown

    def spread_after(self, target: StepSize, measured: StepSize | None = None) -> float:
        """Return the standard deviation of a forecast's logarithm, also after one more measurement."""
        import numpy as np

        logs, near = self.model.log_s(self._draws, target), [each.size for each in self.timed]
        variance = float(np.var(logs))
        if measured is not None:  # what a straight line through the draws says of the one from the other
            others = self.model.log_s(self._draws, measured)
            shared = float(np.mean((logs - logs.mean()) * (others - others.mean())))
            variance -= shared**2 / (float(np.var(others)) + NOISE**2)
            near.append(measured)
        off = DISCREPANCY**2 * min(target.doublings_from(size) for size in near)
        return math.sqrt(max(0.0, variance) + off)


def _least_squares(residuals: Callable[[Array], Array], start: Array) -> tuple[Array, Array]:
    """Return the point at which the sum of squares is least, and the curvature there."""
    import numpy as np

    at, left = start, residuals(start)
    damping = 1e-2
    curvature: Array = np.eye(len(start))
    for _ in range(_MOST_STEPS):
        moved = [(residuals(at + step) - left) / 1e-5 for step in 1e-5 * np.eye(len(start))]
        slopes = np.stack(moved, axis=1)
        curvature = slopes.T @ slopes
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -slopes.T @ left)
        with np.errstate(all="ignore"):  # a step may go too far; it is not taken then
            tried = residuals(at + step)
        gain = float(left @ left - tried @ tried)
        if gain > 0:
            at, left, damping = at + step, tried, damping / 5
            if gain < 1e-9:
                break
        elif damping > 1e9:
            break
        else:
            damping *= 5
    return at, curvature
