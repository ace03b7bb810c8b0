"""Epochs from the metrics of one rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hpcrun.scaling.points import Epoch

TIMED = ("epoch_time", "samples_per_s")
"""The metrics that make a row an epoch: the first one if a run has it, else the second one."""

# field of Epoch → the metrics for it, the most exact first
_SAID_BY: dict[str, tuple[str, ...]] = {
    "time_s": ("epoch_time",),
    "samples_per_s": ("samples_per_s",),
    "accuracy": ("val_accuracy", "accuracy"),
    "loss": ("loss",),
    "data_s": ("data_time",),
    "sync_s": ("sync_time",),
}
_POSITIVE = ("time_s", "samples_per_s")


def epochs_of(rows: Iterable[tuple[float | None, Mapping[str, Any]]]) -> tuple[Epoch, ...]:
    """Return the epochs among a rank's metrics, ordered by their numbers.

    Args:
        rows: the step, which is the epoch's number, and the metrics. A row without a step has the next number.
    """
    listed = list(rows)
    timed = next((name for name in TIMED if any(number(values.get(name)) for _, values in listed)), None)
    if timed is None:
        return ()
    found: dict[int, Epoch] = {}
    for step, values in listed:
        if not (number(values.get(timed)) or 0) > 0:
            continue
        at = max(found, default=0) + 1 if step is None or not math.isfinite(step) else int(step)
        found[at] = Epoch(at, **{field: _first(field, names, values) for field, names in _SAID_BY.items()})
    return tuple(found[at] for at in sorted(found))


def _first(field: str, names: Iterable[str], values: Mapping[str, Any]) -> float | None:
    said = next((found for name in names if (found := number(values.get(name))) is not None), None)
    return None if said is not None and field in _POSITIVE and said <= 0 else said


def number(value: Any) -> float | None:
    """Return a metric as a number, None if it is text, infinite, or NaN."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(values: Iterable[Any]) -> int | None:
    """Return the last metric that is a whole number over 0, such as a batch size."""
    found = [at for value in values if (at := number(value)) is not None and at > 0 and at.is_integer()]
    return int(found[-1]) if found else None
