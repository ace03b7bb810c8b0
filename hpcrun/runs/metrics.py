"""The numbers of a run: those that ranks noted with ``hpcrun_runtime.log_metrics``, and those in their logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.job.metrics import STEP, found_number
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.logs import fold, log_lines, rank_log
from hpcrun.runs.stamps import Stamps

Value = float | int | str
_METRICS_FILE = re.compile(r"rank-(\d+)\.metrics")


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """What one rank said at one time.

    Attributes:
        step: None where it named none.
        time_s: seconds since the epoch by the rank's host; None for a line of a log without a time.
    """

    rank: int
    attempt: int
    step: float | None
    time_s: float | None
    values: Mapping[str, Value]


@dataclass(slots=True)
class Unreadable:
    """Counts lines that are no metrics: cut off when a disk was full, or not by log_metrics."""

    lines: int = 0


def metric_ranks(folder: Path) -> list[int]:
    """Return the ranks of an attempt that have noted metrics."""
    try:
        found = (_METRICS_FILE.fullmatch(entry.name) for entry in folder.iterdir())
        return sorted(int(match[1]) for match in found if match)
    except OSError:
        return []


def noted(attempt: Attempt, rank: int, bad: Unreadable) -> Iterator[MetricsRow]:
    """Yield what a rank noted in one attempt, in its order."""
    try:
        for line in log_lines(attempt.folder / f"rank-{rank}.metrics"):
            row = _row(line, attempt.number, rank)
            if row is not None:
                yield row
            elif line.strip():
                bad.lines += 1
    except OSError:
        return  # that rank has noted nothing


def _row(line: str, attempt: int, rank: int) -> MetricsRow | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    time_s, step = _number(data.pop("time", None)), _number(data.pop("step", None))
    values = {str(name): value for name, value in data.items() if isinstance(value, float | int | str)}
    return MetricsRow(rank, attempt, step, time_s, values)


def _number(value: Any) -> float | None:
    return value if isinstance(value, float | int) and not isinstance(value, bool) else None


@dataclass(slots=True)
class LogMetrics:
    """Finds metrics in the logs of one rank, attempt after attempt.

    A line that names no step belongs to the next of its metric: the first is 1, and they are counted on over attempts.
    """

    patterns: Mapping[str, re.Pattern[str]]
    _counts: dict[str, int] = field(default_factory=dict)

    def rows(self, attempt: Attempt, rank: int) -> Iterator[MetricsRow]:
        """Yield what was said in one attempt, stdout before stderr."""
        for stream in ("out", "err"):
            stamps = Stamps(attempt.started_s)
            try:
                for line in log_lines(rank_log(attempt.folder, rank, stream).path):
                    time_s = stamps.read(line)
                    step, values = self.read(fold(line))
                    if values:
                        yield MetricsRow(rank, attempt.number, step, time_s, values)
            except OSError:
                continue

    def read(self, line: str) -> tuple[float, dict[str, Value]]:
        """Return the step and the numbers that a line speaks of."""
        step: float | None = None
        values: dict[str, Value] = {}
        for name, pattern in self.patterns.items():
            match = pattern.search(line)
            number = found_number(match) if match else None
            if match is None or number is None:
                continue
            if name == STEP:
                step = number
            else:
                values[name] = number
            if STEP in pattern.groupindex and match[STEP]:
                step = _float(match[STEP])
        for name in values:
            self._counts[name] = self._counts.get(name, 0) + 1
        return (step if step is not None else max((self._counts[name] for name in values), default=0)), values


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def join(rows: Sequence[MetricsRow]) -> list[MetricsRow]:
    """Return one row for each rank and step, ordered by both: what was said later of the same step stands.

    An attempt that goes on from a checkpoint says some steps once more. Rows without a step stay as they are.
    """
    found: dict[tuple[int, float, int], MetricsRow] = {}
    last: dict[int, float] = {}
    for number, row in enumerate(rows):
        if row.step is None:
            key = (row.rank, last.get(row.rank, float("-inf")), number + 1)
        else:
            key = (row.rank, row.step, 0)
            last[row.rank] = row.step
        before = found.get(key)
        values = {**before.values, **row.values} if before else row.values
        time_s = row.time_s if row.time_s is not None or before is None else before.time_s
        found[key] = MetricsRow(row.rank, row.attempt, row.step, time_s, values)
    return [found[key] for key in sorted(found)]
