"""What the rows mean: a verdict in a word, the sizes that pay, and the number of GPUs to ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hpcrun.scaling.series import Row, Series

Verdict = Literal["baseline", "excellent", "good", "poor", "negative scaling"]
EXCELLENT, GOOD = 0.85, 0.70
MIN_EFFICIENCY = 0.70


@dataclass(frozen=True, slots=True)
class Step:
    """From one size to the next larger one.

    Attributes:
        added: what the GPUs that were added bring, over what as many of the smallest size do: 0.64 is 64 % of their
            own speed. Negative where they slow the rest down.
    """

    row: Row
    added: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The sizes to ask for.

    Attributes:
        fastest: the largest speed-up.
        cheapest: the fewest GPU-hours for the same work.
        value: the last size that was reached by steps whose added GPUs work at ``min_efficiency`` at least.
        step: the one that reached it; None where it is the smallest size.
        next_step: the first that does not keep to it; None where all do.
        overall: the last size whose own efficiency is still that high, on the way up.
    """

    fastest: Row
    cheapest: Row
    value: Row
    step: Step | None
    next_step: Step | None
    overall: Row
    min_efficiency: float


def verdict(row: Row, series: Series) -> Verdict:
    """Return what a size's efficiency is worth in a word."""
    if row.gpus == series.rows[0].gpus:
        return "baseline"
    if row.speedup.mean < 1:
        return "negative scaling"
    if row.efficiency >= EXCELLENT:
        return "excellent"
    return "good" if row.efficiency >= GOOD else "poor"


def steps(sizes: Sequence[Row]) -> tuple[Step, ...]:
    """Return the steps between neighbouring sizes."""
    if not sizes:
        return ()
    smallest = sizes[0].gpus
    return tuple(
        Step(after, (after.speedup.mean - before.speedup.mean) * smallest / (after.gpus - before.gpus))
        for before, after in pairwise(sizes)
    )


def advise(series: Series, min_efficiency: float = MIN_EFFICIENCY) -> Advice | None:
    """Return the sizes to ask for; None without a usable run."""
    sizes = series.sizes
    if not sizes:
        return None
    taken = steps(sizes)
    kept = _leading([step.added >= min_efficiency for step in taken])
    efficient = _leading([row.efficiency >= min_efficiency for row in sizes[1:]])
    return Advice(
        fastest=max(sizes, key=lambda row: row.speedup.mean),
        cheapest=max(sizes, key=lambda row: row.efficiency),
        value=sizes[kept],
        step=taken[kept - 1] if kept else None,
        next_step=taken[kept] if kept < len(taken) else None,
        overall=sizes[efficient],
        min_efficiency=min_efficiency,
    )


def _leading(kept: Sequence[bool]) -> int:
    """Return how many stand before the first that is false."""
    return next((number for number, each in enumerate(kept) if not each), len(kept))


def pareto(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows that no other beats in both time and GPU-hours, the fastest first."""
    timed = [(row.time_s.mean, row.gpu_hours, row) for row in rows if row.time_s and row.gpu_hours is not None]
    front: list[Row] = []
    fewest = float("inf")
    for _, hours, row in sorted(timed, key=lambda item: item[:2]):
        if hours < fewest:
            front.append(row)
            fewest = hours
    return tuple(front)
