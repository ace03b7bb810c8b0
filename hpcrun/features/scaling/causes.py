"""Why a size does not reach the ideal: the measured causes, the largest first, each with advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcrun.features.scaling.command import ANY, ScaleCommand
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import Size
from hpcrun.features.scaling.verdict import Advice

Kind = Literal["batch", "sync", "data", "startup", "uneven"]
NOTABLE = 0.05
"""The least share of the time that is reported."""
SMALL_BATCH = 32
"""Samples per GPU below which few models keep any card busy."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A part of the time that a size loses.

    Attributes:
        share: of the time of that size, 0 to 1.
        evidence: the measured number, in words.
        advice: what to do, in words.
        command: a command to try it; SCRIPT is the training script with its arguments.
    """

    kind: Kind
    share: float
    evidence: str
    advice: str
    command: str


@dataclass(frozen=True, slots=True)
class ScalingDiagnosis:
    """Why one size does not reach the ideal.

    Attributes:
        row: the size.
        causes: the largest share first.
        unknown: causes that were not measured, with the metrics that they need.
    """

    row: Row
    causes: tuple[Bottleneck, ...]
    unknown: tuple[str, ...]


def diagnose_series(series: Series, advice: Advice, command: ScaleCommand = ANY) -> ScalingDiagnosis | None:
    """Return the causes for the first size that is not worth its GPUs, or else those known for the largest.

    Args:
        command: the study's own command, the basis of the proposed ones.
    """
    base, row = series.rows[0], advice.next_row or series.sizes[-1]
    if not advice.next_step and 1 - row.efficiency < NOTABLE:
        return None
    found = [judge(row, base, command) for judge in (_batch, _sync, _data, _startup, _uneven)]
    causes = [cause for cause in found if isinstance(cause, Bottleneck) and cause.share >= NOTABLE]
    # where every size is worth its GPUs, nobody has to measure more
    unknown = tuple(cause for cause in found if isinstance(cause, str)) if advice.next_step else ()
    if not causes and not unknown:
        return None
    return ScalingDiagnosis(row, tuple(sorted(causes, key=lambda cause: -cause.share)), unknown)


def _batch(row: Row, base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    """Judge the per-GPU batch: its share of the loss is all that waiting for data and other ranks does not explain.

    A fixed global batch gives each of more GPUs less work in a step, while the fixed cost of a step, its
    kernel launches and its synchronisation, stays.
    """
    if row.batch_size is None:
        return "the batch per GPU (batch_size)"
    each = row.batch_size / row.gpus
    before = base.batch_size / base.gpus if base.batch_size else each
    if each >= before:
        return None  # what did not change is not why more GPUs lose
    lost = 1 - row.efficiency - (row.shares.data or 0) - (row.shares.idle or 0)
    batch = max(round(before * row.gpus), SMALL_BATCH * row.gpus)
    one = row.unit.removesuffix("s")
    shrunk = f", {_number(before)} at {base.gpus}" if before != each else ""
    return Bottleneck(
        "batch",
        lost,
        f"global batch {row.batch_size} leaves a per-{one} batch of {_number(each)} on {row.gpus} {row.unit}{shrunk}",
        f"use a larger per-{one} batch, and scale the learning rate with the global batch",
        command.scale(_sizes(base, row), batch_size=batch),
    )


def _sync(row: Row, _base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    if row.shares.sync is None:
        return "communication (sync_s of an epoch)"
    return Bottleneck(
        "sync",
        row.shares.sync,
        f"synchronising the ranks takes {_percent(row.shares.sync)} of an epoch",
        "synchronise less often (gradient accumulation), use fewer nodes, and check the network",
        command.preflight(row.gpus, row.nodes),
    )


def _data(row: Row, base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    if row.shares.data is None:
        return "data loading (data_s of an epoch)"
    return Bottleneck(
        "data",
        row.shares.data,
        f"waiting for data takes {_percent(row.shares.data)} of an epoch",
        "use more DataLoader workers (num_workers, persistent_workers) and more CPUs",
        command.scale(_sizes(base, row), options={"--cpus-per-gpu": "8"}, args={"--num-workers": "8"}),
    )


def _startup(row: Row, base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    if row.shares.startup is None:
        return "launch overhead (startup_s and total_s)"
    return Bottleneck(
        "startup",
        row.shares.startup,
        f"{_percent(row.shares.startup)} of the run passes before the first epoch",
        f"train longer in one job, or with fewer {row.unit}",
        command.scale(_sizes(base, row), args={"--epochs": "20"}),
    )


def _uneven(row: Row, base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    counts = row.points[0].rank_samples
    batch = row.batch_size
    if batch is not None and batch % row.gpus and not counts:
        rank = -(-batch // row.gpus)
        share, evidence = 1 - batch / (rank * row.gpus), f"a batch of {batch} does not divide by {row.gpus} {row.unit}"
    elif row.shares.idle is None:
        return None if batch is not None else "uneven batches (rank_samples)"
    else:
        share = row.shares.idle
        evidence = f"ranks have {min(counts, default=0)} to {max(counts, default=0)} samples in an epoch"
    even = max(1, round((batch or row.gpus) / row.gpus)) * row.gpus
    return Bottleneck(
        "uneven",
        share,
        evidence,
        f"give all ranks the same number of samples: a global batch divisible by the {row.unit}, DistributedSampler, "
        "drop_last",
        command.scale(_sizes(base, row), batch_size=even),
    )


def _sizes(*rows: Row) -> list[Size]:
    return [Size(row.gpus, row.nodes) for row in rows]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
