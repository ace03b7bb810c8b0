"""A training on other numbers of GPUs: time, speed-up with its range, and what a size loses its time to.

The times come from a model of a step that was fitted to the measured epochs: ``hpcrun.scaling.step_model``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcrun.errors import UsageError
from hpcrun.job.profile import CardSection
from hpcrun.job.shape import multiples_around
from hpcrun.scaling.communication import Network
from hpcrun.scaling.step_model import CONTRADICTION, FittedSteps, StepModel, StepParts, StepSize, TimedStep
from hpcrun.scaling.verdict import MIN_EFFICIENCY
from hpcrun.scaling.workload import MeasuredEpoch, MeasuredTraining, steps_per_epoch

Case = Literal["fixed", "scaled"]
CASES: dict[str, tuple[Case, ...]] = {"fixed": ("fixed",), "scaled": ("scaled",), "both": ("fixed", "scaled")}
"""Fixed: the global batch stays. Scaled: the per-GPU batch stays."""

Concern = Literal["little work", "communication", "data loading", "slower"]

LARGE_GROWTH = 8
"""A batch so many times the measured one needs a warm-up and a check of the accuracy, whatever the rule for its rate.

Goyal et al. 2017 (arXiv:1706.02677) went from 256 to 8192 images with SGD: with 5 epochs of warm-up, and without it
the error of ResNet-50 rose by a point (section 5.1). Shallue et al. 2019 (arXiv:1811.03600) found no rule that holds
for all models, and for some none beyond a few doublings.
"""
_IMPOSSIBLE = 10.0  # an estimated all-reduce of so many steps' time is a mistake in what was given
_MOST_LARGER = 4  # a remedy's per-GPU batch over the largest measured one: more has to fit, and to be learned from


@dataclass(frozen=True, slots=True)
class JobSize:
    """The size of a job."""

    gpus: int
    nodes: int

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node."""
        return self.gpus // self.nodes


@dataclass(frozen=True, slots=True)
class Forecast:
    """One number of GPUs in one case.

    Attributes:
        comm_s: the all-reduce of a step's gradients; None if the model size or a link is unknown.
        exposed_s: the part of it for which a step waits.
        speedup: over the measured epoch.
        efficiency: the speed of each GPU over that of the baseline: the smallest size, measured or forecast, with the
            same case's batch.
        speedup_low, speedup_high: the range in which four of five trainings lie.
        gpu_hours: of all epochs.
        concerns: reasons against this size: none if its efficiency, as shown, reaches the target; else what takes most
            of the lost time, and "slower" if it is slower than the measured epoch.
    """

    case: Case
    size: JobSize
    batch_size: int
    steps: int
    lr_linear: float | None
    lr_sqrt: float | None
    warmup_steps: int
    step_s: float
    comm_s: float | None
    exposed_s: float
    epoch_s: float
    speedup: float
    efficiency: float
    gpu_hours: float
    concerns: tuple[Concern, ...]
    speedup_low: float
    speedup_high: float
    growth: float

    @property
    def batch_per_gpu(self) -> int:
        """The batch of one GPU."""
        return self.batch_size // self.size.gpus

    @property
    def worth_it(self) -> bool:
        """Whether the efficiency reaches the target, as precisely as it is shown."""
        return round(self.efficiency, 2) >= MIN_EFFICIENCY


def half_rows(card: CardSection) -> float | None:
    """Return how many rows of a matrix fill a card; None if the profile does not have the card's rates.

    A layer of weights K × N does 2·M·K·N operations for M rows and reads 2·K·N bytes of weights in a 16-bit type: M
    operations for each byte. At M = peak / memory bandwidth both take equally long: below it at least half of the time
    is not arithmetic (NVIDIA, GPU Performance Background User's Guide, "ops:byte ratio"). 295 for an H100 SXM.
    """
    peaks = [rate for rate in (card.tflops.bf16, card.tflops.fp16) if rate]
    if not peaks or not card.memory_bandwidth_gb_s:
        return None
    return max(peaks) * 1e12 / (card.memory_bandwidth_gb_s * 1e9)


def fit_steps(work: MeasuredTraining, network: Network, rows: float | None, nodes: Sequence[int]) -> FittedSteps:
    """Return the model of a step, fitted to the measured epochs.

    Args:
        rows: the number of rows that fill the card; None if unknown.
        nodes: of each measured epoch.

    Raises:
        UsageError: the measurements contradict each other.
    """
    timed = [_timed(work, epoch, number) for epoch, number in zip(work.epochs_measured, nodes, strict=True)]
    model = StepModel(
        first=timed[0],
        half_batch=(rows or 0) / work.tokens_per_sample,
        parameters=work.parameters,
        gradient_bytes=work.gradient_bytes,
        overlap=work.overlap,
        network=network,
    )
    for each in timed:
        comm_s = sum(model.ring_s(each.size))
        if work.parameters and comm_s > _IMPOSSIBLE * each.step_s:
            raise UsageError(
                f"a step took {each.step_s:.3g} s on {each.size.gpus} GPUs, but its communication alone takes "
                f"{comm_s:.3g} s",
                hint="check --parameters, --epoch-time and --reference-gpus",
            )
    fitted = model.fit(timed)
    for each, epoch in zip(timed, work.epochs_measured, strict=True):
        if abs(misfit := fitted.misfit(each)) > CONTRADICTION:
            raise UsageError(
                f"the measured epochs contradict each other: {epoch.batch_size} on {epoch.gpus} GPUs took "
                f"{each.step_s:.3g} s a step, and by the others it takes {each.step_s * (1 + misfit):.3g} s",
                hint="measure all of them on the same GPUs, and leave out the first epoch",
            )
    return fitted


