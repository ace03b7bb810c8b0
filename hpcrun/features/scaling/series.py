"""Turns points into the rows of a table.

There is a series for each data set, with a row for each size and the range of the repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from hpcrun.features.scaling.points import (
    Point,
    RunMeasurement,
    Shares,
    Source,
    Spread,
    mean,
    measure,
    positive,
    spread,
)
from hpcrun.features.scaling.sizes import Unit

Basis = Literal["epoch", "throughput", "run", "published"]
"""The basis of the speed-up: the mean time of an epoch, samples per second, the time of the whole
run, or, if a table has nothing else, its speed-up."""

TimeOf = Literal["epoch", "run"]
BASIS_WORDS: dict[Basis, str] = {
    "epoch": "time of an epoch",
    "throughput": "samples per second",
    "run": "time of the run",
    "published": "published speed-up",
}
# If the work grows, samples per second can be compared directly; times only if the work of each GPU
# is the same.
_STRONG: tuple[Basis, ...] = ("epoch", "throughput", "run", "published")
_WEAK: tuple[Basis, ...] = ("throughput", "epoch", "run", "published")
# A table names its kind of time; the time of a run of hpcrun includes the start-up.
_STRONG_TABLE: tuple[Basis, ...] = ("epoch", "run", "throughput", "published")
OF_BASELINE = 0.02
"""A published speed-up this close to 1 is that of the baseline."""


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one size."""

    gpus: int
    nodes: int
    speedup: Spread  # over the baseline; in a weak study the ratio of samples per second
    efficiency: float  # speed-up over the ideal one, from 0 to 1 or a little more
    time_s: Spread | None  # of an epoch, or of the run if the series has no epochs
    samples_per_s: Spread | None
    accuracy: Spread | None  # the last of each run
    shares: Shares
    points: tuple[Point, ...]
    time_derived: bool = False  # it was computed from a published speed-up
    unit: Unit = "GPUs"  # what ``gpus`` counts

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of ``time_s``."""
        if self.time_s is None:
            return None
        return self.gpus * self.time_s.mean / 3600

    @property
    def batch_size(self) -> int | None:
        """The global batch."""
        return self.points[0].batch_size

    @property
    def gpu_busy(self) -> float | None:
        """The busy share of the GPUs, on average over the runs that recorded it."""
        return mean(point.gpu_busy for point in self.points)

    @property
    def cpu_busy(self) -> float | None:
        """The busy share of the CPUs, on average over the runs that recorded it."""
        return mean(point.cpu_busy for point in self.points)

    @property
    def published(self) -> float | None:
        """The speed-up that a table gives for this size; None if it gives none, or several."""
        given = {point.speedup for point in self.points}
        return given.pop() if len(given) == 1 else None

    @property
    def steps(self) -> int | None:
        """Steps of one epoch; the last one may have a smaller batch."""
        samples, batch = self.points[0].samples, self.batch_size
        return -(-samples // batch) if samples and batch else None


@dataclass(frozen=True, slots=True)
class Series:
    """One data set over the sizes, the smallest first; for one size the fastest row first."""

    # the data set, with the batch size if one size was run with several; "" for the only one
    name: str
    dataset: str  # only the data set
    basis: Basis
    time_of: TimeOf  # whose times the rows have
    weak: bool
    rows: tuple[Row, ...]  # none if there is no usable run
    sources: tuple[Source, ...]
    left_out: tuple[tuple[Point, str], ...]  # runs that cannot be used, each with its problem
    remarks: tuple[str, ...]  # what a reader must know about the numbers

    @property
    def sizes(self) -> tuple[Row, ...]:
        """One row for each number of GPUs: the fastest if there are different numbers of nodes."""
        best: dict[int, Row] = {}
        for row in self.rows:
            best.setdefault(row.gpus, row)
        return tuple(best.values())

    @property
    def compared(self) -> bool:
        """Whether there are at least two sizes: a single one has no speed-up and is no baseline."""
        return len(self.sizes) > 1

    @property
    def unit(self) -> Unit:
        """What its sizes count."""
        return self.rows[0].unit if self.rows else "GPUs"


def build_series(
    points: Iterable[Point], *, warmup: int = 1, weak: bool = False, unit: Unit = "GPUs"
) -> tuple[Series, ...]:
    """Sort runs by data set and size, and compare the sizes with the smallest.

    The first ``warmup`` epochs of each run do not count; in a weak study the work grew with the
    number of GPUs.
    """
    return tuple(
        _series(name, [measure(point, warmup) for point in _with_baseline(group)], weak, unit)
        for name, group in _groups(points).items()
    )


def _with_baseline(points: list[Point]) -> list[Point]:
    """Add the one GPU to which published speed-ups refer, if the table does not list it.

    The smallest size of such a table is no baseline: its own published speed-up is not 1.
    """
    usable = [point for point in points if not _problem(point)]
    if not usable or not all(point.source == "csv" and positive(point.speedup) for point in usable):
        return points
    smallest = min(usable, key=lambda point: (point.gpus, point.speedup))
    if smallest.gpus == 1 or abs((smallest.speedup or 0) - 1) <= OF_BASELINE:
        return points
    return [
        Point(
            1, dataset=smallest.dataset, batch_size=smallest.batch_size, source="csv", speedup=1.0
        ),
        *points,
    ]


def _groups(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Return runs by the name of their series.

    Runs of one size with different batch sizes are not repeats.
    """
    datasets: dict[str, list[Point]] = defaultdict(list)
    batches: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    for point in points:
        datasets[point.dataset].append(point)
        # a run that failed early did not record its batch
        if point.batch_size and not _problem(point):
            batches[point.dataset, point.gpus, point.nodes].add(point.batch_size)
    mixed = {dataset for (dataset, _, _), sizes in batches.items() if len(sizes) > 1}
    groups: dict[str, list[Point]] = {}
    for dataset, group in datasets.items():
        for point in group:
            if dataset in mixed:
                batch = f"batch {point.batch_size or 'unknown'}"
            else:
                batch = ""
            groups.setdefault(", ".join(filter(None, (dataset, batch))), []).append(point)
    return groups


