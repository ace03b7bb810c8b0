"""The measurements of a study: one run at one number of GPUs, epoch by epoch, as read from its metrics. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Source = Literal["metrics", "log", "elapsed", "csv"]
"""The source of a point's times: ``hpcrun_runtime.log_metrics``, patterns in the logs, Slurm's elapsed time
(start-up included), or a table."""
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


class Epoch(NamedTuple):
    """One epoch of one run; None for missing values. A tuple: a study's file has a short list for each.

    Attributes:
        number: as counted by the run.
        time_s: seconds of training, without validation if the run measures it separately.
        samples_per_s: over all ranks.
        accuracy: of the validation, 0 to 1 or in per cent, as recorded by the run.
        data_s: seconds in which the first rank waited for its next batch.
        sync_s: seconds that the ranks' synchronisation added.
    """

    number: int
    time_s: float | None = None
    samples_per_s: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    data_s: float | None = None
    sync_s: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One run at one size.

    Attributes:
        dataset: the name of the data set; "" if a study has only one.
        gpus: of the whole job; its ranks if it has no GPUs.
        repeat: from 1.
        state: Slurm's state; a point is usable if it is COMPLETED.
        run: the run's id; "" for a row of a table.
        epochs: in their order, the warm-up's included.
        total_s: seconds of the whole run.
        startup_s: seconds from the start of the job until the first epoch began.
        batch_size: the global batch.
        samples: of the data set in one epoch.
        rank_samples: the samples of each rank in one epoch, in order of rank.
        parameters: of the model.
        problem: the reason why it is not in the table, in one line; "" for none.
        speedup: over the smallest size, if a published table has only this.
        gpu_busy, cpu_busy: the busy share of its GPUs, and of the CPUs that it had, by its own samples.
    """

    gpus: int
    nodes: int = 1
    dataset: str = ""
    repeat: int = 1
    state: str = "COMPLETED"
    run: str = ""
    source: Source = "metrics"
    epochs: tuple[Epoch, ...] = ()
    total_s: float | None = None
    startup_s: float | None = None
    batch_size: int | None = None
    samples: int | None = None
    rank_samples: tuple[int, ...] = ()
    parameters: int | None = None
    problem: str = ""
    speedup: float | None = None
    gpu_busy: float | None = None
    cpu_busy: float | None = None


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
