"""Which numbers of GPUs are worth their price: a verdict on each size, and advice.

Sizes are taken from the smallest up. The marginal efficiency of a size is the speed-up of each GPU
that it adds to the last size taken, over the speed-up of each GPU of the smallest size. A size that
misses the target is left out. The next one is compared with the last size taken: a small miss does
not hide a gain at a larger size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcrun.features.scaling.series import Row, Series

MIN_EFFICIENCY = 0.65
"""The target, unless ``--min-efficiency`` sets another one.

It separates what teams call a success from what they call diminishing returns: 3.0 × on 4 GPUs, 75
% of the ideal, brings 67 % for each added GPU; 6.0 × on 8 after 3.4 × on 4 brings 64 %.
"""
Verdict = Literal[
    "baseline", "good", "diminishing returns", "poor", "negative scaling", "no verdict", ""
]


@dataclass(frozen=True, slots=True)
class Step:
    """From the last size that was taken to a larger one."""

    before: int
    gpus: int
    # the marginal efficiency, 0.64 for 64 %; negative if the added GPUs slow the rest down
    added: float
    taken: bool  # whether it reaches the target


def reaches(efficiency: float, target: float) -> bool:
    """Return whether an efficiency reaches the target, in whole per cent as the answer shows it."""
    return to_percent(efficiency) >= to_percent(target)


def to_percent(share: float) -> int:
    """Return a share in whole per cent, with halves rounded up."""
    return half_up(100 * share)


def half_up(value: float) -> int:
    """Return the nearest whole number, the upper one for a half.

    A binary fraction may be a little less than the half for which it stands: 100 · 0.285 is
    28.499999999999996.
    """
    return math.floor(round(value, 6) + 0.5)


def steps(
    speedups: Sequence[tuple[int, float]], target: float = MIN_EFFICIENCY
) -> tuple[Step, ...]:
    """Return a step for each size but the smallest.

    ``speedups``: GPUs and speed-up over the smallest, ascending.
    """
    if not speedups:
        return ()
    base, speedup = speedups[0]
    last = base
    walk = []
    for gpus, value in speedups[1:]:
        added = (value - speedup) * base / (gpus - last)
        step = Step(last, gpus, added, reaches(added, target))
        walk.append(step)
        if step.taken:
            last = gpus
            speedup = value
    return tuple(walk)


@dataclass(frozen=True, slots=True)
class BestSize:
    """The largest size that is worth its GPUs, and the steps around it."""

    gpus: int
    step: Step | None  # the step to this size; None if it is the smallest one
    next_step: Step | None  # the step to the next larger size; None if there is none


def choose(speedups: Sequence[tuple[int, float]], target: float = MIN_EFFICIENCY) -> BestSize:
    """Return the largest size that is worth its GPUs.

    ``speedups``: GPUs and speed-up over the smallest, ascending; at least one.
    """
    step = None
    gpus = speedups[0][0]
    walk = steps(speedups, target)
    for each in walk:
        if each.taken:
            step = each
            gpus = each.gpus
    larger = [each for each in walk if each.gpus > gpus]
    return BestSize(gpus, step, larger[0] if larger else None)


@dataclass(frozen=True, slots=True)
class Advice:
    """The sizes to request."""

    fastest: Row  # the largest speed-up
    cheapest: Row  # the fewest GPU-hours for the same work
    value: Row  # the largest size that is worth its GPUs
    step: Step | None  # the step to it; None if it is the smallest size
    # the step to the next larger size, which misses the target; None if there is none
    next_step: Step | None
    next_row: Row | None  # that size
    min_efficiency: float  # the target
    # sizes of which the times are unreliable; only the others carry the advice
    doubtful: frozenset[int] = frozenset()


def verdict(row: Row, series: Series, advice: Advice | None) -> Verdict:
    """Return the verdict on a size's efficiency.

    The verdict is "" for the only size, and "no verdict" without advice on the series.
    """
    if not series.compared:
        return ""
    if row is series.rows[0]:
        return "baseline"
    if advice is None or row.gpus in advice.doubtful:
        return "no verdict"
    if round(row.speedup.mean, 2) < 1:
        return "negative scaling"
    if not reaches(row.efficiency, advice.min_efficiency):
        return "poor"
    if row.gpus <= advice.value.gpus:
        return "good"
    return "diminishing returns"


def advise(
    series: Series, min_efficiency: float = MIN_EFFICIENCY, doubtful: frozenset[int] = frozenset()
) -> Advice | None:
    """Return the sizes to request, or None if too few sizes are reliable.

    Two sizes must not be doubtful, and one of them must be the baseline.
    """
    sizes = [row for row in series.sizes if row.gpus not in doubtful]
    if len(sizes) < 2 or series.sizes[0].gpus in doubtful:
        return None
    chosen = choose([(row.gpus, row.speedup.mean) for row in sizes], min_efficiency)
    rows = {row.gpus: row for row in sizes}
    next_row = None
    if chosen.next_step:
        next_row = rows[chosen.next_step.gpus]
    return Advice(
        fastest=max(sizes, key=lambda row: row.speedup.mean),
        cheapest=max(sizes, key=lambda row: row.efficiency),
        value=rows[chosen.gpus],
        step=chosen.step,
        next_step=chosen.next_step,
        next_row=next_row,
        min_efficiency=min_efficiency,
        doubtful=doubtful,
    )


def pareto(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows that no other row beats in both time and GPU-hours.

    The fastest row comes first.
    """
    timed = []
    for row in rows:
        if row.time_s and row.gpu_hours is not None:
            timed.append((row.time_s.mean, row.gpu_hours, row))
    timed.sort(key=lambda item: item[:2])
    front: list[Row] = []
    fewest = math.inf
    for _, hours, row in timed:
        if hours < fewest:
            front.append(row)
            fewest = hours
    return tuple(front)
