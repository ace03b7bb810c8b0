"""The verdict on each row, the sizes that are worth their GPUs, and the number of GPUs to request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hpcrun.scaling.series import Row, Series

Verdict = Literal["baseline", "good", "diminishing returns", "poor", "negative scaling", "no verdict", ""]
MIN_EFFICIENCY = 0.70
"""The target efficiency of words, verdicts and figures, unless ``--min-efficiency`` sets another one."""


@dataclass(frozen=True, slots=True)
class Step:
    """From one size to the next larger one.

    Attributes:
        added: the marginal efficiency: the speed-up of the added GPUs over that of the same number of GPUs at the
            smallest size; 0.64 is 64 %. Negative if they slow the rest down.
    """

    row: Row
    added: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The sizes to request.

    Attributes:
        fastest: the largest speed-up.
        cheapest: the fewest GPU-hours for the same work.
        value: the largest size reached by steps with a marginal efficiency of at least ``min_efficiency``.
        step: the last of these steps; None if it is the smallest size.
        next_step: the first step below the target; None if there is none.
        overall: the largest size up to which the overall efficiency reaches the target.
        min_efficiency: the target.
        doubtful: sizes of which the times are unreliable; only the others carry the advice.
    """

    fastest: Row
    cheapest: Row
    value: Row
    step: Step | None
    next_step: Step | None
    overall: Row
    min_efficiency: float
    doubtful: frozenset[int] = frozenset()


def verdict(row: Row, series: Series, advice: Advice | None) -> Verdict:
    """Return the verdict on a size's efficiency in a word; "" for the only size, which is compared with nothing.

    Args:
        advice: on the whole series; None if no verdict stands.
    """
    if not series.compared:
        return ""
    if row.gpus == series.rows[0].gpus:
        return "baseline"
    if advice is None or row.gpus in advice.doubtful:
        return "no verdict"
    if round(row.speedup.mean, 2) < 1:
        return "negative scaling"
    if row.efficiency < advice.min_efficiency:
        return "poor"
    return "good" if row.gpus <= advice.value.gpus else "diminishing returns"


def steps(sizes: Sequence[Row]) -> tuple[Step, ...]:
    """Return the steps between neighbouring sizes."""
    if not sizes:
        return ()
    smallest = sizes[0].gpus
    return tuple(
        Step(after, (after.speedup.mean - before.speedup.mean) * smallest / (after.gpus - before.gpus))
        for before, after in pairwise(sizes)
    )


def advise(
    series: Series, min_efficiency: float = MIN_EFFICIENCY, doubtful: frozenset[int] = frozenset()
) -> Advice | None:
    """Return the sizes to request; None without two reliable sizes, of which one must be the baseline.

    Args:
        doubtful: the numbers of GPUs for which the times are unreliable.
    """
    sizes = [row for row in series.sizes if row.gpus not in doubtful]
    if len(sizes) < 2 or series.sizes[0].gpus in doubtful:
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
        doubtful=doubtful,
    )


def _leading(kept: Sequence[bool]) -> int:
    """Return the number of values before the first False."""
    return next((number for number, each in enumerate(kept) if not each), len(kept))


def pareto(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows for which no other row is better in both time and GPU-hours, the fastest first."""
    timed = [(row.time_s.mean, row.gpu_hours, row) for row in rows if row.time_s and row.gpu_hours is not None]
    front: list[Row] = []
    fewest = float("inf")
    for _, hours, row in sorted(timed, key=lambda item: item[:2]):
        if hours < fewest:
            front.append(row)
            fewest = hours
    return tuple(front)
