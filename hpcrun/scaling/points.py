"""The measurements of a study: one run at one number of GPUs, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["metrics", "log", "elapsed", "csv"]
"""The source of a point's times: ``hpcrun_runtime.log_metrics``, patterns in the logs, Slurm's elapsed time
(start-up included), or a table."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of one run; None for missing values.

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
