"""Times that programs print at the beginning of their lines.

The known forms are ISO dates with a time (Python's logging, Slurm, NCCL_DEBUG_TIMESTAMP_LEVELS), glog's
``E1121 04:50:01.12`` (torch's own messages, also after ``[rank0]:``), a time of day, and seconds since the epoch; each
may be in brackets. A time without a zone is in this machine's zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

_CLOCK = r"(?P<h>\d\d):(?P<min>\d\d):(?P<s>\d\d)(?P<fraction>[.,]\d{1,9})?"
_STAMP = re.compile(
    r"\s*(?:\x1b\[[0-9;]*m)*(?:\[rank\d+\]:\s?)?[\[(<]?(?:"
    rf"(?P<y>\d{{4}})[-/](?P<mon>\d\d)[-/](?P<d>\d\d)[T ]{_CLOCK}\s?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    rf"|[DIWEFC](?P<glog>\d{{4}}) {_CLOCK.replace('P<', 'P<g')}"
    rf"|{_CLOCK.replace('P<', 'P<c')}"
    r"|(?P<epoch>1\d{9}(?:\.\d+)?)(?=[\s\])>:,]|$)"
    r")"
)
_LOOKED_AT = 80
_HALF_A_DAY_S = 12 * 3600


@dataclass(slots=True)
class Stamps:
    """Reads the times of the lines of one log, one after the other.

    Attributes:
        last_s: the last time read, initially the beginning of the log; in seconds since the epoch. It gives the day of
            a time without a date, and the year of a date without one.
    """

    last_s: float

    def read(self, line: str) -> float | None:
        """Return the time at the beginning of a line, in seconds since the epoch; None if there is none."""
        return self.read_with_end(line)[0]

    def read_with_end(self, line: str) -> tuple[float | None, int]:
        """Return the same, and the number of characters up to the end of the time."""
        match = _STAMP.match(line[:_LOOKED_AT])
        if match is None:
            return None, 0
        try:
            found = self._seconds(match.groupdict())
        except (ValueError, OverflowError, OSError):  # 25:61:61, or a year outside the range of the C library
            return None, 0
        self.last_s = found
        return found, match.end()

    def _seconds(self, part: dict[str, str | None]) -> float:
        if part["epoch"]:
            return float(part["epoch"])
        near = datetime.fromtimestamp(self.last_s)
        if part["y"]:
            zone = (part["zone"] or "").replace("Z", "+00:00")
            day = f"{part['y']}-{part['mon']}-{part['d']}T{part['h']}:{part['min']}:{part['s']}"
            return _exact(datetime.fromisoformat(day + _with_colon(zone)), part["fraction"])
        if part["glog"]:
            month, day_of_month = int(part["glog"][:2]), int(part["glog"][2:])
            found = _at(near.replace(month=month, day=day_of_month), part, "g")
            if found < near - timedelta(days=183):  # a job over New Year's Eve
                found = found.replace(year=found.year + 1)
            return _exact(found, part["gfraction"])
        seconds = _exact(_at(near, part, "c"), part["cfraction"])
        return seconds + 86400 if seconds < self.last_s - _HALF_A_DAY_S else seconds


def _at(day: datetime, part: dict[str, str | None], kind: str) -> datetime:
    hour, minute, second = (int(part[kind + name] or 0) for name in ("h", "min", "s"))
    return day.replace(hour=hour, minute=minute, second=second, microsecond=0)


def _exact(when: datetime, fraction: str | None) -> float:
    return when.timestamp() + (float("0." + fraction[1:]) if fraction else 0.0)


def _with_colon(zone: str) -> str:
    return f"{zone[:3]}:{zone[3:]}" if len(zone) == 5 else zone  # Python 3.10 reads no +0100
