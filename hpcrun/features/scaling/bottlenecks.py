"""Which part of its time a size loses to data, waiting, start-up or small batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import ScaleCommand, Size
from hpcrun.features.scaling.worth_its_gpus import Advice

Kind = Literal["batch", "sync", "data", "startup", "uneven"]
NOTABLE = 0.05
"""The least share of the time that is reported."""
SMALL_BATCH = 32
"""Samples per GPU below which few models keep any card busy."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A part of the time that a size loses."""

    kind: Kind
    share: float  # of the time of that size, 0 to 1
    evidence: str  # the measured number, in words
    advice: str  # what to do, in words
    # a command to try it; "" if the script's arguments do not name what it would change
    command: str


@dataclass(frozen=True, slots=True)
class ScalingDiagnosis:
    """Why one size does not reach the ideal."""

    row: Row  # the size
    causes: tuple[Bottleneck, ...]  # the largest share first
    unknown: tuple[str, ...]  # causes that were not measured, with the metrics that they need


def diagnose_series(
    series: Series, advice: Advice, command: ScaleCommand
) -> ScalingDiagnosis | None:
    """Return the causes for the first size that is not worth its GPUs.

    If there is no such size, return the causes that are known for the largest size.
    """
    base = series.rows[0]
    row = advice.next_row or series.sizes[-1]
    if not advice.next_step and 1 - row.efficiency < NOTABLE:
        return None
    judged = _causes(row, base, command)
    causes = [
        Bottleneck(kind, share, *texts)
        for kind, share, _, *texts in judged
        if share and share >= NOTABLE
    ]
    # if every size is worth its GPUs, no further measurement is proposed
    if advice.next_step:
        unknown = tuple(what for _, share, what, *_ in judged if share is None)
    else:
        unknown = ()
    if not causes and not unknown:
        return None
    return ScalingDiagnosis(row, tuple(sorted(causes, key=lambda cause: -cause.share)), unknown)


def _causes(
    row: Row, base: Row, command: ScaleCommand
) -> tuple[tuple[Kind, float | None, str, str, str, str], ...]:
    """Return the possible causes of a size's loss.

    Each has its share, or None if it was not measured, what the measurement needs, and the texts.
    """
    sizes = [Size(each.gpus, each.nodes) for each in (base, row)]
    shares, gpus, batch = row.shares, row.gpus, row.batch_size
    one = row.unit.removesuffix("s")
    counts = row.points[0].rank_samples
    each = (batch or 0) / gpus
    before = base.batch_size / base.gpus if base.batch_size else each
    # With a fixed global batch, each of more GPUs has less work in a step, but the same fixed cost.
    # That cost is the loss that waiting for data and ranks does not explain. An unchanged batch per
    # GPU causes no loss.
    if each < before:
        fixed = 1 - row.efficiency - (shares.data or 0) - (shares.idle or 0)
    else:
        fixed = 0.0
    idle, uneven = (
        shares.idle,
        f"ranks have {min(counts, default=0)} to {max(counts, default=0)} samples in an epoch",
    )
    if batch and not counts:
        idle = 1 - batch / (-(-batch // gpus) * gpus)
        uneven = f"a batch of {batch} does not divide by {gpus} {row.unit}"
    now, then = (f"{number:.1f}".removesuffix(".0") for number in (each, before))
    data, sync, startup = (f"{100 * (share or 0):.0f} %" for share in shares[:3])
    return (
        (
            "batch",
            None if batch is None else fixed,
            "the batch per GPU (batch_size)",
            f"global batch {batch} leaves a per-{one} batch of {now} on {gpus} {row.unit}, {then} "
            f"at {base.gpus}",
            f"use a larger per-{one} batch, and scale the learning rate with the global batch",
            command.change(sizes, batch_size=max(round(before * gpus), SMALL_BATCH * gpus)),
        ),
        (
            "sync",
            shares.sync,
            "communication (sync_s of an epoch)",
            f"synchronising the ranks takes {sync} of an epoch",
            "synchronise less often (gradient accumulation), use fewer nodes, and check the "
            "network",
            command.preflight(gpus, row.nodes),
        ),
        (
            "data",
            shares.data,
            "data loading (data_s of an epoch)",
            f"waiting for data takes {data} of an epoch",
            "use more DataLoader workers (num_workers, persistent_workers) and more CPUs",
            command.change(
                sizes, options=command.more_cpus(8), args=command.more("--num-workers", 8)
            ),
        ),
        (
            "startup",
            shares.startup,
            "launch overhead (startup_s and total_s)",
            f"{startup} of the run passes before the first epoch",
            f"train longer in one job, or with fewer {row.unit}",
            command.change(sizes, args=command.more("--epochs", 20)),
        ),
        (
            "uneven",
            idle,
            "uneven batches (rank_samples)",
            uneven,
            "give all ranks the same number of samples: a global batch divisible by the "
            f"{row.unit}, DistributedSampler, "
            "drop_last",
            command.change(sizes, batch_size=max(1, round((batch or gpus) / gpus)) * gpus),
        ),
    )