def _timed(work: MeasuredTraining, epoch: MeasuredEpoch, nodes: int) -> TimedStep:
    size = StepSize(epoch.gpus, nodes, epoch.batch_size / epoch.gpus)
    return TimedStep(size, epoch.epoch_s / steps_per_epoch(work.samples, epoch.batch_size))


@dataclass(frozen=True, slots=True)
class _Baseline:
    """The size with which others are compared."""

    size: StepSize
    parts: StepParts

    @property
    def samples_per_s(self) -> float:
        """The speed of each of its GPUs."""
        return self.size.batch_per_gpu / self.parts.step_s


def _baseline(work: MeasuredTraining, case: Case, sizes: Sequence[JobSize], fitted: FittedSteps) -> _Baseline:
    smallest = min(sizes, key=lambda size: (size.gpus, size.nodes))
    size = fitted.model.first.size
    if smallest.gpus < size.gpus:
        batch = work.batch_size / smallest.gpus if case == "fixed" else size.batch_per_gpu
        size = StepSize(smallest.gpus, smallest.nodes, batch)
    return _Baseline(size, fitted.parts(size))


def forecast(
    work: MeasuredTraining, cases: Sequence[Case], sizes: Sequence[JobSize], steps: FittedSteps
) -> tuple[Forecast, ...]:
    """Return the forecast for every size in every case.

    Raises:
        UsageError: a batch does not divide, or a scaled one is larger than the data set.
    """
    found = []
    for case in cases:
        base = _baseline(work, case, sizes, steps)
        found += [_forecast(work, case, size, _batch(work, case, size.gpus), steps, base) for size in sizes]
    return tuple(found)


def remedy(work: MeasuredTraining, row: Forecast, sizes: Sequence[JobSize], steps: FittedSteps) -> Forecast | None:
    """Return a size with the smallest larger batch that reaches the target; None if there is none to recommend.

    The per-GPU batch is doubled, to at most four times the largest measured one.
    """
    base = _baseline(work, row.case, sizes, steps)
    batch_size = 2 * row.batch_size
    while batch_size <= min(work.samples, _MOST_LARGER * work.most_per_gpu * row.size.gpus):
        larger = _forecast(work, "scaled", row.size, batch_size, steps, base)
        if larger.worth_it:
            return larger
        batch_size *= 2
    return None


def advised_lr(work: MeasuredTraining, row: Forecast) -> float | None:
    """Return the learning rate to begin with: the square-root rule's, the linear one's for SGD and a small growth."""
    return row.lr_linear if work.optimizer == "sgd" and row.growth < LARGE_GROWTH else row.lr_sqrt


def _forecast(
    work: MeasuredTraining, case: Case, size: JobSize, batch_size: int, fitted: FittedSteps, base: _Baseline
) -> Forecast:
    steps = steps_per_epoch(work.samples, batch_size)
    at = StepSize(size.gpus, size.nodes, batch_size / size.gpus)
    parts = fitted.parts(at)
    fastest_s, slowest_s = fitted.range_s(at)
    growth = batch_size / work.batch_size
    speedup = work.epoch_s / (steps * parts.step_s)
    efficiency = at.batch_per_gpu / parts.step_s / base.samples_per_s
    return Forecast(
        case=case,
        size=size,
        batch_size=batch_size,
        steps=steps,
        lr_linear=None if work.lr is None else work.lr * growth,
        lr_sqrt=None if work.lr is None else work.lr * math.sqrt(growth),
        warmup_steps=math.ceil(work.warmup * steps) if growth > 1 else 0,
        step_s=parts.step_s,
        comm_s=parts.comm_s if _communication_known(fitted.model, size) else None,
        exposed_s=parts.exposed_s,
        epoch_s=steps * parts.step_s,
        speedup=speedup,
        efficiency=efficiency,
        gpu_hours=size.gpus * steps * parts.step_s * work.epochs / 3600,
        concerns=_concerns(at, parts, base, efficiency, slower=speedup < 1 and size.gpus > work.gpus),
        speedup_low=work.epoch_s / (steps * slowest_s),
        speedup_high=work.epoch_s / (steps * fastest_s),
        growth=growth,
    )


