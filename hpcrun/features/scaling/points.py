"""The measurements of a run at one size, epoch by epoch, and their means.

The measurements are read from the run's metrics. The means leave the warm-up out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from hpcrun.actions.runs.hardware_use import run_use
from hpcrun.actions.runs.run_metrics import Metrics, read_metrics
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.features.scaling.studies import Study, StudyRun, StudyStore, resubmissions, study_status
from hpcrun.job.job_states import COMPLETED
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.metric_files import MetricsRow
from hpcrun.runs.store import RunStore

_CACHE_SCHEMA = 1
_USE_FROM_S = 60.0
"""Of a shorter run two or three samples say nothing about the size."""


Source = Literal["metrics", "log", "elapsed", "csv"]
"""The source of a point's times: ``hpcrun_runtime.log_metrics``, patterns in the logs, Slurm's
elapsed time (start-up included), or a table."""
TIMED = ("epoch_time", "samples_per_s")
"""The metrics that make a row an epoch: the first one if a run has it, else the second one."""

# field of Epoch → the metrics for it, the most exact first
_METRICS: dict[str, tuple[str, ...]] = {
    "time_s": ("epoch_time",),
    "samples_per_s": ("samples_per_s",),
    "accuracy": ("val_accuracy", "eval_accuracy", "val_acc", "accuracy", "acc"),
    "loss": ("loss",),
    "data_s": ("data_time",),
    "sync_s": ("sync_time",),
}


class Epoch(NamedTuple):
    """One epoch of one run; None for missing values.

    A tuple: a study's file has a short list for each.
    """

    number: int  # as counted by the run
    # seconds of training, without validation if the run measures it separately
    time_s: float | None = None
    samples_per_s: float | None = None  # over all ranks
    # of the validation, 0 to 1 or in per cent, as recorded by the run
    accuracy: float | None = None
    loss: float | None = None
    data_s: float | None = None  # seconds in which the first rank waited for its next batch
    sync_s: float | None = None  # seconds that the ranks' synchronisation added


@dataclass(frozen=True, slots=True)
class Point:
    """One run at one size."""

    gpus: int  # of the whole job; its ranks if it has no GPUs
    nodes: int = 1
    dataset: str = ""  # the name of the data set; "" if a study has only one
    repeat: int = 1  # from 1
    state: str = "COMPLETED"  # Slurm's state; a point is usable if it is COMPLETED
    ended: bool = True  # its state will not change any more
    run: str = ""  # the run's id; "" for a row of a table
    source: Source = "metrics"
    epochs: tuple[Epoch, ...] = ()  # in their order, the warm-up's included
    total_s: float | None = None  # seconds of the whole run
    startup_s: float | None = None  # seconds from the start of the job until the first epoch began
    batch_size: int | None = None  # the global batch
    samples: int | None = None  # of the data set in one epoch
    rank_samples: tuple[int, ...] = ()  # the samples of each rank in one epoch, in order of rank
    parameters: int | None = None  # of the model
    problem: str = ""  # the reason why it is not in the table, in one line; "" for none
    speedup: float | None = None  # over the smallest size, if a published table has only this
    # gpu_busy, cpu_busy: the busy share of its GPUs, and of the CPUs that it had, by its own
    # samples
    gpu_busy: float | None = None
    cpu_busy: float | None = None
    rate_of: str = ""  # what samples_per_s counts, if a table has it: "tokens"; "" for samples
    conditions: str = ""  # how a row of a table was run, where the rows of a data set differ

    def counted(self, warmup: int) -> tuple[Epoch, ...]:
        """Return the epochs without the first ``warmup``; the last epoch always counts."""
        return self.epochs[warmup:] or self.epochs[-1:]


def epochs_of(rows: Iterable[tuple[float | None, Mapping[str, Any]]]) -> tuple[Epoch, ...]:
    """Return the epochs among a rank's steps and metrics, in order.

    A row without a step has the next number.
    """
    listed = list(rows)
    timed = _timed_by([values for _, values in listed])
    if timed is None:
        return _untimed([values for _, values in listed])
    epochs: dict[int, Epoch] = {}
    for step, values in listed:
        if not positive(number(values.get(timed))):
            continue
        if step is None or not math.isfinite(step):
            at = max(epochs, default=0) + 1
        else:
            at = int(step)
        numbers = {field: _first(names, values) for field, names in _METRICS.items()}
        for field in ("time_s", "samples_per_s"):
            numbers[field] = positive(numbers[field])
        epochs[at] = Epoch(at, **numbers)
    return tuple(epochs[at] for at in sorted(epochs))


def _untimed(rows: Sequence[Mapping[str, Any]]) -> tuple[Epoch, ...]:
    """Return one epoch with the last accuracy and loss of a run that recorded no times, if any."""
    result: dict[str, float | None] = {}
    for field in ("accuracy", "loss"):
        values = [_first(_METRICS[field], row) for row in rows]
        result[field] = next((value for value in reversed(values) if value is not None), None)
    if all(value is None for value in result.values()):
        return ()
    return (Epoch(1, **result),)


def _timed_by(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the metric that makes a row an epoch; None if a rank has none."""
    for name in TIMED:
        if any(number(values.get(name)) for values in rows):
            return name
    return None


