"""Times at the beginning of lines, and lines of many logs, selected or merged by their times.

Programs print these times. The known forms are ISO dates with a time (Python's logging, Slurm,
NCCL_DEBUG_TIMESTAMP_LEVELS), glog's ``E1121 04:50:01.12`` (torch's own messages, in C++ ``E707``
for July 7; also after ``[rank0]:``), a time of day, and seconds since the epoch; each may be in
brackets. A time without a zone is in this machine's zone.
"""

from __future__ import annotations

import heapq
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from hpcrun.files.reading import open_regular
from hpcrun.job.text.patterns import Pattern
from hpcrun.runs.log_files import LONGEST_LINE, LogFile, fold, log_lines

_CLOCK = r"(?P<h>\d\d):(?P<min>\d\d):(?P<s>\d\d)(?P<fraction>[.,]\d{1,9})?"
_STAMP = re.compile(
    r"\s*(?:\x1b\[[0-9;]*m)*(?:\[rank\d+\]:\s?)?[\[(<]?(?:"
    rf"(?P<y>\d{{4}})[-/](?P<mon>\d\d)[-/](?P<d>\d\d)[T ]{_CLOCK}\s?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    rf"|[DIWEFC](?P<gmon>\d{{1,2}})(?P<gd>\d\d) {_CLOCK.replace('P<', 'P<g')}"
    rf"|{_CLOCK.replace('P<', 'P<c')}"
    r"|(?P<epoch>1\d{9}(?:\.\d+)?)(?=[\s\])>:,]|$)"
    r")"
)
# with a date, wherever it stands (Slurm's "CANCELLED AT", torchrun's summary), and transformers'
# 11/22/2026
_DATED = re.compile(
    rf"\b\d{{4}}[-/](?P<mon>\d\d)[-/](?P<d>\d\d)[T ,_]{_CLOCK}"
    rf"|(?:^|\[)[DIWEFC](?P<gmon>\d{{1,2}})(?P<gd>\d\d) {_CLOCK.replace('P<', 'P<g')}"
    rf"|^\[?(?P<cmon>\d\d)/(?P<cd>\d\d)/(?:\d{{4}}|\d\d) {_CLOCK.replace('P<', 'P<c')}"
)
_LOOKED_AT = 80
_DATED_WITHIN = 160
_YEAR_S = 366 * 86400.0
_HALF_A_DAY_S = 12 * 3600


@dataclass(slots=True)
class Stamps:
    """Reads the times of the lines of one log, one after the other."""

    # the last time read, initially the beginning of the log; in seconds since the epoch. It gives
    # the day of a time without a date, and the year of a date without one
    last_s: float

    def read(self, line: str) -> float | None:
        """Return the time at the beginning of a line, in seconds since the epoch.

        Returns None if there is no time.
        """
        return self.read_with_end(line)[0]

    def read_with_end(self, line: str) -> tuple[float | None, int]:
        """Return the same, and the number of characters up to the end of the time."""
        match = _STAMP.match(line[:_LOOKED_AT])
        if match is None:
            return None, 0
        try:
            self.last_s = self._seconds(match.groupdict())
        except (ValueError, OverflowError, OSError):
            # 25:61:61, or a year outside the range of the C library
            return None, 0
        return self.last_s, match.end()

    def _seconds(self, part: dict[str, str | None]) -> float:
        if part["epoch"]:
            return float(part["epoch"])
        near = datetime.fromtimestamp(self.last_s)
        if part["y"]:
            zone = (part["zone"] or "").replace("Z", "+00:00")
            zone = zone and f"{zone[:3]}:{zone[-2:]}"  # Python 3.10 reads no +0100
            day = f"{part['y']}-{part['mon']}-{part['d']}T{part['h']}:{part['min']}:{part['s']}"
            return _exact(datetime.fromisoformat(day + zone), part["fraction"])
        if part["gmon"]:
            time = _at(near.replace(month=int(part["gmon"]), day=int(part["gd"] or 0)), part, "g")
            if time < near - timedelta(days=183):  # a job over New Year's Eve
                time = time.replace(year=time.year + 1)
            return _exact(time, part["gfraction"])
        seconds = _exact(_at(near, part, "c"), part["cfraction"])
        if seconds < self.last_s - _HALF_A_DAY_S:
            return seconds + 86400
        return seconds


