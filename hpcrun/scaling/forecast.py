"""The time of an epoch on other numbers of GPUs, from one measured epoch.

The time of a step has a fixed part and a part per sample: t(b) = fixed + each · b, the model of
Pollux (Qiao et al. 2021, arXiv:2008.12260, T_grad) and of Hockney's n½, the batch at which both parts are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcrun.errors import UsageError
from hpcrun.job.profile import CardSection
from hpcrun.job.shape import multiples_around
from hpcrun.scaling.communication import Network, bucket_overlap, computed_s, exposed_s, ring_allreduce_s
from hpcrun.scaling.workload import MeasuredTraining, steps_per_epoch

Case = Literal["fixed", "scaled"]
CASES: dict[str, tuple[Case, ...]] = {"fixed": ("fixed",), "scaled": ("scaled",), "both": ("fixed", "scaled")}
"""Fixed: the global batch stays. Scaled: the per-GPU batch stays."""

_NOISE = 0.05
"""The relative difference of two measurements of the same quantity."""

Concern = Literal["little work", "communication", "slower"]


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
class StepCost:
    """The time of a step on one GPU, in seconds.

    Attributes:
        fixed_s: for any batch.
        sample_s: for each sample.
    """

    fixed_s: float
    sample_s: float

    @property
    def half_batch(self) -> float:
        """The batch of one GPU at which half of a step is work on samples (n½)."""
        return self.fixed_s / self.sample_s

    def at(self, batch_per_gpu: int) -> float:
        """Return the time that a GPU computes for a step."""
        return self.fixed_s + self.sample_s * batch_per_gpu


@dataclass(frozen=True, slots=True)
class Forecast:
    """One number of GPUs in one case.

    Attributes:
        comm_s: the all-reduce of a step's gradients; None if unknown.
        exposed_s: the part of it for which a step waits.
        speedup, efficiency: relative to the measured epoch; with an efficiency of 1 each GPU is as fast.
        gpu_hours: of all epochs.
        concerns: reasons against this size.
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
    concerns: tuple[Concern, ...] = ()

    @property
    def batch_per_gpu(self) -> int:
        """The batch of one GPU."""
        return self.batch_size // self.size.gpus


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


def step_cost(work: MeasuredTraining, rows: float | None, comm_s: float) -> StepCost:
    """Return the time of a step, from the second measurement if there is one, else from the card.

    Args:
        rows: the number of rows that fill the card; None assumes a step in proportion to its batch.
        comm_s: the all-reduce of a step's gradients on the measured GPUs.

    Raises:
        UsageError: the measurements contradict each other or the network.
    """
    compute_s = _computed_s(work, work.step_s, comm_s)
    if work.second:
        batch_size, epoch_s = work.second
        second_s = epoch_s / steps_per_epoch(work.samples, batch_size)
        return _by_two(work, batch_size, compute_s, _computed_s(work, second_s, comm_s))
    half_batch = (rows or 0) / work.tokens_per_sample
    sample_s = compute_s / (half_batch + work.batch_per_gpu)
    return StepCost(half_batch * sample_s, sample_s)


def _computed_s(work: MeasuredTraining, step_s: float, comm_s: float) -> float:
    compute_s = computed_s(step_s, comm_s, overlap_of(work))
    if compute_s <= 0:
        raise UsageError(
            f"a step took {step_s:.3g} s on {work.gpus} GPUs, but its communication alone takes {comm_s:.3g} s",
            hint="check --parameters, --epoch-time and --reference-gpus; --overlap 1 hides all communication",
        )
    return compute_s


def _by_two(work: MeasuredTraining, batch_size: int, compute_s: float, second_s: float) -> StepCost:
    sample_s = (second_s - compute_s) / (batch_size // work.gpus - work.batch_per_gpu)
    fixed_s = compute_s - sample_s * work.batch_per_gpu
    if sample_s <= 0 or fixed_s < -_NOISE * compute_s:
        problem = "a larger batch does not take longer" if sample_s <= 0 else "a step grows faster than its batch"
        raise UsageError(
            f"--also {batch_size} contradicts --epoch-time: {problem} "
            f"({compute_s:.3g} s a step at {work.batch_size}, {second_s:.3g} s at {batch_size})",
            hint="measure both on the same GPUs, and leave out the first epoch",
        )
    return StepCost(fixed_s, sample_s) if fixed_s > 0 else StepCost(0.0, compute_s / work.batch_per_gpu)


def communication_s(work: MeasuredTraining, size: JobSize, network: Network) -> float | None:
    """Return the time of the all-reduce of a step's gradients; None if unknown."""
    if work.parameters is None:
        return 0.0 if size.gpus == 1 else None
    return ring_allreduce_s(work.parameters * work.gradient_bytes, size.gpus_per_node, size.nodes, network)


def overlap_of(work: MeasuredTraining) -> float:
    """Return the share of communication that may overlap: as given, else as DDP's buckets allow."""
    if work.overlap is not None:
        return work.overlap
    return bucket_overlap(work.parameters * work.gradient_bytes) if work.parameters else 0.0


def forecast(
    work: MeasuredTraining, cases: Sequence[Case], sizes: Sequence[JobSize], cost: StepCost, network: Network
) -> tuple[Forecast, ...]:
    """Return the forecast for every size in every case.

    Raises:
        UsageError: a batch does not divide, or a scaled one is larger than the data set.
    """
    return tuple(
        _forecast(work, case, size, _batch(work, case, size.gpus), cost, communication_s(work, size, network))
        for case in cases
        for size in sizes
    )


def with_batch(work: MeasuredTraining, row: Forecast, batch_size: int, cost: StepCost) -> Forecast:
    """Return a forecast with another batch."""
    return _forecast(work, "scaled", row.size, batch_size, cost, row.comm_s)


def _forecast(
    work: MeasuredTraining, case: Case, size: JobSize, batch_size: int, cost: StepCost, comm_s: float | None
) -> Forecast:
    steps = steps_per_epoch(work.samples, batch_size)
    compute_s = cost.at(batch_size // size.gpus)
    waited_s = exposed_s(comm_s or 0.0, compute_s, overlap_of(work))
    epoch_s = steps * (compute_s + waited_s)
    growth = batch_size / work.batch_size
    speedup = work.epoch_s / epoch_s
    return Forecast(
        case=case,
        size=size,
        batch_size=batch_size,
        steps=steps,
        lr_linear=None if work.lr is None else work.lr * growth,
        lr_sqrt=None if work.lr is None else work.lr * math.sqrt(growth),
        warmup_steps=round(work.warmup * steps) if growth > 1 else 0,
        step_s=compute_s + waited_s,
        comm_s=comm_s,
        exposed_s=waited_s,
        epoch_s=epoch_s,
        speedup=speedup,
        efficiency=speedup * work.gpus / size.gpus,
        gpu_hours=size.gpus * epoch_s * work.epochs / 3600,
        concerns=_concerns(work, size, batch_size // size.gpus, compute_s, waited_s, speedup, cost),
    )


def _concerns(
    work: MeasuredTraining,
    size: JobSize,
    batch_per_gpu: int,
    compute_s: float,
    waited_s: float,
    speedup: float,
    cost: StepCost,
) -> tuple[Concern, ...]:
    found: dict[Concern, bool] = {
        "little work": size.gpus > 1 and batch_per_gpu < cost.half_batch,
        "communication": waited_s > compute_s,
        "slower": size.gpus > work.gpus and speedup < 1,
    }
    return tuple(name for name, true in found.items() if true)


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