def _first(names: Iterable[str], values: Mapping[str, Any]) -> float | None:
    """Return the first of some metrics that is a number."""
    for name in names:
        value = number(values.get(name))
        if value is not None:
            return value
    return None


def number(value: Any) -> float | None:
    """Return a metric as a number, None if it is text, infinite, or NaN."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    return float(value) if math.isfinite(value) else None


def last_whole_number(values: Iterable[Any]) -> int | None:
    """Return the last metric that is a whole number over 0, such as a batch size."""
    last = None
    for value in values:
        at = positive(number(value))
        if at and at.is_integer():
            last = int(at)
    return last


def positive(value: float | None) -> float | None:
    """Return a number by which one can divide, or else None.

    A metric may be NaN, or a clock may run backwards.
    """
    if value is not None and 0 < value < math.inf:
        return value
    return None


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over repeats, with the smallest and the largest one."""

    mean: float
    low: float
    high: float
    n: int = 1
    deviation: float = 0.0  # the repeats' standard deviation over their mean; 0 for a single one

    def scaled(self, factor: float) -> Spread:
        """Return it in another unit."""
        return replace(
            self, mean=self.mean * factor, low=self.low * factor, high=self.high * factor
        )

    def under(self, whole: float) -> Spread:
        """Return the quotients of a whole and the values: the speeds for times."""
        return replace(self, mean=whole / self.mean, low=whole / self.high, high=whole / self.low)


class Shares(NamedTuple):
    """Shares of the time, each from 0 to 1, or None if not measured."""

    data: float | None = None  # of an epoch, waiting for data on the first rank
    sync: float | None = None  # of an epoch, synchronising the ranks
    startup: float | None = None  # of the run, before its first epoch began
    # of an epoch, the time for which an average rank waits for the rank with the most samples
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class RunMeasurement:
    """The numbers of one run, each of them None if it is missing.

    They are means over the epochs of the run, with times and speeds above 0, and the last accuracy.
    """

    point: Point
    epoch_s: float | None
    samples_per_s: float | None
    run_s: float | None
    accuracy: float | None
    shares: Shares


