"""Why the times of a study may be wrong: warm-up, noise, short epochs, no repeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median, stdev
from typing import Literal

from hpcrun.features.scaling.points import Point, positive
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import units_text

DoubtKind = Literal["super-linear", "warm-up", "short epochs", "noise", "no repeats"]
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
    return tuple(
        chain(
            _super_linear(series),
            _warm_up(series, warmup),
            _short(series),
            _noise(series, warmup),
            _one_run(series),
        )
    )


def _super_linear(series: Series) -> Iterator[Doubt]:
    rows, base = [row for row in series.sizes if row.efficiency > SUPER_LINEAR], series.rows[0]
    if rows:
        worst = max(rows, key=lambda row: row.efficiency)
        times = (
            f"{_sizes([worst.gpus], series)} are {worst.speedup.mean:.2f} times as fast as "
            f"{base.gpus}"
        )
        evidence = f"{times}: {100 * worst.efficiency:.0f} % of the ideal"
        remedy = (
            "run both again, one after the other: something slowed the smallest size, or the "
            "runs did different work"
        )
        # the baseline may be what is wrong, and every size is compared with it
        yield Doubt("super-linear", _gpus(series.sizes), evidence, remedy, _gpus([base, *rows]))


def _warm_up(series: Series, warmup: int) -> Iterator[Doubt]:
    if series.time_of == "run":
        return
    least = max(warmup, 1)
    # the only epoch of a table's row may be a mean of several
    only = [
        row
        for row in series.rows
        if any(0 < len(point.epochs) <= least and point.source != "csv" for point in row.points)
    ]
    if only:
        evidence = f"runs with {_sizes(_gpus(only), series)} have no epoch after their warm-up"
        yield Doubt(
            "warm-up", _gpus(only), evidence, f"train {least + 2} epochs or more", _gpus(only)
        )
        return
    slow = [
        (row, times, number)
        for row in series.rows
        for times in (_counted(point, warmup) for point in row.points)
        if (number := _slow_epochs(times))
    ]
    if slow:
        row, times, _ = max(slow, key=lambda item: item[1][0] / median(item[1][1:]))
        first = f"{times[0]:.3g} s"
        later = f"{median(times[1:]):.3g} s"
        evidence = (
            f"with {_sizes([row.gpus], series)} the first counted epoch took {first}, the "
            f"later ones {later}"
        )
        remedy = f"add --warmup {warmup + max(number for _, _, number in slow)} to this command"
        yield Doubt("warm-up", _gpus(row for row, _, _ in slow), evidence, remedy, ())


def _counted(point: Point, warmup: int) -> list[float]:
    """Return the times of the epochs that count."""
    return [time for epoch in point.counted(warmup) if (time := positive(epoch.time_s))]


def _slow_epochs(times: Sequence[float]) -> int:
    """Return how many epochs at the beginning are slower than the rest."""
    number = 0
    while number < len(times) - 1 and times[number] > SLOW_FIRST * median(times[number + 1 :]):
        number += 1
    return number


def _short(series: Series) -> Iterator[Doubt]:
    of_run = series.time_of == "run"
    least = SHORT_RUN_S if of_run else SHORT_EPOCH_S
    rows = [row for row in series.rows if row.time_s and row.time_s.mean < least]
    if of_run:  # a table names its kind of time; the scheduler's includes the start-up
        rows = [row for row in rows if any(point.source == "elapsed" for point in row.points)]
    if rows:
        shortest = min(row.time_s.mean for row in rows if row.time_s)
        what, noise = ("run", "start-up") if of_run else ("epoch", "start-up and chance")
        evidence = (
            f"with {_sizes(_gpus(rows), series)} {'a run' if of_run else 'an epoch'} takes "
            f"{shortest:.2g} s"
        )
        evidence += f": below {least:g} s the time is mostly {noise}"
        remedy = f"train on more data, so that each {what} takes at least {least:g} s"
        yield Doubt("short epochs", _gpus(rows), evidence, remedy, _gpus(series.sizes))


def _noise(series: Series, warmup: int) -> Iterator[Doubt]:
    noisy = {row.gpus: text for row in series.rows if (text := _variation(row, warmup))}
    if noisy:
        gpus, text = next(iter(noisy.items()))
        evidence = f"with {_sizes([gpus], series)} {text}: the node was busy, or its file system"
        remedy = "measure again, one run after the other, while nothing else runs on the nodes"
        again = _gpus([series.rows[0], *(row for row in series.sizes if row.gpus in noisy)])
        yield Doubt("noise", tuple(noisy), evidence, remedy, again)


def _variation(row: Row, warmup: int) -> str:
    """Return how the times of a size differ, in words; nothing where they do so by little."""
    speed = row.speedup
    if speed.n > 1 and speed.deviation / speed.n**0.5 > UNCERTAIN:
        return (
            f"the slowest run took {100 * (speed.high / speed.low - 1):.0f} % longer than the "
            "fastest"
        )
    for point in row.points:
        times = _counted(point, warmup)
        times = times[_slow_epochs(times) :]
        if len(times) >= _FEWEST_EPOCHS and stdev(times) / len(times) ** 0.5 > UNCERTAIN * fmean(
            times
        ):
            return f"the epochs of a run took {min(times):.3g} to {max(times):.3g} s"
    return ""


def _one_run(series: Series) -> Iterator[Doubt]:
    # a row of a table without epochs or runs may be the mean of several
    rows = [
        row
        for row in series.rows
        for point in row.points[:1]
        if row.speedup.n == 1 and (point.source != "csv" or point.run or len(point.epochs) > 1)
    ]
    if rows:
        if len(rows) == len(series.rows):
            which = "each size"
        else:
            which = _sizes(_gpus(rows), series)
        evidence = f"{which} ran only once, so the error is unknown"
        yield Doubt(
            "no repeats", _gpus(rows), evidence, "run each size three times", _gpus(series.sizes)
        )


def _gpus(rows: Iterable[Row]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(row.gpus for row in rows))


def _sizes(gpus: Sequence[int], series: Series) -> str:
    """Return ``1, 2 and 4 GPUs``."""
    *most, last = gpus
    return f"{', '.join(map(str, most))}{' and ' if most else ''}{units_text(last, series.unit)}"
