"""A training on other numbers of GPUs: its time, its speed-up and its losses.

The speed-up has a range, and the losses say what a size loses its time to.

The times come from a model of a step that was fitted to the measured epochs:
``hpcrun.features.scaling.step_model``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hpcrun.errors import UsageError
from hpcrun.features.scaling.step_model import StepModel, StepSize, TimedStep, fixed_share
from hpcrun.features.scaling.worth_its_gpus import MIN_EFFICIENCY, Step, choose, reaches
from hpcrun.job.profile_model import CardSection
from hpcrun.job.resources.shape import multiples_around
from hpcrun.job.text.units import count

Case = Literal["fixed", "scaled"]
CASES: dict[str, tuple[Case, ...]] = {
    "fixed": ("fixed",),
    "scaled": ("scaled",),
    "both": ("fixed", "scaled"),
}
"""Fixed: the global batch stays. Scaled: the per-GPU batch stays."""

Concern = Literal["little work", "communication", "slower"]

LARGE_GROWTH = 8
"""A batch so many times the measured one needs a warm-up and a check of the accuracy, whatever the
rule for its rate.

Goyal et al. 2017 (arXiv:1706.02677) went from 256 to 8192 images with SGD: with 5 epochs of
warm-up, and without it the error of ResNet-50 rose by a point (section 5.1). Shallue et al. 2019
(arXiv:1811.03600) found no rule that holds for all models, and for some none beyond a few
doublings.
"""
CONTRADICTION = 0.25
"""The relative misfit from which measurements contradict each other."""
_MOST_READS = 4  # forward, backward, and the optimizer's reading and writing
# a remedy's per-GPU batch over the largest measured one: more has to fit, and to be learned from
_MOST_LARGER = 4
Optimizer = Literal["sgd", "adam"]

WARMUP_EPOCHS = 5
"""Goyal et al. 2017 (arXiv:1706.02677, section 2.2): the rate is raised gradually over the first 5
epochs.
"""


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
    # other measured epochs, with another batch or on other GPUs
    also: tuple[MeasuredEpoch, ...] = ()
    lr: float | None = None
    optimizer: Optimizer | None = None
    warmup_epochs: float | None = None
    epochs: int = 1
    # tokens, patches or pixels of one sample that pass through a layer together
    tokens_per_sample: int = 1

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
    def warmup(self) -> float:
        """The epochs of warm-up, as given or else as Goyal et al. use them.

        Without a given number, they are at most half of a short training.
        """
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        if self.epochs > 1:
            return min(WARMUP_EPOCHS, self.epochs / 2)
        return WARMUP_EPOCHS


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Return the number of steps of an epoch.

    The last step has the rest, like torch's DataLoader by default.
    """
    return -(-samples // batch_size)


class JobSize(NamedTuple):
    """The size of a job."""

    gpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """One number of GPUs in one case."""

    case: Case
    size: JobSize
    batch_size: int
    steps: int
    lr_linear: float | None
    lr_sqrt: float | None
    warmup_steps: int
    step_s: float
    epoch_s: float
    speedup: float  # over the measured epoch
    # of each GPU's speed over the baseline's: the smallest size, measured or forecast, with the
    # same case's batch
    efficiency: float
    gpu_hours: float  # of all epochs
    # none if its efficiency, as shown, reaches the target; else what takes most of the lost time,
    # and "slower" if it is slower than the baseline
    concerns: tuple[Concern, ...]
    # speedup_low, speedup_high: the range in which eight of ten published trainings lay
    speedup_low: float
    speedup_high: float
    growth: float

    @property
    def batch_per_gpu(self) -> int:
        """The batch of one GPU."""
        return self.batch_size // self.size.gpus


def half_rows(card: CardSection) -> float | None:
    """Return how many rows of a matrix fill a card.

    None if the profile does not have the card's rates.

    A layer of weights K × N does 2·M·K·N operations for M rows and reads 2·K·N bytes of weights in
    a 16-bit type: M operations for each byte. At M = peak / memory bandwidth both take equally
    long: below it at least half of the time is not arithmetic (NVIDIA, GPU Performance Background
    User's Guide, "ops:byte ratio"). 295 for an H100 SXM.
    """
    peaks = [rate for rate in (card.tflops.bf16, card.tflops.fp16) if rate]
    if not peaks or not card.memory_bandwidth_gb_s:
        return None
    return max(peaks) * 1e12 / (card.memory_bandwidth_gb_s * 1e9)


def most_fixed_s(card: CardSection) -> float:
    """Return the longest time of a step that a card can spend on fixed work.

    That is reading all of its memory a few times: the weights, the gradients and the optimizer's
    numbers are in it.
    """
    if not card.memory_gb or not card.memory_bandwidth_gb_s:
        return math.inf
    return _MOST_READS * card.memory_gb / card.memory_bandwidth_gb_s


def fit_steps(
    work: MeasuredTraining,
    rows: float | None,
    nodes: Sequence[int],
    most_s: float = math.inf,
) -> StepModel:
    """Return the model of a step, fitted to the measured epochs on these nodes.

    ``rows`` is the number of rows that fill the card, ``most_s`` the longest time that it can spend
    on fixed work.

    Raises:
        UsageError: the measured epochs contradict each other.
    """
    measured = []
    for epoch, number in zip(work.epochs_measured, nodes, strict=True):
        size = StepSize(epoch.gpus, number, epoch.batch_size / epoch.gpus)
        steps = steps_per_epoch(work.samples, epoch.batch_size)
        measured.append(TimedStep(size, epoch.epoch_s / steps))
    timed = tuple(measured)
    half_batch = (rows or 0) / work.tokens_per_sample
    model = StepModel(timed, fixed_share(timed, half_batch, most_s))
    for step, epoch in zip(timed, work.epochs_measured, strict=True):
        misfit = model.misfit(step)
        if abs(misfit) > CONTRADICTION:
            place = f"{epoch.batch_size} on {count(epoch.gpus, 'GPU')}"
            forecast_s = step.step_s * (1 + misfit)
            raise UsageError(
                f"the measured epochs contradict each other: {place} took {step.step_s:.3g} s a "
                f"step, and by the others it takes {forecast_s:.3g} s",
                hint="measure all of them on the same GPUs, and leave out the first epoch",
            )
    return model


def _baseline(
    work: MeasuredTraining, case: Case, sizes: Sequence[JobSize], steps: StepModel
) -> StepSize:
    """Return the size with which others are compared: the smallest, measured or forecast."""
    smallest = min(sizes)
    measured = steps.first.size
    if smallest.gpus >= measured.gpus:
        return measured
    batch_per_gpu = measured.batch_per_gpu
    if case == "fixed":
        batch_per_gpu = work.batch_size / smallest.gpus
    return StepSize(smallest.gpus, smallest.nodes, batch_per_gpu)


def forecast(
    work: MeasuredTraining, cases: Sequence[Case], sizes: Sequence[JobSize], steps: StepModel
) -> tuple[Forecast, ...]:
    """Return the forecast for every size in every case."""
    rows = []
    for case in cases:
        base = _baseline(work, case, sizes, steps)
        for size in sizes:
            batch_size = _batch(work, case, size.gpus)
            rows.append(_forecast(work, case, size, batch_size, steps, base))
    return tuple(rows)


def remedy(
    work: MeasuredTraining, row: Forecast, sizes: Sequence[JobSize], steps: StepModel
) -> Forecast | None:
    """Return a size with the smallest larger batch that reaches the target, or else None.

    The batch is doubled and doubled again.
    """
    base = _baseline(work, row.case, sizes, steps)
    most = min(work.samples, _MOST_LARGER * work.most_per_gpu * row.size.gpus)
    batch_size = 2 * row.batch_size
    while batch_size <= most:
        larger = _forecast(work, "scaled", row.size, batch_size, steps, base)
        if not larger.concerns:
            return larger
        batch_size *= 2
    return None


def advised_lr(work: MeasuredTraining, row: Forecast) -> float | None:
    """Return the learning rate to begin with.

    The square-root rule gives it, or the linear rule for SGD and a small growth of the batch.
    """
    if work.optimizer == "sgd" and row.growth < LARGE_GROWTH:
        return row.lr_linear
    return row.lr_sqrt


def _forecast(
    work: MeasuredTraining,
    case: Case,
    size: JobSize,
    batch_size: int,
    model: StepModel,
    base: StepSize,
) -> Forecast:
    steps = steps_per_epoch(work.samples, batch_size)
    at = StepSize(size.gpus, size.nodes, batch_size / size.gpus)
    step_s = model.step_s(at)
    fastest_s, slowest_s = model.range_s(at)
    efficiency = at.batch_per_gpu / step_s * model.step_s(base) / base.batch_per_gpu
    growth = batch_size / work.batch_size
    lr_linear = None
    lr_sqrt = None
    if work.lr is not None:
        lr_linear = work.lr * growth
        lr_sqrt = work.lr * math.sqrt(growth)
    return Forecast(
        case=case,
        size=size,
        batch_size=batch_size,
        steps=steps,
        lr_linear=lr_linear,
        lr_sqrt=lr_sqrt,
        warmup_steps=math.ceil(work.warmup * steps) if growth > 1 else 0,
        step_s=step_s,
        epoch_s=steps * step_s,
        speedup=work.epoch_s / (steps * step_s),
        efficiency=efficiency,
        gpu_hours=size.gpus * steps * step_s * work.epochs / 3600,
        concerns=_concerns(at, model, base, efficiency),
        speedup_low=work.epoch_s / (steps * slowest_s),
        speedup_high=work.epoch_s / (steps * fastest_s),
        growth=growth,
    )


def _concerns(
    at: StepSize, model: StepModel, base: StepSize, efficiency: float
) -> tuple[Concern, ...]:
    if reaches(efficiency, MIN_EFFICIENCY):
        return ()
    work = at.batch_per_gpu / model.work_s(at) * model.work_s(base) / base.batch_per_gpu
    cause: Concern = "little work" if work < efficiency / work else "communication"
    if efficiency * at.gpus < base.gpus:
        return (cause, "slower")
    return (cause,)


@dataclass(frozen=True, slots=True)
class GpuAdvice:
    """How many GPUs to ask for in one case."""

    # the largest size that is worth its GPUs (``verdict.py``); None where nothing can be
    # recommended, since only one number of GPUs was measured, or there are no rows
    row: Forecast | None
    # the step to the next larger size, which misses the target; None if there is none
    step: Step | None
    # that size; of a training measured on one number of GPUs, the one to measure next
    next_row: Forecast | None


def gpus_to_ask_for(rows: Sequence[Forecast], model: StepModel) -> GpuAdvice:
    """Return the size to ask for among the rows of one case.

    Where a number of GPUs has several numbers of nodes, the best one counts.
    """
    best: dict[int, Forecast] = {}
    for row in sorted(rows, key=lambda row: (row.size.gpus, -row.efficiency)):
        best.setdefault(row.size.gpus, row)
    # no model can decide from one size: a gain was forecast in six of nine cases of loss
    if len(model.losses) == 1:
        measured = model.first.size.gpus
        larger = [row for gpus, row in best.items() if gpus > measured]
        return GpuAdvice(None, None, larger[0] if larger else None)
    smallest = next(iter(best.values()))
    chosen = choose([(size, row.speedup / smallest.speedup) for size, row in best.items()])
    step = chosen.next_step
    return GpuAdvice(best[chosen.gpus], step, best[step.gpus] if step else None)


def _batch(work: MeasuredTraining, case: Case, gpus: int) -> int:
    """Return the global batch.

    Raises:
        UsageError: the batch does not divide by the GPUs, or is larger than an epoch.
    """
    if case == "fixed":
        if work.batch_size % gpus:
            each = f"{work.batch_size / gpus:.2f} each"
            batches = multiples_around(work.batch_size, gpus)
            raise UsageError(
                f"--batch-size {work.batch_size} does not divide by --gpus {gpus}: {each}",
                hint=f"use a global batch of {batches}, or --mode scaled",
            )
        return work.batch_size
    batch_size = work.batch_per_gpu * gpus
    if batch_size > work.samples:
        most = work.samples // work.batch_per_gpu
        batches = f"per-GPU batch {work.batch_per_gpu} makes global batch {batch_size}"
        raise UsageError(
            f"--gpus {gpus}: {batches}, more than the {work.samples} samples of an epoch",
            hint=f"use at most {most} GPUs, or --mode fixed",
        )
    return batch_size