def measure(point: Point, warmup: int) -> RunMeasurement:
    """Return the means of a run over its epochs, without the first ``warmup`` epochs.

    The last epoch always counts.
    """
    epochs = point.counted(warmup)
    epoch_s = mean(positive(epoch.time_s) for epoch in epochs)
    rate = mean(positive(epoch.samples_per_s) for epoch in epochs)
    if rate is None and epoch_s and point.samples:
        rate = point.samples / epoch_s
    idle = None
    most = max(point.rank_samples, default=0)
    if most:
        idle = 1 - fmean(point.rank_samples) / most
    shares = Shares(
        data=mean(_part(epoch.data_s, epoch.time_s) for epoch in epochs),
        sync=mean(_part(epoch.sync_s, epoch.time_s) for epoch in epochs),
        startup=_part(point.startup_s, point.total_s),
        idle=idle,
    )
    accuracies = _numbers(epoch.accuracy for epoch in point.epochs)
    accuracy = accuracies[-1] if accuracies else None
    return RunMeasurement(point, epoch_s, rate, positive(point.total_s), accuracy, shares)


def _part(part: float | None, whole: float | None) -> float | None:
    """Return the share of a part in a whole, None if one of the two is missing."""
    whole = positive(whole)
    if part is None or whole is None:
        return None
    return part / whole


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are numbers."""
    numbers = _numbers(values)
    return fmean(numbers) if numbers else None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the values that are numbers."""
    numbers = _numbers(values)
    if not numbers:
        return None
    middle = fmean(numbers)
    deviation = 0.0
    if len(numbers) > 1 and middle:
        deviation = stdev(numbers) / middle
    return Spread(middle, min(numbers), max(numbers), len(numbers), deviation)


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def read_points(studies: Sequence[Study], context: Context) -> tuple[list[Point], list[str]]:
    """Return what the runs of studies measured, and remarks.

    Where the scheduler does not respond, the states are as last known.
    """
    points: list[Point] = []
    remarks: list[str] = []
    again = resubmissions(studies, context.store) if studies else {}
    store = StudyStore(context.store.root)
    for study in studies:
        patterns, remark = context.metric_patterns(study.profile)
        if remark:
            remarks.append(remark)
        known = _known(store.load_measured(study.study_id), patterns, context.store)
        states = {run_id: point.state for run_id, point in known.items()}
        status = study_status(study, context, again, states)
        if status.away:
            remarks.append(f"hpcrun: {status.away.message}")
        kept: dict[str, Point] = {}
        for item in status.runs:
            point = known.get(item.run_id) or _point(item, patterns)
            points.append(replace(point, dataset=study.dataset))
            is_final = item.status is not None and item.status.status.final
            if is_final or item.run_id in known:
                kept[item.run_id] = point
        if kept.keys() != known.keys():
            store.save_measured(study.study_id, _measured(kept, patterns))
    return points, list(dict.fromkeys(remarks))


def _measured(points: Mapping[str, Point], patterns: Mapping[str, str]) -> dict[str, Any]:
    """Return what a study keeps of its runs that have ended."""
    of_runs = {run_id: asdict(point) for run_id, point in points.items()}
    return {"schema": _CACHE_SCHEMA, "patterns": patterns, "points": of_runs}


def _known(
    kept: Mapping[str, Any], patterns: Mapping[str, str], store: RunStore
) -> dict[str, Point]:
    """Return the kept points, by run.

    Where other patterns are set now, return only the points of runs that were removed.
    """
    if kept.get("schema") != _CACHE_SCHEMA:
        return {}
    from pydantic import TypeAdapter, ValidationError  # only where something was kept

    try:
        # without fields of other versions
        points = TypeAdapter(dict[str, Point]).validate_python(kept.get("points"))
    except ValidationError:
        return {}
    if kept.get("patterns") != patterns:
        removed = [run_id for run_id in points if not store.folder(run_id).exists()]
        points = {run_id: points[run_id] for run_id in removed}
    if all(point.gpus > 0 and point.nodes > 0 for point in points.values()):
        return points
    return {}


