"""Turns points into the rows of a table.

There is a series for each data set, with a row for each size and the range of the repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
        samples = self.points[0].samples
        if samples and self.batch_size:
            return -(-samples // self.batch_size)
        return None


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
    def rate_of(self) -> str:
        """What a rate counts: ``samples``, or ``tokens`` if a table says so."""
        counted = {point.rate_of for row in self.rows for point in row.points}
        return (counted.pop() or "samples") if len(counted) == 1 else "samples"

    @property
    def basis_words(self) -> str:
        """The quantity by which its sizes are compared."""
        if self.basis == "throughput":
            return f"{self.rate_of} per second"
        return BASIS_WORDS[self.basis]

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
    built = []
    for name, group in _groups(points).items():
        runs = [measure(point, warmup) for point in _with_baseline(group)]
        built.append(_series(name, runs, weak, unit))
    return tuple(built)


def _with_baseline(points: list[Point]) -> list[Point]:
    """Add the one GPU to which published speed-ups refer, if the table does not list it.

    The smallest size of such a table is no baseline: its own published speed-up is not 1.
    """
    usable = [point for point in points if not _problem(point)]
    if not usable or not all(_is_published(point) for point in usable):
        return points
    smallest = min(usable, key=lambda point: (point.gpus, point.speedup))
    if smallest.gpus == 1 or abs((smallest.speedup or 0) - 1) <= OF_BASELINE:
        return points
    baseline = Point(
        1, dataset=smallest.dataset, batch_size=smallest.batch_size, source="csv", speedup=1.0
    )
    return [baseline, *points]


def _is_published(point: Point) -> bool:
    """Whether a run is a row of a table that gives its speed-up."""
    return point.source == "csv" and positive(point.speedup) is not None


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
            name = dataset
            if dataset in mixed:
                batch = f"batch {point.batch_size or 'unknown'}"
                name = f"{dataset}, {batch}" if dataset else batch
            groups.setdefault(name, []).append(point)
    return groups


def _series(name: str, runs: Sequence[RunMeasurement], weak: bool, unit: Unit) -> Series:
    """Return the series of some runs, of which at least one is given."""
    completed = []
    left_out = []
    for run in runs:
        problem = _problem(run.point)
        if problem:
            left_out.append((run.point, problem))
        else:
            completed.append(run)
    basis = _basis(completed, _order(completed, weak=weak))
    useful = []
    for run in completed:
        if _value(run, basis) is None:
            missing = f"it has no {BASIS_WORDS[basis]}, which the other runs are compared by"
            left_out.append((run.point, missing))
        else:
            useful.append(run)
    time_of = _time_of(useful, basis)
    rows = _with_derived_times(_rows(useful, basis, time_of, weak, unit), basis)
    return Series(
        name,
        runs[0].point.dataset,
        basis,
        time_of,
        weak,
        rows,
        sources=tuple(dict.fromkeys(run.point.source for run in useful)),
        left_out=tuple(left_out),
        remarks=tuple(_remarks(rows, weak)),
    )


def _order(runs: Sequence[RunMeasurement], *, weak: bool) -> tuple[Basis, ...]:
    """Return the bases of a comparison, the best first."""
    if weak:
        return _WEAK
    if all(run.point.source == "csv" for run in runs):
        return _STRONG_TABLE
    return _STRONG


def _time_of(runs: Sequence[RunMeasurement], basis: Basis) -> TimeOf:
    """Return whose times the rows have: those of epochs, where there are any."""
    if basis == "run":
        return "run"
    if basis != "published" or any(run.epoch_s for run in runs):
        return "epoch"
    return "run" if any(run.run_s for run in runs) else "epoch"


def _problem(point: Point) -> str:
    """Return why a run cannot be used; "" if it can."""
    if point.problem:
        return point.problem
    return "" if point.state == "COMPLETED" else point.state


def _basis(runs: Sequence[RunMeasurement], order: Sequence[Basis]) -> Basis:
    """Return the first basis with a run of every size.

    If there is no such basis, return the basis with the most sizes.
    """

    def covered(basis: Basis) -> int:
        sizes = set()
        for run in runs:
            if _value(run, basis) is not None:
                sizes.add((run.point.gpus, run.point.nodes))
        return len(sizes)

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
    """Return a row for each size of some runs, all of which have a value of the basis."""
    sizes: dict[tuple[int, int], list[RunMeasurement]] = defaultdict(list)
    for run in runs:
        sizes[run.point.gpus, run.point.nodes].append(run)
    if not sizes:
        return ()
    smallest = min(gpus for gpus, _ in sizes)
    speeds = {}  # the work per second, up to a factor that is the same for all sizes
    base = 0.0
    for size, group in sizes.items():
        gpus, _ = size
        work = gpus / smallest if weak else 1.0
        speeds[size] = _speed(group, basis, work)
        if gpus == smallest:
            base = max(base, speeds[size].mean)
    rows = []
    for (gpus, nodes), group in sizes.items():
        speedup = speeds[gpus, nodes].scaled(1 / base)
        rows.append(
            Row(
                gpus=gpus,
                nodes=nodes,
                speedup=speedup,
                efficiency=speedup.mean * smallest / gpus,
                time_s=spread(_time_s(run, time_of) for run in group),
                samples_per_s=spread(run.samples_per_s for run in group),
                accuracy=spread(run.accuracy for run in group),
                shares=_mean_shares(group),
                points=tuple(run.point for run in group),
                unit=unit,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.gpus, -row.speedup.mean)))


def _speed(runs: Sequence[RunMeasurement], basis: Basis, work: float) -> Spread:
    """Return the speed of repeats that have done this work."""
    value = spread(_value(run, basis) for run in runs)
    assert value is not None  # the runs have one
    if basis in ("throughput", "published"):
        return value
    return value.under(work)


def _time_s(run: RunMeasurement, time_of: TimeOf) -> float | None:
    return run.run_s if time_of == "run" else run.epoch_s


def _mean_shares(runs: Sequence[RunMeasurement]) -> Shares:
    """Return the means of the shares of repeats."""
    return Shares(
        data=mean(run.shares.data for run in runs),
        sync=mean(run.shares.sync for run in runs),
        startup=mean(run.shares.startup for run in runs),
        idle=mean(run.shares.idle for run in runs),
    )


def _with_derived_times(rows: tuple[Row, ...], basis: Basis) -> tuple[Row, ...]:
    """Return the rows of a published table, with derived times.

    The speed-ups of the table and one of its times imply these times.
    """
    work = None
    for row in rows:
        if row.time_s:
            work = row.speedup.mean * row.time_s.mean
            break
    if basis != "published" or work is None:
        return rows
    derived = []
    for row in rows:
        if row.time_s:
            derived.append(row)
        else:
            time_s = row.speedup.under(work)
            derived.append(replace(row, time_s=time_s, time_derived=True))
    return tuple(derived)


def _remarks(rows: Sequence[Row], weak: bool) -> Iterator[str]:
    """Yield what a reader must know about the numbers."""
    if not rows:
        return
    smallest = rows[0].gpus
    units = rows[0].unit
    one = units.removesuffix("s")
    if smallest != 1 and rows[-1].gpus != smallest:
        baseline = f"the baseline of speed-up and efficiency is that size, not 1 {one}"
        yield f"the smallest size is {smallest} {units}: {baseline}"
    ways: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        ways[row.gpus].append(row)
    for gpus, of_size in ways.items():
        if len(of_size) > 1:
            nodes = ", ".join(f"{row.nodes} ({row.speedup.mean:.2f}×)" for row in of_size)
            several = f"{gpus} {units} were run on several numbers of nodes"
            yield f"{several}: {nodes}; fits and figures use the fastest"
    if not weak:
        yield from _unequal_samples(rows)
    derived = [str(row.gpus) for row in rows if row.time_derived and row.time_s]
    if derived:
        sizes = f"{', '.join(derived)} {one if derived == ['1'] else units}"
        yield f"the time with {sizes} was computed from the published speed-up"


def _unequal_samples(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a remark if epochs of a strong study have different numbers of samples."""
    samples: set[int] = set()
    for row in rows:
        samples.update(point.samples for point in row.points if point.samples)
    # a smaller difference is the padding of a DistributedSampler, or the rest that drop_last leaves
    # out
    if samples and max(samples) > 1.1 * min(samples):
        yield (
            f"the epochs of these runs have {min(samples)} to {max(samples)} samples: "
            f"if the work grows with the {rows[0].unit}, add --weak"
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
        for before, after in pairwise(rows):
            changes.append(BatchChange(dataset, before, after))
    return tuple(changes)
