"""Which of two lines of a run's logs came first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from hpcrun.explain.diagnosis.facts import CLEARED_AWAY_AFTER_S, SAME_MOMENT_S
from hpcrun.explain.diagnosis.launcher_lines import failures, first_failure
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.explain.diagnosis.traceback import is_exception_line
from hpcrun.runs.log_times import second_of_year, seconds_between

_LOOKED_AT = 160
"""Characters of a line that may name its rank."""
_NAMED = re.compile(r"\b[Rr]ank[ _:=-]{0,2}(?P<rank>\d{1,7})\b")
_NEIGHBOURS = 200
"""Lines above and below a line without a time, among which one with a time counts for it."""
_CLEANUP_LINES = 400
"""Lines that a timeout and its clean-up may write: torch shows the C++ stack of every thread that
ends.
"""
_LAST_LINES = 40
"""Lines that a rank may write after a failure that it caught, if no line has a time: more are of
further steps.
"""
_SHORTLY_S = 600.0
"""The time between a caught failure and the start of the wait of the others, at most: else they are
not related.
"""
_MOST_WAITS = 16
"""Ranks that waited whose times are compared; of a job with thousands one is as good as another."""
_ENTRY_LINES = 8
"""Lines of an entry of torchrun's report that may match a rule."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log, by its number in the file, and the rank that says it or is named in it."""

    log: Log
    number: int | None
    line: str
    rank: int | None = None

    @property
    def place(self) -> int | None:
        """Its position in the end of its log that is kept; None if it is above that."""
        place = self.log.scan.position(self.number)
        return None if place is None or place < 0 else place

    def comes_after(self, other: LogLine) -> bool:
        """Whether it was surely written after another line: False where that cannot be known.

        Lines of different files or ranks are compared by their times, or by those of the lines
        around them: clocks of two nodes differ by some seconds, and torchrun --tee copies what one
        rank says seconds after another's.
        """
        mine = second_of_year(self.line)
        theirs = second_of_year(other.line)
        not_before = mine if mine is not None else self.near(-1)
        not_after = theirs if theirs is not None else other.near(1)
        if not_before is None or not_after is None:
            return False
        return seconds_between(not_after, not_before) > SAME_MOMENT_S

    def near(self, step: int) -> float | None:
        """Return the time of the next line above (-1) or below (1) it that has one."""
        scan, place = self.log.scan, self.place
        if place is None:
            return None
        begins = place + step
        places = range(begins, begins + step * _NEIGHBOURS, step)
        times = (
            second_of_year(scan.stamped(place)) for place in places if 0 <= place < len(scan.tail)
        )
        return next((time for time in times if time is not None), None)


def line_of(log: Log, hit: Hit) -> LogLine:
    """Return the line of a match."""
    if log.rank is None:
        named = _NAMED.search(hit.line[:_LOOKED_AT])
    else:
        named = None
    return LogLine(log, hit.number, hit.stamp + hit.line, int(named["rank"]) if named else log.rank)


def _waits_in(log: Log) -> list[Hit]:
    """Return the matches in a log which show that its rank waited in vain.

    The rank waited for other ranks; the matches are in their order.
    """
    return [hit for hit in log.scan.hits if hit.rule.level == "wait"]


def _is_of_cleanup(line: LogLine) -> bool:
    """Whether a line of a rank's log comes of the clean-up after a timeout of the same rank."""
    waits = (hit.number for hit in _waits_in(line.log))
    return line.number is not None and any(
        number is not None and 0 < line.number - number <= _CLEANUP_LINES for number in waits
    )


def first_waits(logs: Iterable[Log]) -> tuple[LogLine, ...]:
    """Return the lines which show that ranks waited for others in vain.

    Only the lines of the first few ranks count.
    """
    return tuple(islice((line_of(log, hit) for log in logs for hit in _waits_in(log)), _MOST_WAITS))


def came_of_a_timeout(log: Log, hit: Hit, waits: Sequence[LogLine] = ()) -> bool:
    """Whether an exception was raised only after a rank had waited for others until its timeout.

    A failure that others wait for is older than their timeout. Messages of Slurm and the kernel do
    not count: they come later than their cause.
    """
    if not is_exception_line(hit.line) or hit.rule.level == "wait":
        return False
    return _after_a_timeout(line_of(log, hit), waits)


def ended_by_a_timeout(log: Log, waits: Sequence[LogLine] = ()) -> bool:
    """Return whether the exception of a log was raised only after a timeout.

    A rank had waited for others until its timeout.
    """
    raised = log.traceback
    if raised is None:
        return False
    return _after_a_timeout(
        LogLine(log, log.scan.number(raised.begins), log.scan.stamped(raised.begins)), waits
    )


def _after_a_timeout(line: LogLine, waits: Sequence[LogLine]) -> bool:
    return _is_of_cleanup(line) or any(
        wait.log is not line.log and line.comes_after(wait) for wait in waits
    )


def caught_before_waits(caught: Sequence[LogLine], waits: Sequence[tuple[Log, Hit]]) -> int | None:
    """Return which failure one rank caught before others began to wait in vain.

    The result is None if that cannot be known. If all ranks caught a failure, none of them waited
    for another one. If a rank caught a failure long before the others began to wait, the failure is
    not the reason.
    """
    ranks = {line.rank for line in caught}
    others = [(log, hit) for log, hit in waits if log.rank is not None and log.rank not in ranks]
    if len(ranks) != 1 or None in ranks or not others:
        return None
    if all(_led_to(caught[-1], log, hit) for log, hit in others[:_MOST_WAITS]):
        return len(caught) - 1
    return None


def _led_to(line: LogLine, log: Log, wait: Hit) -> bool:
    """Return whether a rank caught a failure shortly before another rank began to wait.

    The times of the lines decide, or the lines behind the failure.
    """
    own_s = second_of_year(line.line)
    timeout_s = second_of_year(wait.line)
    caught_s = line.near(-1) if own_s is None else own_s
    if caught_s is None or timeout_s is None:
        place, other = line.place, line_of(log, wait)
        same = log.name == line.log.name
        above = line.number is not None and other.number is not None and line.number < other.number
        if place is None:
            behind: Sequence[str] = ()
        else:
            behind = line.log.scan.tail[place + 1 : other.place if same else None]
        few = place is not None and sum(bool(text.strip()) for text in behind) <= _LAST_LINES
        return few and (above or not same)  # a timeout takes longer than the copying of a line
    waited_s = float(wait.values.get("ms") or wait.values.get("gloo") or 0) / 1000
    return -SAME_MOMENT_S <= seconds_between(caught_s, timeout_s) <= waited_s + _SHORTLY_S


def was_cleared_away(log: Log, hit: Hit) -> bool:
    """Return whether a line of torchrun's report is about a rank that torchrun killed.

    Torchrun kills a rank because another one has failed.
    """
    place = log.scan.position(hit.number)
    if place is None or hit.rule.level != "symptom":
        return False
    root = first_failure(log.end)
    entries = failures(log.end)
    mine = next(
        (one for one in reversed(entries) if 0 < place - one.position <= _ENTRY_LINES), None
    )
    first_s, ended_s = (second_of_year(one.time) if one else None for one in (root, mine))
    known = first_s is not None and ended_s is not None
    return known and seconds_between(first_s or 0.0, ended_s or 0.0) >= CLEARED_AWAY_AFTER_S
