"""Which part of its time a size loses to data, waiting, start-up or small batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A possible cause of a size's loss."""

    kind: Kind
    share: float | None  # None if it was not measured
    needs: str  # what the measurement needs
    evidence: str
    advice: str
    command: str


def diagnose_series(
    series: Series, advice: Advice, command: ScaleCommand
) -> ScalingDiagnosis | None:
    """Return the causes for the first size that is not worth its GPUs.

    If there is no such size, return the causes that are known for the largest size.
    """
    row = advice.next_row or series.sizes[-1]
    if not advice.next_step and 1 - row.efficiency < NOTABLE:
        return None
    causes = []
    unknown = []
    for suspect in _suspects(row, series.rows[0], command):
        share = suspect.share
        if share is None:
            # if every size is worth its GPUs, no further measurement is proposed
            if advice.next_step:
                unknown.append(suspect.needs)
        elif share >= NOTABLE:
            causes.append(
                Bottleneck(suspect.kind, share, suspect.evidence, suspect.advice, suspect.command)
            )
    if not causes and not unknown:
        return None
    causes.sort(key=lambda cause: -cause.share)
    return ScalingDiagnosis(row, tuple(causes), tuple(unknown))


def _suspects(row: Row, base: Row, command: ScaleCommand) -> tuple[_Suspect, ...]:
    """Return the possible causes of a size's loss."""
    sizes = [Size(base.gpus, base.nodes), Size(row.gpus, row.nodes)]
    sync = row.shares.sync
    data = row.shares.data
    startup = row.shares.startup
    return (
        _small_batch(row, base, command, sizes),
        _Suspect(
            "sync",
            sync,
            needs="communication (sync_s of an epoch)",
            evidence=f"synchronising the ranks takes {_percent(sync)} of an epoch",
            advice="synchronise less often (gradient accumulation), use fewer nodes, and check the "
            "network",
            command=command.preflight(row.gpus, row.nodes),
        ),
        _Suspect(
            "data",
            data,
            needs="data loading (data_s of an epoch)",
            evidence=f"waiting for data takes {_percent(data)} of an epoch",
            advice="use more DataLoader workers (num_workers, persistent_workers) and more CPUs",
            command=command.change(
                sizes, options=command.more_cpus(8), args=command.more("--num-workers", 8)
            ),
        ),
        _Suspect(
            "startup",
            startup,
            needs="launch overhead (startup_s and total_s)",
            evidence=f"{_percent(startup)} of the run passes before the first epoch",
            advice=f"train longer in one job, or with fewer {row.unit}",
            command=command.change(sizes, args=command.more("--epochs", 20)),
        ),
        _uneven_batch(row, command, sizes),
    )


def _small_batch(row: Row, base: Row, command: ScaleCommand, sizes: Sequence[Size]) -> _Suspect:
    """Return the loss to a smaller batch per GPU.

    With a fixed global batch, each of more GPUs has less work in a step, but the same fixed cost.
    That cost is the loss that waiting for data and ranks does not explain. An unchanged batch per
    GPU causes no loss.
    """
    gpus = row.gpus
    batch = row.batch_size
    now = (batch or 0) / gpus
    before = base.batch_size / base.gpus if base.batch_size else now
    share = None
    if batch is not None:
        share = 0.0
        if now < before:
            share = 1 - row.efficiency - (row.shares.data or 0) - (row.shares.idle or 0)
    one = row.unit.removesuffix("s")
    left = f"a per-{one} batch of {_short_number(now)} on {gpus} {row.unit}"
    enough = max(round(before * gpus), SMALL_BATCH * gpus)
    return _Suspect(
        "batch",
        share,
        needs="the batch per GPU (batch_size)",
        evidence=f"global batch {batch} leaves {left}, {_short_number(before)} at {base.gpus}",
        advice=f"use a larger per-{one} batch, and scale the learning rate with the global batch",
        command=command.change(sizes, batch_size=enough),
    )


def _uneven_batch(row: Row, command: ScaleCommand, sizes: Sequence[Size]) -> _Suspect:
    """Return the loss of ranks that wait for the rank with the most samples."""
    gpus = row.gpus
    batch = row.batch_size
    counts = row.points[0].rank_samples
    if batch and not counts:
        steps = -(-batch // gpus)
        share: float | None = 1 - batch / (steps * gpus)
        evidence = f"a batch of {batch} does not divide by {gpus} {row.unit}"
    else:
        share = row.shares.idle
        fewest = min(counts, default=0)
        most = max(counts, default=0)
        evidence = f"ranks have {fewest} to {most} samples in an epoch"
    samples_per_gpu = max(1, round((batch or gpus) / gpus))
    return _Suspect(
        "uneven",
        share,
        needs="uneven batches (rank_samples)",
        evidence=evidence,
        advice="give all ranks the same number of samples: a global batch divisible by the "
        f"{row.unit}, DistributedSampler, drop_last",
        command=command.change(sizes, batch_size=samples_per_gpu * gpus),
    )


def _short_number(number: float) -> str:
    """Return ``32`` or ``10.7``."""
    return f"{number:.1f}".removesuffix(".0")


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):.0f} %"
