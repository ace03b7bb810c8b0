"""The metrics of a run: recorded by ranks, or found in the logs of ranks.

Ranks record metrics with ``hpcrun_runtime.log_metrics``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hpcrun.files.reading import Kind, number, parse_object, time_s
from hpcrun.job.run_paths import AttemptFolder, parse_ranks
from hpcrun.job.text.metric_patterns import (
    EPOCH,
    STEP,
    finite_number,
    found_number,
    usual_numbers,
)
from hpcrun.job.text.patterns import Pattern
from hpcrun.runs.attempt import Attempt, names_in
from hpcrun.runs.log_files import fold, log_lines, rank_log
from hpcrun.runs.log_times import Stamps

Value = float | int | str


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """The metrics of one rank at one time."""

    rank: int
    attempt: int
    step: float | None  # None if it has none
    # seconds since the epoch by the rank's host; None for a line of a log without a time
    time_s: float | None
    values: Mapping[str, Value]
    # the epoch beside the step of a log: the steps of each epoch may begin again; None without one
    epoch: float | None = None


@dataclass(slots=True)
class Unreadable:
    """Counts lines that are not metrics.

    Such a line was cut off when a disk was full, or was not written by log_metrics.
    """

    lines: int = 0


def metric_ranks(folder: AttemptFolder) -> list[int]:
    """Return the ranks of an attempt that have recorded metrics."""
    return folder.role_ranks(parse_ranks(names_in(folder.path), "metrics"))


def noted(
    attempt: Attempt, rank: int, bad: Unreadable, lines: int | None = None
) -> Iterator[MetricsRow]:
    """Yield the metrics that a rank recorded in one attempt, in order.

    ``lines`` limits the metrics to the last lines; None for all.
    """
    try:
        for line in log_lines(attempt.folder.rank_metrics(rank), lines):
            row = _row(line, attempt.number, rank)
            if row:
                yield row
            elif line.strip():
                bad.lines += 1
    except OSError:
        return  # the rank has recorded nothing


def _row(line: str, attempt: int, rank: int) -> MetricsRow | None:
    try:
        data = parse_object(line, finite=False)  # a loss may well be NaN
    except ValueError:
        return None
    at_s = _checked(time_s, data.pop("time", None))
    step = _checked(number, data.pop("step", None))
    values = {name: value for name, value in data.items() if isinstance(value, Value)}
    return MetricsRow(rank, attempt, step, at_s, values)


def _checked(kind: Kind, value: Any) -> float | None:
    try:
        return cast(float, kind(value))
    except ValueError:
        return None


@dataclass(slots=True)
class LogMetrics:
    """Finds metrics in the logs of one rank, attempt after attempt: by patterns, or ``usual`` ones.

    A line without a step belongs to the last step that the log states before it. If its metric
    already has a value there, as in ``final loss 2.74`` after the loop, the line has no step.
    """

    patterns: Mapping[str, Pattern]
    usual: bool = False
    _step: float | None = None
    _epoch: float | None = None
    _at_step: set[str] = field(default_factory=set)

    def rows(self, attempt: Attempt, rank: int, lines: int | None = None) -> Iterator[MetricsRow]:
        """Yield the metrics of one attempt, stdout before stderr.

        ``lines`` limits the metrics to the last lines of both; None for all.
        """
        for stream in ("out", "err"):
            stamps = Stamps(attempt.started_s)
            try:
                for line in log_lines(rank_log(attempt.folder, rank, stream).path, lines):
                    at_s = stamps.read(line)
                    step, values = self.read(fold(line))
                    if values:
                        yield MetricsRow(rank, attempt.number, step, at_s, values, self._epoch)
            except OSError:
                continue

    def read(self, line: str) -> tuple[float | None, dict[str, Value]]:
        """Return the step, None if it is unknown, and the numbers in a line."""
        step: float | None = None
        values: dict[str, Value] = {}
        if self.usual:
            step, numbers = usual_numbers(line)
            values.update(numbers)
        for name, pattern in self.patterns.items():
            match = pattern.search(line)
            if match is None:
                continue
            value = found_number(match)
            if value is None:
                continue
            if name != STEP:
                values[name] = value
            elif math.isfinite(value):
                step = value
            text = match.named.get(STEP)
            if text:
                step = finite_number(text)
        epoch = self._epoch
        if self.usual and EPOCH in values:
            epoch = float(values[EPOCH])
        if step is not None and (step != self._step or epoch != self._epoch):
            self._step = step
            self._epoch = epoch
            self._at_step = set()
        elif step is None and self._at_step.isdisjoint(values):
            step = self._step
        self._at_step.update(values)
        return step, values


def count_steps(rows: Sequence[MetricsRow]) -> list[MetricsRow]:
    """Return the rows of a log; if it states no step, each has the count of its metric, from 1."""
    if any(row.step is not None for row in rows):
        return list(rows)
    counts: Counter[str] = Counter()
    counted = []
    for row in rows:
        counts.update(row.values.keys())
        counted.append(replace(row, step=max(counts[name] for name in row.values)))
    return counted


def join(rows: Sequence[MetricsRow]) -> list[MetricsRow]:
    """Return one row for each rank, epoch and step, ordered by them.

    Later values of the same step replace earlier ones. An attempt that continues from a checkpoint
    records some steps again. Rows without a step do not change.
    """
    joined: dict[tuple[int, tuple[float, float], int], MetricsRow] = {}
    last: dict[int, tuple[float, float]] = {}
    for place, row in enumerate(rows):
        if row.step is None:
            key = (row.rank, last.get(row.rank, (-math.inf, -math.inf)), place + 1)
        else:
            at = (-math.inf if row.epoch is None else row.epoch, row.step)
            key = (row.rank, at, 0)
            last[row.rank] = at
        before = joined.get(key)
        values = {**before.values, **row.values} if before else row.values
        if row.time_s is not None or before is None:
            at_s = row.time_s
        else:
            at_s = before.time_s
        joined[key] = replace(row, time_s=at_s, values=values)
    return [joined[key] for key in sorted(joined)]
