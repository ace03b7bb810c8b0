"""Why the times of a study may be wrong: warm-up, noise, short epochs, no repeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal

from hpcrun.features.scaling.points import Point, positive
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import units_text

DoubtKind = Literal[
    "different runs", "super-linear", "warm-up", "short epochs", "noise", "no repeats"
]
SUPER_LINEAR = 1.05
"""An efficiency of more than this is a wrong measurement until somebody explains it."""
SHORT_EPOCH_S = 3.0
"""Shorter epochs consist of start-up, data-loader workers and the timer's noise."""
SHORT_RUN_S = 60.0
"""Shorter runs consist of their start-up, if only the scheduler's elapsed time is known."""
UNCERTAIN = 0.05
"""A mean of runs, or of the epochs of a run, with a larger relative standard error carries no
verdict.
"""
SLOW_FIRST = 1.2
"""A counted epoch this much longer than the later ones still belongs to the warm-up."""
_FEWEST_EPOCHS = 3
"""The deviation of fewer epochs is chance."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why the numbers of some sizes may be wrong."""

    kind: DoubtKind
    gpus: tuple[int, ...]  # the sizes
    evidence: str  # the measured numbers, in words
    remedy: str  # what to do, in words
    # the sizes to run again; none if the runs only have to be read in another way
    again: tuple[int, ...]


def doubts_of(series: Series, warmup: int) -> tuple[Doubt, ...]:
    """Return the reasons for which no verdict on a series stands, the worst first."""
    if not series.compared:
        return ()
    doubts = (
        _different_runs(series),
        _super_linear(series),
        _warm_up(series, warmup),
        _short(series),
        _noise(series, warmup),
        _one_run(series),
    )
    return tuple(doubt for doubt in doubts if doubt is not None)


def _different_runs(series: Series) -> Doubt | None:
    """Return the doubt about rows of a table that differ in more than their size."""
    conditions: dict[str, int] = {}
    for row in series.rows:
        for point in row.points:
            conditions.setdefault(point.conditions, row.gpus)
    if len(conditions) < 2:
        return None
    (before, small), (after, large) = list(conditions.items())[:2]
    return Doubt(
        "different runs",
        _gpus(series.rows),
        evidence=f"with {_sizes([small], series)} {before}, with {large} {after}",
        remedy="compare rows of one kind; a column named dataset tells kinds apart",
        again=(),
    )


def _super_linear(series: Series) -> Doubt | None:
    rows = [row for row in series.sizes if row.efficiency > SUPER_LINEAR]
    if not rows:
        return None
    base = series.rows[0]
    worst = max(rows, key=lambda row: row.efficiency)
    sizes = _sizes([worst.gpus], series)
    times = f"{sizes} are {worst.speedup.mean:.2f} times as fast as {base.gpus}"
    return Doubt(
        "super-linear",
        _gpus(series.sizes),
        evidence=f"{times}: {100 * worst.efficiency:.0f} % of the ideal",
        remedy="run both again, one after the other: something slowed the smallest size, or the "
        "runs did different work",
        # the baseline may be what is wrong, and every size is compared with it
        again=_gpus([base, *rows]),
    )


def _warm_up(series: Series, warmup: int) -> Doubt | None:
    if series.time_of == "run":
        return None
    return _only_warm_up(series, max(warmup, 1)) or _long_warm_up(series, warmup)


def _only_warm_up(series: Series, least: int) -> Doubt | None:
    """Return the doubt about runs of so few epochs, if there are such runs."""
    rows = []
    for row in series.rows:
        # the only epoch of a table's row may be a mean of several
        runs = [point for point in row.points if point.source != "csv"]
        if any(0 < len(point.epochs) <= least for point in runs):
            rows.append(row)
    if not rows:
        return None
    gpus = _gpus(rows)
    return Doubt(
        "warm-up",
        gpus,
        evidence=f"runs with {_sizes(gpus, series)} have no epoch after their warm-up",
        remedy=f"train {least + 2} epochs or more",
        again=gpus,
    )


@dataclass(frozen=True, slots=True)
class _SlowStart:
    """A run that begins with counted epochs slower than its later ones."""

    row: Row
    epochs: int  # how many are slower
    first_s: float  # the time of the first of them
    later_s: float  # the median of the times after the first

    @property
    def excess(self) -> float:
        """How many times as long the first one took."""
        return self.first_s / self.later_s


