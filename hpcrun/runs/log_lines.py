"""Selects lines of logs by a pattern or by time, and merges the lines of many ranks in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from hpcrun.job.patterns import Pattern
from hpcrun.reading import open_regular
from hpcrun.runs.log_times import Stamps
from hpcrun.runs.logs import LONGEST_LINE, LogFile, fold, log_lines

_PROBED = 200
_MERGE_BYTES = 8 * 1024 * 1024
"""The memory of all merged files together, in bytes."""


def has_stamps(path: Path, started_s: float) -> bool:
    """Return whether the lines of a log have times, from its first and last lines."""
    probed = (*islice(log_lines(path), _PROBED), *log_lines(path, _PROBED))
    return any(Stamps(started_s).read(line) is not None for line in probed)


def since(lines: Iterator[str], since_s: float, started_s: float) -> Iterator[str]:
    """Yield all lines from the first whose time is at or after ``since_s`` (seconds since the epoch)."""
    stamps = Stamps(started_s)
    for line in lines:
        stamp = stamps.read(line)
        if stamp is not None and stamp >= since_s:
            yield line
            break
    yield from lines


def matching(lines: Iterator[str], pattern: Pattern) -> Iterator[str]:
    """Yield the lines that match a pattern; for a progress bar, its last state is matched."""
    return pattern.filter((line, fold(line)) for line in lines)


def merged(logs: Sequence[LogFile], started_s: float, since_s: float | None = None) -> Iterator[tuple[LogFile, str]]:
    """Yield lines of many logs in the order of their times.

    A line without a time stays after the line before it, so that a traceback stays together; a log without times is one
    block at the beginning. One file is open at a time, and the memory for all files has a fixed size.
    """
    room = max(4096, min(4 * LONGEST_LINE, _MERGE_BYTES // max(1, len(logs))))

    def lines_of(log: LogFile) -> Iterator[str]:
        found = _read_in_parts(log.path, room)
        return found if since_s is None else since(found, since_s, started_s)

    timed = (_timed(number, lines_of(log), started_s) for number, log in enumerate(logs))
    for _, number, line in heapq.merge(*timed, key=lambda item: item[:2]):
        yield logs[number], line


def _timed(number: int, lines: Iterator[str], started_s: float) -> Iterator[tuple[float, int, str]]:
    stamps, at_s = Stamps(started_s), float("-inf")
    for line in lines:
        stamp = stamps.read(line)
        if stamp is not None:
            at_s = max(at_s, stamp)  # keep the order of the file
        yield at_s, number, line


def _read_in_parts(path: Path, room: int) -> Iterator[str]:
    """Yield a file's lines; it is open only while a part of it is read."""
    offset = 0
    while True:
        try:
            with open_regular(path, links=False) as file:
                file.seek(offset)
                part = _lines_of(file.read(room))
        except OSError:
            return
        if not part:
            return
        offset += sum(map(len, part))
        for line in part:
            yield line.decode("utf-8", "surrogateescape")


def _lines_of(data: bytes) -> list[bytes]:
    """Return the complete lines of a part of a file, or its rest if there is no complete line."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] or ([rest] if rest else [])