def second_of_year(line: str) -> float | None:
    """Return when a line was written, in seconds since its year began; None if it has no date.

    Torch's own lines have no year, so that of others does not count either.
    """
    match = _DATED.search(line[:_DATED_WITHIN])
    if match is None:
        return None
    part = {}
    for name, value in match.groupdict().items():
        if value is not None:
            part[name.lstrip("gc")] = value
    day = f"2000-{part['mon']:0>2}-{part['d']}"
    try:
        when = datetime.fromisoformat(f"{day}T{part['h']}:{part['min']}:{part['s']}")
    except ValueError:
        return None
    fraction = part.get("fraction", "").replace(",", ".")
    return (when - datetime(2000, 1, 1)).total_seconds() + float(f"0{fraction}")


def seconds_between(one_s: float, other_s: float) -> float:
    """Return how much later the second of two times of a year is, in seconds.

    The result is negative if the second time is earlier, also over New Year.
    """
    return (other_s - one_s + _YEAR_S / 2) % _YEAR_S - _YEAR_S / 2


def _at(day: datetime, part: dict[str, str | None], kind: str) -> datetime:
    return day.replace(
        hour=int(part[f"{kind}h"] or 0),
        minute=int(part[f"{kind}min"] or 0),
        second=int(part[f"{kind}s"] or 0),
        microsecond=0,
    )


def _exact(when: datetime, fraction: str | None) -> float:
    return when.timestamp() + (float("0." + fraction[1:]) if fraction else 0.0)


_PROBED = 200
_MERGE_BYTES = 8 * 1024 * 1024  # the memory of all merged files together


def has_stamps(path: Path, started_s: float) -> bool:
    """Return whether the lines of a log have times, from its first and last lines."""
    probed = (*islice(log_lines(path), _PROBED), *log_lines(path, _PROBED))
    return any(Stamps(started_s).read(line) is not None for line in probed)


def since(lines: Iterator[str], since_s: float, started_s: float) -> Iterator[str]:
    """Yield all lines from the first whose time is at or after ``since_s``.

    ``since_s`` is in seconds since the epoch.
    """
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


def merged(
    logs: Sequence[LogFile],
    started_s: float,
    since_s: float | None = None,
    *,
    whole: Collection[LogFile] = (),
) -> Iterator[tuple[LogFile, str]]:
    """Yield lines of many logs in the order of their times.

    A line without a time stays after the line before it, so that a traceback stays together; a log
    without times is one block at the beginning. One file is open at a time, and the memory for all
    files has a fixed size.

    Args:
        logs: the logs to read.
        started_s: the start of the attempt, in seconds since the epoch.
        since_s: the time from which lines are wanted, in seconds since the epoch; None for all
            lines.
        whole: logs of which all lines are wanted, whatever ``since_s``.
    """
    room = max(4096, min(4 * LONGEST_LINE, _MERGE_BYTES // max(1, len(logs))))

    def timed(number: int, log: LogFile) -> Iterator[tuple[float, int, str]]:
        lines = _read_in_parts(log.path, room)
        stamps = Stamps(started_s)
        at_s = float("-inf")
        if since_s is not None and log not in whole:
            lines = since(lines, since_s, started_s)
        for line in lines:
            stamp = stamps.read(line)
            if stamp is not None:
                at_s = max(at_s, stamp)  # keep the order of the file
            yield at_s, number, line

    streams = [timed(number, log) for number, log in enumerate(logs)]
    in_order = heapq.merge(*streams, key=lambda item: item[:2])
    for _, number, line in in_order:
        yield logs[number], line


def _read_in_parts(path: Path, room: int) -> Iterator[str]:
    """Yield a file's lines; it is open only while a part of it is read."""
    offset = 0
    while True:
        try:
            with open_regular(path, links=False) as file:
                file.seek(offset)
                part = file.read(room)
        except OSError:
            return
        # the complete lines, or the rest if there is none
        part = part[: part.rfind(b"\n") + 1] or part
        if not part:
            return
        offset += len(part)
        for line in io.BytesIO(part):
            yield line.decode("utf-8", "surrogateescape")
