"""Which numbers of GPUs are worth their price: the one definition, for forecasts and for measurements.

Sizes are taken from the smallest up. A size is taken if the GPUs that it adds to the last one taken bring the target
share of what as many GPUs bring at the smallest size: the marginal efficiency. A size that misses the target is left
out, and the next one is compared with the last one taken: a small miss does not hide a gain at a larger size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_EFFICIENCY = 0.65
"""The target, unless ``--min-efficiency`` sets another one.

It separates what teams call a success from what they call diminishing returns: 3.0 × on 4 GPUs, 75 % of the ideal,
brings 67 % for each added GPU; 6.0 × on 8 after 3.4 × on 4 brings 64 %.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """From the last size that was taken to a larger one.

    Attributes:
        added: the marginal efficiency, 0.64 for 64 %; negative if the added GPUs slow the rest down.
        taken: whether it reaches the target.
    """

    before: int
    gpus: int
    added: float
    taken: bool


def steps(speedups: Sequence[tuple[int, float]], target: float = MIN_EFFICIENCY) -> tuple[Step, ...]:
    """Return a step for each size but the smallest.

    Args:
        speedups: GPUs and the speed-up over the smallest size, in ascending order.
    """
    walk: list[Step] = []
    if speedups:
        base, speedup = speedups[0]
        last = base
        for gpus, value in speedups[1:]:
            added = (value - speedup) * base / (gpus - last)
            walk.append(Step(last, gpus, added, round(added, 2) >= target))
            if walk[-1].taken:
                last, speedup = gpus, value
    return tuple(walk)