def _series(name: str, runs: Sequence[RunMeasurement], weak: bool, unit: Unit) -> Series:
    completed = [run for run in runs if not _problem(run.point)]
    if weak:
        order = _WEAK
    elif all(run.point.source == "csv" for run in completed):
        order = _STRONG_TABLE
    else:
        order = _STRONG
    basis = _basis(completed, order)
    useful = [run for run in completed if _value(run, basis) is not None]
    left_out = [(run.point, _problem(run.point)) for run in runs if _problem(run.point)]
    missing = f"it has no {BASIS_WORDS[basis]}, which the other runs are compared by"
    left_out += [(run.point, missing) for run in completed if _value(run, basis) is None]
    has_only_runs = any(run.run_s for run in useful) and not any(run.epoch_s for run in useful)
    time_of: TimeOf = (
        "run" if basis == "run" or (basis == "published" and has_only_runs) else "epoch"
    )
    rows = _with_derived_times(_rows(useful, basis, time_of, weak, unit), basis)
    sources = tuple(dict.fromkeys(run.point.source for run in useful))
    remarks = tuple(_remarks(rows, weak))
    return Series(
        name, runs[0].point.dataset, basis, time_of, weak, rows, sources, tuple(left_out), remarks
    )


def _problem(point: Point) -> str:
    return point.problem or ("" if point.state == "COMPLETED" else point.state)


def _basis(runs: Sequence[RunMeasurement], order: Sequence[Basis]) -> Basis:
    """Return the first basis with a run of every size.

    If there is no such basis, return the basis with the most sizes.
    """

    def covered(basis: Basis) -> int:
        return len(
            {(run.point.gpus, run.point.nodes) for run in runs if _value(run, basis) is not None}
        )

    return max(order, key=covered)


def _value(run: RunMeasurement, basis: Basis) -> float | None:
    """Return the value by which a run is compared: positive, or None."""
    values: dict[Basis, float | None] = {
        "epoch": run.epoch_s,
        "throughput": run.samples_per_s,
        "run": run.run_s,
        "published": positive(run.point.speedup),
    }
    return values[basis]


