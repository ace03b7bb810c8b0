"""What a study measures: one run at one number of GPUs, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["metrics", "log", "elapsed", "csv"]
"""Where the times of a point come from: ``hpcrun_runtime.log_metrics``, patterns in the logs, the elapsed time that
Slurm counted (start-up included), or a table."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of one run; None where it was not said.

    Attributes:
        number: as the run counted it.
        time_s: seconds of training, without validation where the run says so itself.
        samples_per_s: over all ranks.
        accuracy: of the validation, 0 to 1 or in per cent, as the run said it.
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
        dataset: what was trained on; "" where a study has only one.
        gpus: of the whole job; its ranks where it has no GPUs.
        repeat: from 1.
        state: Slurm's word; a point is of use when it is COMPLETED.
        run: the run's id; "" for a row of a table.
        epochs: in their order, the warm-up's included.
        total_s: seconds of the whole run.
        startup_s: seconds from the start of the job until the first epoch began.
        batch_size: of all ranks together.
        samples: of the data set in one epoch.
        rank_samples: how many each rank had in one epoch, in order of rank.
        parameters: of the model.
        problem: in one line, what keeps it out of the table; "" for nothing.
        speedup: over the smallest size, where a published table says no more than that.
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
