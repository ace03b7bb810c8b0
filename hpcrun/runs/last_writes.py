"""When the ranks of a running job last wrote, and the last heartbeats of its nodes, from the times of their files.

One listing of the attempt's folder and one stat for each file: 512 ranks take some milliseconds, and no log is opened.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcrun.job.layout import AttemptFolder, parse_nodes, parse_ranks
from hpcrun.reading import parse_object, time_s
from hpcrun.runs.attempt import Attempt, names_in
from hpcrun.runs.log_times import Stamps
from hpcrun.runs.logs import fold, rank_log, tail

STREAMS = ("out", "err")
_KINDS = (*STREAMS, "metrics")
_PACE_LINES = 64
"""The pace of a rank is that of its last lines."""
_FEW_LINES = 3
"""Fewer lines show no pace."""


@dataclass(frozen=True, slots=True)
class Writes:
    """The last signs of the ranks and nodes of an attempt, in seconds since the epoch by the file server's clock."""

    ranks: Mapping[int, float | None]  # rank → when it last wrote a line or a metric; None if it has written nothing
    # node → its last heartbeat; nodes have heartbeats only if the job may be warned or requeued
    nodes: Mapping[str, float]


def last_writes(folder: AttemptFolder) -> Writes:
    """Return when each rank of an attempt last wrote."""
    names = names_in(folder.path)
    last: dict[int, float | None] = {}
    for kind in _KINDS:
        for rank in parse_ranks(names, kind):
            at_s = _written_s(_path(folder, rank, kind))
            last[rank] = max(filter(None, (last.get(rank), at_s)), default=None)
    beats = {node: _written_s(folder.node_file(node)) for node in parse_nodes(names)}
    return Writes(dict(sorted(last.items())), {node: at_s for node, at_s in beats.items() if at_s})


def last_write_s(folder: AttemptFolder, rank: int) -> float | None:
    """Return when one rank last wrote; None if it has written nothing."""
    return max(filter(None, (_written_s(_path(folder, rank, kind)) for kind in _KINDS)), default=None)


def _path(folder: AttemptFolder, rank: int, kind: str) -> Path:
    return folder.rank_metrics(rank) if kind == "metrics" else folder.rank_log(rank, kind)


def _written_s(path: Path) -> float | None:
    """Return when a file was last written; None if it is empty, missing or a link."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mtime if stat.S_ISREG(found.st_mode) and found.st_size else None


def usual_pause_s(attempt: Attempt, rank: int) -> float | None:
    """Return the longest pause between the recent lines of a rank, in seconds; None if it is unknown.

    The times are those of its metrics, else those at the beginnings of its lines. Without them, it is the mean pause
    from the start to the last line.
    """
    times = list(_metric_times(attempt, rank)) or _line_times(attempt, rank)
    if len(times) > 1:
        return max(after - before for before, after in itertools.pairwise(times))
    return _mean_pause_s(attempt, rank)


def _metric_times(attempt: Attempt, rank: int) -> Iterator[float]:
    with suppress(OSError):
        for line in tail(attempt.folder.rank_metrics(rank), _PACE_LINES).splitlines():
            with suppress(ValueError):
                yield time_s(parse_object(line, finite=False).get("time"))


def _line_times(attempt: Attempt, rank: int) -> list[float]:
    for stream in STREAMS:
        stamps = Stamps(attempt.started_s)
        with suppress(OSError):
            lines = tail(rank_log(attempt.folder, rank, stream).path, _PACE_LINES).splitlines()
            times = [at_s for line in lines if (at_s := stamps.read(line)) is not None]
            if len(times) > 1:
                return times
    return []


def _mean_pause_s(attempt: Attempt, rank: int) -> float | None:
    """Return the time from the start of an attempt to the last line of a rank, over the number of its lines.

    A log may have millions of lines: their number is that of bytes over the mean length of the last lines.
    """
    for stream in STREAMS:
        path = attempt.folder.rank_log(rank, stream)
        at_s = _written_s(path)
        with suppress(OSError):
            last = tail(path, _PACE_LINES)
            if at_s and (number := len(last.splitlines())) >= _FEW_LINES:
                share = min(1.0, len(last.encode()) / path.lstat().st_size)
                return share * max(0.0, at_s - attempt.started_s) / number
    return None


def last_line_of(attempt: Attempt, rank: int) -> str:
    """Return the last line that a rank wrote, of the stream that it wrote to last."""
    paths = [rank_log(attempt.folder, rank, stream).path for stream in STREAMS]
    times = {}
    for path in paths:
        with suppress(OSError):
            times[path] = path.lstat().st_mtime
    for path in sorted(times, key=lambda path: -times[path]):
        with suppress(OSError):
            lines = [line for line in tail(path, 5).splitlines() if line.strip()]
            if lines:
                return fold(lines[-1]).strip()
    return ""