def _rows(
    runs: Sequence[RunMeasurement], basis: Basis, time_of: TimeOf, weak: bool, unit: Unit
) -> tuple[Row, ...]:
    sizes: dict[tuple[int, int], list[RunMeasurement]] = defaultdict(list)
    for run in runs:
        sizes[run.point.gpus, run.point.nodes].append(run)
    if not sizes:
        return ()
    smallest = min(gpus for gpus, _ in sizes)
    speeds = {}  # the work per second, up to a factor that is the same for all sizes
    for size, group in sizes.items():
        value = spread(_value(run, basis) for run in group)
        assert value is not None  # the runs have one
        if basis in ("throughput", "published"):
            speeds[size] = value
        else:
            work = size[0] / smallest if weak else 1.0
            speeds[size] = value.under(work)
    base = max(speed.mean for (gpus, _), speed in speeds.items() if gpus == smallest)
    rows = []
    for (gpus, nodes), group in sizes.items():
        speedup = speeds[gpus, nodes].scaled(1 / base)
        rows.append(
            Row(
                gpus=gpus,
                nodes=nodes,
                speedup=speedup,
                efficiency=speedup.mean * smallest / gpus,
                time_s=spread(run.run_s if time_of == "run" else run.epoch_s for run in group),
                samples_per_s=spread(run.samples_per_s for run in group),
                accuracy=spread(run.accuracy for run in group),
                shares=Shares(*map(mean, zip(*(run.shares for run in group), strict=True))),
                points=tuple(run.point for run in group),
                unit=unit,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.gpus, -row.speedup.mean)))


def _with_derived_times(rows: tuple[Row, ...], basis: Basis) -> tuple[Row, ...]:
    """Return the rows of a published table, with derived times.

    The speed-ups of the table and one of its times imply these times.
    """
    timed = next((row for row in rows if row.time_s), None)
    if basis != "published" or timed is None or timed.time_s is None:
        return rows
    work = timed.speedup.mean * timed.time_s.mean
    return tuple(
        row if row.time_s else replace(row, time_s=row.speedup.under(work), time_derived=True)
        for row in rows
    )


def _remarks(rows: Sequence[Row], weak: bool) -> Iterable[str]:
    if not rows:
        return
    smallest = rows[0].gpus
    units = rows[0].unit
    one = units.removesuffix("s")
    if smallest != 1 and rows[-1].gpus != smallest:
        baseline = f"the baseline of speed-up and efficiency is that size, not 1 {one}"
        yield f"the smallest size is {smallest} {units}: {baseline}"
    for gpus in dict.fromkeys(row.gpus for row in rows):
        ways = [row for row in rows if row.gpus == gpus]
        if len(ways) > 1:
            nodes = ", ".join(f"{row.nodes} ({row.speedup.mean:.2f}×)" for row in ways)
            yield (
                f"{gpus} {units} were run on several numbers of nodes: {nodes}; fits and "
                "figures "
                "use the fastest"
            )
    samples = {point.samples for row in rows for point in row.points if point.samples}
    # a smaller difference is the padding of a DistributedSampler, or the rest that drop_last leaves
    # out
    if not weak and samples and max(samples) > 1.1 * min(samples):
        yield (
            f"the epochs of these runs have {min(samples)} to {max(samples)} samples: "
            f"if the work grows with the {units}, add --weak"
        )
    derived = [row for row in rows if row.time_derived and row.time_s]
    if derived:
        sizes = ", ".join(str(row.gpus) for row in derived)
        yield (
            f"the time with {sizes} {one if sizes == '1' else units} was computed from the "
            "published speed-up"
        )


@dataclass(frozen=True, slots=True)
class BatchChange:
    """Rows of one size of a data set, with one batch and with the next larger one."""

    dataset: str
    before: Row
    after: Row


def batch_changes(series: Sequence[Series]) -> tuple[BatchChange, ...]:
    """Return the pairs of neighbouring batch sizes at each data set and size."""
    sizes: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    for each in series:
        for row in each.rows:
            if row.batch_size is not None and row.time_s:
                sizes[each.dataset, row.gpus, row.nodes].append(row)
    changes = []
    for (dataset, _, _), rows in sizes.items():
        rows.sort(key=lambda row: row.batch_size or 0)
        changes += [BatchChange(dataset, *pair) for pair in pairwise(rows)]
    return tuple(changes)