def _point(item: StudyRun, patterns: Mapping[str, str]) -> Point:
    """Return a run of a study with what it measured."""
    size = item.point
    point = Point(
        size.gpus,
        size.nodes,
        repeat=size.repeat,
        state=item.state,
        run=item.run_id,
        batch_size=size.batch_size,
        problem=item.problem,
    )
    if item.status is None:
        return point
    status = item.status.status
    run = item.status.run
    if status.state == COMPLETED:
        problem = ""
    elif item.over:
        problem = status.cause or status.reason or status.state
    else:
        problem = f"not ended yet: {status.state}"
    gpus = size.gpus
    if item.run_id != size.run_id:
        gpus = run.nodes * run.gpus_per_node or run.world_size
    ended = item.over or not problem
    point = replace(point, gpus=gpus, nodes=run.nodes, ended=ended, problem=problem)
    return with_measurements(point, item.status, patterns)


def with_measurements(point: Point, item: RunStatus, patterns: Mapping[str, str]) -> Point:
    """Return a point with the numbers of its run.

    The numbers come from the run's metrics, else from its logs, else from how long the run took.
    """
    begun = list(reversed(list(attempts(item.folder))))
    of_ranks = read_metrics(item.folder, None, all_ranks=True)
    # the rows that `hpcrun metrics` shows
    role = item.run.deciding_role
    rows = read_metrics(item.folder, patterns, role=role).rows
    epochs = epochs_of((row.step, row.values) for row in rows)
    source: Source = "elapsed"
    if any(epoch.time_s or epoch.samples_per_s for epoch in epochs):
        source = "metrics" if any(name in of_ranks.names for name in TIMED) else "log"
    samples = _samples(of_ranks, item.run.world_size)
    gpu_busy = None
    cpu_busy = None
    use = run_use(item.folder)
    if use and use.seconds >= _USE_FROM_S:
        gpu_busy = use.gpu_busy
        if use.cpus_asked:
            cpu_busy = use.cpus / use.cpus_asked
    return replace(
        point,
        source=source,
        epochs=epochs,
        total_s=_total_s(begun, item),
        startup_s=_startup_s(epochs, rows, begun),
        batch_size=_whole(rows, "batch_size") or point.batch_size,
        samples=sum(samples) if samples else None,
        rank_samples=samples,
        parameters=_whole(rows, "parameters"),
        gpu_busy=gpu_busy,
        cpu_busy=cpu_busy,
    )


def _whole(rows: Iterable[MetricsRow], name: str) -> int | None:
    return last_whole_number(row.values.get(name) for row in rows)


def _samples(metrics: Metrics, world_size: int) -> tuple[int, ...]:
    """Return how many samples each rank had in an epoch.

    Return nothing unless every rank has recorded the number.
    """
    rows: dict[int, list[MetricsRow]] = {}
    for row in metrics.rows:
        rows.setdefault(row.rank, []).append(row)
    counts = []
    for rank in range(world_size):
        samples = _whole(rows.get(rank, ()), "samples")
        if samples is None:
            return ()
        counts.append(samples)
    return tuple(counts)


def _total_s(begun: Sequence[Attempt], item: RunStatus) -> float | None:
    """Return the seconds of all attempts, by their own records.

    Where an attempt left no record, the scheduler's time counts.
    """
    if not begun:
        return item.status.elapsed_s
    total_s = 0.0
    for attempt in begun:
        if attempt.exit is None:
            return item.status.elapsed_s
        total_s += attempt.exit.ended_s - attempt.started_s
    return total_s


def _startup_s(
    epochs: Sequence[Epoch], rows: Sequence[MetricsRow], begun: Sequence[Attempt]
) -> float | None:
    """Return the seconds from the start of the job until its first epoch began."""
    timed = [row for row in rows if number(row.values.get(TIMED[0])) is not None]
    if not epochs or not timed:
        return None
    ended_s = timed[0].time_s
    took_s = epochs[0].time_s
    if ended_s is None or took_s is None:
        return None
    for attempt in begun:
        if attempt.number == timed[0].attempt:
            return max(0.0, ended_s - took_s - attempt.started_s)
    return None
