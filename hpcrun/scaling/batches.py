"""The effect of the batch size, if one size was run with several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpcrun.scaling.series import Row, Series


@dataclass(frozen=True, slots=True)
class BatchChange:
    """The same data on the same GPUs with a small batch and with the next larger one."""

    dataset: str
    before: Row
    after: Row


def batch_changes(series: Sequence[Series]) -> tuple[BatchChange, ...]:
    """Return the pairs of neighbouring batch sizes at each data set and size."""
    found: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    for each in series:
        for row in each.rows:
            if row.batch_size is not None and row.time_s:
                found[each.dataset, row.gpus, row.nodes].append(row)
    changes = []
    for (dataset, _, _), rows in found.items():
        rows.sort(key=lambda row: row.batch_size or 0)
        changes += [BatchChange(dataset, *pair) for pair in pairwise(rows)]
    return tuple(changes)
