"""Which numbers of GPUs are worth their price, and which times are unreliable.

This module also says why a size falls short of the ideal.

Sizes are taken from the smallest up. The marginal efficiency of a size is the speed-up of each GPU
that it adds to the last size taken, over the speed-up of each GPU of the smallest size. A size that
misses the target is left out. The next one is compared with the last size taken: a small miss does
not hide a gain at a larger size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median, stdev
from typing import Literal

from hpcrun.features.scaling.points import Point, positive
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import ScaleCommand, Size, units_text

MIN_EFFICIENCY = 0.65
"""The target, unless ``--min-efficiency`` sets another one.

It separates what teams call a success from what they call diminishing returns: 3.0 × on 4 GPUs, 75
% of the ideal, brings 67 % for each added GPU; 6.0 × on 8 after 3.4 × on 4 brings 64 %.
"""
Verdict = Literal[
    "baseline", "good", "diminishing returns", "poor", "negative scaling", "no verdict", ""
]
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
Kind = Literal["batch", "sync", "data", "startup", "uneven"]
NOTABLE = 0.05
"""The least share of the time that is reported."""
SMALL_BATCH = 32
"""Samples per GPU below which few models keep any card busy."""


@dataclass(frozen=True, slots=True)
class Step:
    """From the last size that was taken to a larger one."""

    before: int
    gpus: int
    # the marginal efficiency, 0.64 for 64 %; negative if the added GPUs slow the rest down
    added: float
    taken: bool  # whether it reaches the target


def reaches(efficiency: float, target: float) -> bool:
    """Return whether an efficiency reaches the target, in whole per cent as the answer shows it."""
    return whole(efficiency) >= whole(target)


def whole(share: float) -> int:
    """Return a share in whole per cent, with halves rounded up."""
    return math.floor(share * 100 + 0.5)


def steps(
    speedups: Sequence[tuple[int, float]], target: float = MIN_EFFICIENCY
) -> tuple[Step, ...]:
    """Return a step for each size but the smallest.

    ``speedups``: GPUs and speed-up over the smallest, ascending.
    """
    walk: list[Step] = []
    if speedups:
        base, speedup = speedups[0]
        last = base
        for gpus, value in speedups[1:]:
            added = (value - speedup) * base / (gpus - last)
            walk.append(Step(last, gpus, added, reaches(added, target)))
            if walk[-1].taken:
                last = gpus
                speedup = value
    return tuple(walk)


def choose(
    speedups: Sequence[tuple[int, float]], target: float = MIN_EFFICIENCY
) -> tuple[int, Step | None, Step | None]:
    """Return the largest size that is worth its GPUs, and two steps.

    The steps are the step to this size, and the step to the next larger size, if any.
    """
    walk = steps(speedups, target)
    step = next((step for step in reversed(walk) if step.taken), None)
    gpus = step.gpus if step else speedups[0][0]
    return gpus, step, next((step for step in walk if step.gpus > gpus), None)


@dataclass(frozen=True, slots=True)
class Advice:
    """The sizes to request."""

    fastest: Row  # the largest speed-up
    cheapest: Row  # the fewest GPU-hours for the same work
    value: Row  # the largest size that is worth its GPUs
    step: Step | None  # the step to it; None if it is the smallest size
    # the step to the next larger size, which misses the target; None if there is none
    next_step: Step | None
    next_row: Row | None  # that size
    min_efficiency: float  # the target
    # sizes of which the times are unreliable; only the others carry the advice
    doubtful: frozenset[int] = frozenset()


def verdict(row: Row, series: Series, advice: Advice | None) -> Verdict:
    """Return the verdict on a size's efficiency.

    The verdict is "" for the only size, and "no verdict" without advice on the series.
    """
    if not series.compared:
        return ""
    if row.gpus == series.rows[0].gpus:
        return "baseline"
    if advice is None or row.gpus in advice.doubtful:
        return "no verdict"
    if round(row.speedup.mean, 2) < 1:
        return "negative scaling"
    if not reaches(row.efficiency, advice.min_efficiency):
        return "poor"
    if row.gpus <= advice.value.gpus:
        return "good"
    return "diminishing returns"


def advise(
    series: Series, min_efficiency: float = MIN_EFFICIENCY, doubtful: frozenset[int] = frozenset()
) -> Advice | None:
    """Return the sizes to request, or None if too few sizes are reliable.

    Two sizes must not be doubtful, and one of them must be the baseline.
    """
    sizes = [row for row in series.sizes if row.gpus not in doubtful]
    if len(sizes) < 2 or series.sizes[0].gpus in doubtful:
        return None
    rows = {row.gpus: row for row in sizes}
    gpus, step, next_step = choose([(row.gpus, row.speedup.mean) for row in sizes], min_efficiency)
    return Advice(
        fastest=max(sizes, key=lambda row: row.speedup.mean),
        cheapest=max(sizes, key=lambda row: row.efficiency),
        value=rows[gpus],
        step=step,
        next_step=next_step,
        next_row=rows[next_step.gpus] if next_step else None,
        min_efficiency=min_efficiency,
        doubtful=doubtful,
    )


def pareto(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows that no other row beats in both time and GPU-hours.

    The fastest row comes first.
    """
    timed = [
        (row.time_s.mean, row.gpu_hours, row)
        for row in rows
        if row.time_s and row.gpu_hours is not None
    ]
    front: list[Row] = []
    fewest = float("inf")
    for _, hours, row in sorted(timed, key=lambda item: item[:2]):
        if hours < fewest:
            front.append(row)
            fewest = hours
    return tuple(front)


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


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A part of the time that a size loses."""

    kind: Kind
    share: float  # of the time of that size, 0 to 1
    evidence: str  # the measured number, in words
    advice: str  # what to do, in words
    # a command to try it; "" if the script's arguments do not name what it would change
    command: str


@dataclass(frozen=True, slots=True)
class ScalingDiagnosis:
    """Why one size does not reach the ideal."""

    row: Row  # the size
    causes: tuple[Bottleneck, ...]  # the largest share first
    unknown: tuple[str, ...]  # causes that were not measured, with the metrics that they need


def diagnose_series(
    series: Series, advice: Advice, command: ScaleCommand
) -> ScalingDiagnosis | None:
    """Return the causes for the first size that is not worth its GPUs.

    If there is no such size, return the causes that are known for the largest size.
    """
    base = series.rows[0]
    row = advice.next_row or series.sizes[-1]
    if not advice.next_step and 1 - row.efficiency < NOTABLE:
        return None
    judged = _causes(row, base, command)
    causes = [
        Bottleneck(kind, share, *texts)
        for kind, share, _, *texts in judged
        if share and share >= NOTABLE
    ]
    # where every size is worth its GPUs, nobody has to measure more
    if advice.next_step:
        unknown = tuple(what for _, share, what, *_ in judged if share is None)
    else:
        unknown = ()
    if not causes and not unknown:
        return None
    return ScalingDiagnosis(row, tuple(sorted(causes, key=lambda cause: -cause.share)), unknown)


def _causes(
    row: Row, base: Row, command: ScaleCommand
) -> tuple[tuple[Kind, float | None, str, str, str, str], ...]:
    """Return the possible causes of a size's loss.

    Each has its share, or None if it was not measured, what the measurement needs, and the texts.
    """
    sizes = [Size(each.gpus, each.nodes) for each in (base, row)]
    shares, gpus, batch = row.shares, row.gpus, row.batch_size
    one = row.unit.removesuffix("s")
    counts = row.points[0].rank_samples
    each = (batch or 0) / gpus
    before = base.batch_size / base.gpus if base.batch_size else each
    # With a fixed global batch, each of more GPUs has less work in a step, but the same fixed cost.
    # That cost is the loss that waiting for data and ranks does not explain. An unchanged batch per
    # GPU causes no loss.
    if each < before:
        fixed = 1 - row.efficiency - (shares.data or 0) - (shares.idle or 0)
    else:
        fixed = 0.0
    idle, uneven = (
        shares.idle,
        f"ranks have {min(counts, default=0)} to {max(counts, default=0)} samples in an epoch",
    )
    if batch and not counts:
        idle = 1 - batch / (-(-batch // gpus) * gpus)
        uneven = f"a batch of {batch} does not divide by {gpus} {row.unit}"
    now, then = (f"{number:.1f}".removesuffix(".0") for number in (each, before))
    data, sync, startup = (f"{100 * (share or 0):.0f} %" for share in shares[:3])
    return (
        (
            "batch",
            None if batch is None else fixed,
            "the batch per GPU (batch_size)",
            f"global batch {batch} leaves a per-{one} batch of {now} on {gpus} {row.unit}, {then} "
            f"at {base.gpus}",
            f"use a larger per-{one} batch, and scale the learning rate with the global batch",
            command.change(sizes, batch_size=max(round(before * gpus), SMALL_BATCH * gpus)),
        ),
        (
            "sync",
            shares.sync,
            "communication (sync_s of an epoch)",
            f"synchronising the ranks takes {sync} of an epoch",
            "synchronise less often (gradient accumulation), use fewer nodes, and check the "
            "network",
            command.preflight(gpus, row.nodes),
        ),
        (
            "data",
            shares.data,
            "data loading (data_s of an epoch)",
            f"waiting for data takes {data} of an epoch",
            "use more DataLoader workers (num_workers, persistent_workers) and more CPUs",
            command.change(
                sizes, options=command.more_cpus(8), args=command.more("--num-workers", 8)
            ),
        ),
        (
            "startup",
            shares.startup,
            "launch overhead (startup_s and total_s)",
            f"{startup} of the run passes before the first epoch",
            f"train longer in one job, or with fewer {row.unit}",
            command.change(sizes, args=command.more("--epochs", 20)),
        ),
        (
            "uneven",
            idle,
            "uneven batches (rank_samples)",
            uneven,
            "give all ranks the same number of samples: a global batch divisible by the "
            f"{row.unit}, DistributedSampler, "
            "drop_last",
            command.change(sizes, batch_size=max(1, round((batch or gpus) / gpus)) * gpus),
        ),
    )
