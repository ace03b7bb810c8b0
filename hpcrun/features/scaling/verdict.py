"""The verdict on each row, the sizes that are worth their GPUs, and the number of GPUs to request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.worth import MIN_EFFICIENCY, Step, steps

Verdict = Literal["baseline", "good", "diminishing returns", "poor", "negative scaling", "no verdict", ""]


@dataclass(frozen=True, slots=True)
class Advice:
    """The sizes to request.

    Attributes:
        fastest: the largest speed-up.
        cheapest: the fewest GPU-hours for the same work.
        value: the largest size that is worth its GPUs (``hpcrun.features.scaling.worth``).
        step: the step to it; None if it is the smallest size.
        next_step: the step to the next larger size, which misses the target; None if there is none.
        next_row: that size.
        min_efficiency: the target.
        doubtful: sizes of which the times are unreliable; only the others carry the advice.
    """

    fastest: Row
    cheapest: Row
    value: Row
    step: Step | None
    next_step: Step | None
    next_row: Row | None
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
    rows = {row.gpus: row for row in sizes}
    walk = steps([(row.gpus, row.speedup.mean) for row in sizes], min_efficiency)
    taken = [step for step in walk if step.taken]
    value = rows[taken[-1].gpus] if taken else sizes[0]
    next_step = next((step for step in walk if step.gpus > value.gpus), None)
    return Advice(
        fastest=max(sizes, key=lambda row: row.speedup.mean),
        cheapest=max(sizes, key=lambda row: row.efficiency),
        value=value,
        step=taken[-1] if taken else None,
        next_step=next_step,
        next_row=rows[next_step.gpus] if next_step else None,
        min_efficiency=min_efficiency,
        doubtful=doubtful,
    )


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