def _long_warm_up(series: Series, warmup: int) -> Doubt | None:
    """Return the doubt about counted epochs that still belong to the warm-up."""
    slow = []
    for row in series.rows:
        for point in row.points:
            times = _counted(point, warmup)
            epochs = _slow_epochs(times)
            if epochs:
                slow.append(_SlowStart(row, epochs, times[0], median(times[1:])))
    if not slow:
        return None
    worst = max(slow, key=lambda start: start.excess)
    sizes = _sizes([worst.row.gpus], series)
    first = f"the first counted epoch took {worst.first_s:.3g} s"
    later = f"the later ones {worst.later_s:.3g} s"
    needed = warmup + max(start.epochs for start in slow)
    return Doubt(
        "warm-up",
        _gpus(start.row for start in slow),
        evidence=f"with {sizes} {first}, {later}",
        remedy=f"add --warmup {needed} to this command",
        again=(),
    )


def _counted(point: Point, warmup: int) -> list[float]:
    """Return the times of the epochs that count."""
    times = [positive(epoch.time_s) for epoch in point.counted(warmup)]
    return [time for time in times if time]


def _slow_epochs(times: Sequence[float]) -> int:
    """Return how many epochs at the beginning are slower than the rest."""
    number = 0
    while number < len(times) - 1 and times[number] > SLOW_FIRST * median(times[number + 1 :]):
        number += 1
    return number


@dataclass(frozen=True, slots=True)
class _ShortTime:
    """A kind of time, and why a short one measures something else."""

    label: str
    article: str
    least_s: float
    noise: str  # what a shorter time mostly is


_EPOCH = _ShortTime("epoch", "an", SHORT_EPOCH_S, "start-up and chance")
_RUN = _ShortTime("run", "a", SHORT_RUN_S, "start-up")


def _short(series: Series) -> Doubt | None:
    time = _RUN if series.time_of == "run" else _EPOCH
    rows = []
    times_s = []
    for row in series.rows:
        if row.time_s is None or row.time_s.mean >= time.least_s:
            continue
        # a table names its kind of time; the scheduler's includes the start-up
        if time is _RUN and all(point.source != "elapsed" for point in row.points):
            continue
        rows.append(row)
        times_s.append(row.time_s.mean)
    if not rows:
        return None
    gpus = _gpus(rows)
    shortest = f"{time.article} {time.label} takes {min(times_s):.2g} s"
    limit = f"below {time.least_s:g} s the time is mostly {time.noise}"
    return Doubt(
        "short epochs",
        gpus,
        evidence=f"with {_sizes(gpus, series)} {shortest}: {limit}",
        remedy=f"train on more data, so that each {time.label} takes at least {time.least_s:g} s",
        again=_gpus(series.sizes),
    )


def _noise(series: Series, warmup: int) -> Doubt | None:
    noisy: dict[int, str] = {}
    for row in series.rows:
        variation = _variation(row, warmup)
        if variation:
            noisy[row.gpus] = variation
    if not noisy:
        return None
    gpus, variation = next(iter(noisy.items()))
    sizes = _sizes([gpus], series)
    return Doubt(
        "noise",
        tuple(noisy),
        evidence=f"with {sizes} {variation}: the node was busy, or its file system",
        remedy="measure again, one run after the other, while nothing else runs on the nodes",
        again=_gpus([series.rows[0], *(row for row in series.sizes if row.gpus in noisy)]),
    )


def _variation(row: Row, warmup: int) -> str:
    """Return how the times of a size differ, in words; nothing where they do so by little."""
    speed = row.speedup
    if speed.n > 1 and speed.deviation / speed.n**0.5 > UNCERTAIN:
        longer = 100 * (speed.high / speed.low - 1)
        return f"the slowest run took {longer:.0f} % longer than the fastest"
    for point in row.points:
        times = _counted(point, warmup)
        times = times[_slow_epochs(times) :]
        if len(times) < _FEWEST_EPOCHS:
            continue
        error = stdev(times) / len(times) ** 0.5
        if error > UNCERTAIN * fmean(times):
            return f"the epochs of a run took {min(times):.3g} to {max(times):.3g} s"
    return ""


def _one_run(series: Series) -> Doubt | None:
    rows = []
    for row in series.rows:
        first = row.points[0]
        # a row of a table without epochs or runs may be the mean of several
        is_one_run = first.source != "csv" or first.run or len(first.epochs) > 1
        if row.speedup.n == 1 and is_one_run:
            rows.append(row)
    if not rows:
        return None
    gpus = _gpus(rows)
    sizes = "each size" if len(rows) == len(series.rows) else _sizes(gpus, series)
    return Doubt(
        "no repeats",
        gpus,
        evidence=f"{sizes} ran only once, so the error is unknown",
        remedy="run each size three times",
        again=_gpus(series.sizes),
    )


def _gpus(rows: Iterable[Row]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(row.gpus for row in rows))


def _sizes(gpus: Sequence[int], series: Series) -> str:
    """Return ``1, 2 and 4 GPUs``."""
    *most, last = gpus
    text = units_text(last, series.unit)
    if most:
        text = f"{', '.join(map(str, most))} and {text}"
    return text