def _communication_known(model: StepModel, size: JobSize) -> bool:
    links = [
        *([model.network.inside] if size.gpus_per_node > 1 else []),
        *([model.network.between] if size.nodes > 1 else []),
    ]
    return None not in links and (model.parameters is not None or size.gpus == 1)


def _concerns(
    at: StepSize, parts: StepParts, base: _Baseline, efficiency: float, *, slower: bool
) -> tuple[Concern, ...]:
    if round(efficiency, 2) >= MIN_EFFICIENCY:
        return ()
    before, grown = base.parts, at.batch_per_gpu / base.size.batch_per_gpu
    lost: dict[Concern, float] = {
        "little work": parts.fixed_s - before.fixed_s * grown,
        "communication": parts.waiting_s + parts.exposed_s - (before.waiting_s + before.exposed_s) * grown,
        "data loading": parts.loader_s - before.loader_s * grown,
    }
    most = max(lost, key=lambda concern: lost[concern])
    return (most, "slower") if slower else (most,)


@dataclass(frozen=True, slots=True)
class GpuAdvice:
    """How many GPUs to ask for in one case.

    Attributes:
        row: the largest size up to which all sizes reach the target; None: stay with the measured one.
        next_row: the first size that does not; None if all do.
    """

    row: Forecast | None
    next_row: Forecast | None


def gpus_to_ask_for(rows: Sequence[Forecast]) -> GpuAdvice:
    """Return the size to ask for among the rows of one case; of several numbers of nodes the best counts."""
    best: dict[int, Forecast] = {}
    for row in rows:
        if row.size.gpus not in best or row.efficiency > best[row.size.gpus].efficiency:
            best[row.size.gpus] = row
    chosen = None
    for row in sorted(best.values(), key=lambda row: row.size.gpus):
        if not row.worth_it:
            return GpuAdvice(chosen, row)
        chosen = row
    return GpuAdvice(chosen, None)


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """The measurement that narrows a range most.

    Attributes:
        row: the forecast that it narrows.
        before, after: the relative half-width of its range, now and then.
    """

    gpus: int
    nodes: int
    batch_size: int
    row: Forecast
    before: float
    after: float


_HALF_WIDTH = 1.28  # standard deviations: four of five


def next_measurement(
    work: MeasuredTraining, row: Forecast, fitted: FittedSteps, cheaper: Sequence[JobSize]
) -> NextMeasurement | None:
    """Return the measurement that narrows a forecast most, on the measured GPUs or on others with fewer than the row.

    Args:
        cheaper: sizes on which to measure.
    """
    target = StepSize(row.size.gpus, row.size.nodes, row.batch_size / row.size.gpus)
    measured = {(each.size.gpus, each.size.nodes, each.size.batch_per_gpu) for each in fitted.timed}
    found: NextMeasurement | None = None
    before = _HALF_WIDTH * fitted.spread_after(target)
    for size in cheaper:
        for batch_size in dict.fromkeys((row.batch_size, work.batch_size, work.batch_per_gpu * size.gpus)):
            at = StepSize(size.gpus, size.nodes, batch_size / size.gpus)
            if batch_size % size.gpus or (at.gpus, at.nodes, at.batch_per_gpu) in measured:
                continue
            if at.batch_per_gpu > work.most_per_gpu or batch_size > work.samples:
                continue
            after = _HALF_WIDTH * fitted.spread_after(target, at)
            if found is None or after < 0.95 * found.after:
                found = NextMeasurement(size.gpus, size.nodes, batch_size, row, before, after)
    return found


def _batch(work: MeasuredTraining, case: Case, gpus: int) -> int:
    """Return the global batch.

    Raises:
        UsageError: it does not divide, or is larger than the data set.
    """
    if case == "fixed":
        if work.batch_size % gpus:
            raise UsageError(
                f"--batch-size {work.batch_size} does not divide by --gpus {gpus}: {work.batch_size / gpus:.2f} each",
                hint=f"use a global batch of {multiples_around(work.batch_size, gpus)}, "
                f"{_divisors_around(work.batch_size, gpus)} GPUs, or --mode scaled",
            )
        return work.batch_size
    batch_size = work.batch_per_gpu * gpus
    if batch_size > work.samples:
        most = work.samples // work.batch_per_gpu
        raise UsageError(
            f"--gpus {gpus}: per-GPU batch {work.batch_per_gpu} makes global batch {batch_size}, more than the "
            f"{work.samples} samples of an epoch",
            hint=f"use at most {most} GPUs, or --mode fixed",
        )
    return batch_size


def _divisors_around(number: int, near: int) -> str:
    """Return the nearest numbers that divide this one, below and above."""
    below = next(one for one in range(min(near, number), 0, -1) if number % one == 0)
    above = next((one for one in range(near, min(number, 2 * near) + 1) if number % one == 0), None)
    return f"{below} or {above}" if above else str(below)
