"""What came first: which rank ended a run, by the ranks' records, and which of two lines in its logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from hpcrun.explain.diagnosis.facts import RankEnd, Speech
from hpcrun.explain.diagnosis.launcher import first_root_cause
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.explain.diagnosis.traceback import is_exception_line
from hpcrun.job.state import EXIT_ABORTED, EXIT_KILLED, EXIT_TERMINATED

SAME_MOMENT_S = 5.0
"""Ends closer than this have no certain order: a rank that raised an exception needs seconds to tear down CUDA and its
threads, while the others notice the closed connection at once; the clocks of two nodes differ, too."""
CLEARED_AWAY_AFTER_S = 5.0
"""A rank that is killed (SIGKILL) this long after another has failed was killed because of it: torchrun and srun send
SIGTERM, and SIGKILL 30 s later (torch's PContext.close, slurm.conf's KillWait)."""
_WAITERS = 2
"""Ranks that must have waited for a silent rank, before the silent rank counts as the cause."""
_CLOCK = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d(?:[.,]\d{1,9})?)"
_STAMPS = (
    # logging, loguru, NCCL since 2.26, torchrun's summary, Slurm's "CANCELLED AT"
    re.compile(r"\b\d{4}[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ,_]" + _CLOCK),
    # glog, and torch's own: [E1122 16:29:32.123456789 ProcessGroupNCCL.cpp:629]
    re.compile(r"(?:^|\[)[IWEF](?P<month>\d{1,2})(?P<day>\d\d) " + _CLOCK),
    # transformers: 11/22/2026 16:29:32
    re.compile(r"^\[?(?P<month>\d\d)/(?P<day>\d\d)/(?:\d{4}|\d\d) " + _CLOCK),
)
_LOOKED_AT = 160
"""Characters of a line that may have its time."""
_NAMED = re.compile(r"\b[Rr]ank[ _:=-]{0,2}(?P<rank>\d{1,7})\b")
_YEAR_S = 366 * 86400.0
_NEIGHBOURS = 200
"""Lines above and below a line without a time, among which one with a time counts for it."""
_CLEANUP_LINES = 400
"""Lines that a timeout and its clean-up may write: torch shows the C++ stack of every thread that ends."""
_LAST_LINES = 40
"""Lines that a rank may write after a failure that it caught, if no line has a time: more are of further steps."""
_SHORTLY_S = 600.0
"""The time between a caught failure and the start of the wait of the others, at most: else they are not related."""
_MOST_WAITS = 16
"""Ranks that waited whose times are compared; of a job with thousands one is as good as another."""

_ENTRY = re.compile(r"^\s*\[\d{1,6}\]:\s*$")
_ENTRY_TIME = re.compile(r"^\s+time\s*: ")
_ENTRY_LINES = 8
"""Lines of an entry of torchrun's summary, which is about one rank."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The rank that ended a run.

    Attributes:
        left: it ended with exit status 0 while others continued, which then failed or timed out.
        missing: all others waited for it until their timeout; it was terminated without a word.
    """

    rank: int
    left: bool = False
    missing: bool = False

    @property
    def own_words(self) -> bool:
        """Whether its own log, and no other rank's, may tell what happened."""
        return not (self.left or self.missing)


def find_culprit(ends: Sequence[RankEnd], speech: Mapping[int, Speech]) -> Culprit | None:
    """Return the rank that ended the run, None if no rank ended by itself.

    It is the first rank that failed because of itself, else one that ended with exit status 0 before the others failed,
    else the one for which all others waited, else the first that failed because of others.

    Args:
        ends: the records of the ranks, in any order.
        speech: rank → the subject of its log; ``NOTHING`` for a missing rank.
    """
    failed = _failures(ends, speech)
    of_others = [end for end in failed if _speech(end, speech).of_others]
    own = [end for end in failed if not _speech(end, speech).of_others]
    # a rank may fail and end slowly: then it is terminated like the other ranks
    own = [end for end in own if not end.signalled] or own
    if own:
        last_s = min(end.ended_s for end in own) + SAME_MOMENT_S
        moment = [end for end in own if end.ended_s <= last_s]
        return Culprit(min(moment, key=lambda end: (_suspicion(end, speech), end.ended_s, end.rank)).rank)
    leaver = first_leaver(ends, within_s=SAME_MOMENT_S if of_others else 0.0)
    if leaver is not None:
        return Culprit(leaver.rank, left=True)
    if (missing := _missing(ends, speech)) is not None:
        return Culprit(missing, missing=True)
    if of_others:
        return Culprit(min(of_others, key=lambda end: (_symptom(end, speech), end.ended_s, end.rank)).rank)
    return None


def _missing(ends: Sequence[RankEnd], speech: Mapping[int, Speech]) -> int | None:
    """Return the one rank that did not wait, where at least two others waited until their timeout.

    Of two ranks neither is known to have waited for the other: both may wait where the network fails.
    """
    rest = [end for end in ends if _speech(end, speech) is not Speech.WAITED]
    if len(rest) != 1 or len(ends) < 1 + _WAITERS:
        return None
    (one,) = rest
    silent = _speech(one, speech) is Speech.NOTHING and one.status in (EXIT_TERMINATED, EXIT_KILLED)
    return one.rank if silent or (one.by_itself and _speech(one, speech) is Speech.GONE) else None


def before_signal(ends: Iterable[RankEnd], signalled_s: float) -> list[RankEnd]:
    """Return the ends before a signal to the whole job, and those of the ranks that the signal terminated.

    Args:
        signalled_s: when the job was signalled, in seconds since the epoch.
    """
    return [end for end in ends if end.status == EXIT_TERMINATED or end.ended_s < signalled_s]


def first_leaver(ends: Iterable[RankEnd], within_s: float = 0.0) -> RankEnd | None:
    """Return the first rank with exit status 0, if it ended before all other ranks that did not; None if there is none.

    Args:
        within_s: it may have ended this many seconds later: the others notice closed connections before it has ended.
    """
    known = sorted(ends, key=lambda end: (end.ended_s, end.rank))
    badly = [end for end in known if end.status != 0]
    well = [end for end in known if end.status == 0]
    return well[0] if well and badly and well[0].ended_s <= badly[0].ended_s + within_s else None


def failure_order(ends: Iterable[RankEnd], speech: Mapping[int, Speech]) -> list[int]:
    """Return the ranks that failed by themselves: first those with their own error, each kind by time."""
    failed = _failures(ends, speech)
    failed.sort(key=lambda end: (_symptom(end, speech), end.signalled, end.ended_s, end.rank))
    return [end.rank for end in failed]


def _failures(ends: Iterable[RankEnd], speech: Mapping[int, Speech]) -> list[RankEnd]:
    """Return the ranks that failed and were not terminated because another rank had failed.

    A rank that raised an exception may end so slowly that it is terminated together with the others. But its exception
    is in its log, and SIGTERM alone leaves no exception.
    """
    known = list(ends)
    first_s = min((end.ended_s for end in known if end.by_itself), default=0.0)
    return [
        end
        for end in known
        if (end.by_itself and (end.status != EXIT_KILLED or end.ended_s <= first_s + CLEARED_AWAY_AFTER_S))
        or (end.status == EXIT_TERMINATED and _speech(end, speech) is Speech.OWN)
    ]


def _speech(end: RankEnd, speech: Mapping[int, Speech]) -> Speech:
    return speech.get(end.rank, Speech.NOTHING)


def _symptom(end: RankEnd, speech: Mapping[int, Speech]) -> int:
    """Return 0 for a rank that failed because of itself, else the distance of its message from the culprit."""
    said = _speech(end, speech)
    return int(said) if said.of_others else 0


def _suspicion(end: RankEnd, speech: Mapping[int, Speech]) -> int:
    """Return the place of a rank among those that ended in the same moment; the most likely culprit has 0.

    Libraries and launchers end a rank without its peer by a silent abort or kill; other ends have their cause in the
    rank.
    """
    said = _speech(end, speech)
    if end.status == EXIT_TERMINATED:
        return 1
    if said is Speech.NOTHING:
        return 2 if end.status in (EXIT_KILLED, EXIT_ABORTED) else 0
    return 3 if said is Speech.NETWORK else 0


def time_of(line: str) -> float | None:
    """Return when a line was written, in seconds since the year began; None if it does not say so.

    Torch's own lines have no year, so that of others does not count either.
    """
    text = line[:_LOOKED_AT]
    match = next((found for one in _STAMPS if (found := one.search(text))), None)
    if match is None:
        return None
    try:
        day = datetime(2000, int(match["month"]), int(match["day"])).timetuple().tm_yday
    except ValueError:
        return None
    return day * 86400.0 + int(match["h"]) * 3600 + int(match["m"]) * 60 + float(match["s"].replace(",", "."))


def seconds_between(one_s: float, other_s: float) -> float:
    """Return how much later the second of two times is; negative if it is earlier. New Year's Eve may be between."""
    return (other_s - one_s + _YEAR_S / 2) % _YEAR_S - _YEAR_S / 2


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

        Lines of different files or ranks are compared by their times, or by those of the lines around them: clocks of
        two nodes differ by some seconds, and torchrun --tee copies what one rank says seconds after another's.
        """
        if self.log.name == other.log.name and self.log.rank == other.log.rank:
            return self.number is not None and other.number is not None and self.number > other.number
        mine, theirs = time_of(self.line), time_of(other.line)
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
        times = (time_of(scan.stamped(place)) for place in places if 0 <= place < len(scan.tail))
        return next((time for time in times if time is not None), None)


def line_of(log: Log, hit: Hit) -> LogLine:
    """Return the line of a match."""
    named = _NAMED.search(hit.line[:_LOOKED_AT]) if log.rank is None else None
    return LogLine(log, hit.number, hit.stamp + hit.line, int(named["rank"]) if named else log.rank)


def _waits_in(log: Log) -> list[Hit]:
    """Return the matches in a log which show that its rank waited for others in vain, in their order."""
    return [hit for hit in log.scan.hits if hit.rule.level == "wait"]


def _is_of_cleanup(line: LogLine) -> bool:
    """Whether a line of a rank's log comes of the clean-up after a timeout of the same rank."""
    waits = (hit.number for hit in _waits_in(line.log))
    return line.number is not None and any(
        number is not None and 0 < line.number - number <= _CLEANUP_LINES for number in waits
    )


def first_waits(logs: Iterable[Log]) -> tuple[LogLine, ...]:
    """Return the lines of the first few ranks which show that these ranks waited for others in vain."""
    return tuple(islice((line_of(log, hit) for log in logs for hit in _waits_in(log)), _MOST_WAITS))


def came_of_a_timeout(log: Log, hit: Hit, waits: Sequence[LogLine] = ()) -> bool:
    """Whether an exception was raised only after a rank had waited for others until its timeout.

    A failure that others wait for is older than their timeout. Messages of Slurm and the kernel do not count: they
    come later than their cause.

    Args:
        waits: those of other ranks.
    """
    if not is_exception_line(hit.line) or hit.rule.level == "wait":
        return False
    return _after_a_timeout(line_of(log, hit), waits)


def ended_by_a_timeout(log: Log, waits: Sequence[LogLine] = ()) -> bool:
    """Whether the exception of a log was raised only after a rank had waited for others until its timeout."""
    raised = log.traceback
    if raised is None:
        return False
    return _after_a_timeout(LogLine(log, log.scan.number(raised.begins), log.scan.stamped(raised.begins)), waits)


def _after_a_timeout(line: LogLine, waits: Sequence[LogLine]) -> bool:
    return _is_of_cleanup(line) or any(wait.log is not line.log and line.comes_after(wait) for wait in waits)


def caught_before_waits(caught: Sequence[LogLine], waits: Sequence[tuple[Log, Hit]]) -> int | None:
    """Return which failure one rank caught before others began to wait in vain; None if that cannot be known.

    If all ranks caught a failure, none of them waited for another one. If a rank caught a failure long before the
    others began to wait, the failure is not the reason.
    """
    ranks = {line.rank for line in caught}
    others = [(log, hit) for log, hit in waits if log.rank is not None and log.rank not in ranks]
    if len(ranks) != 1 or None in ranks or not others:
        return None
    return len(caught) - 1 if all(_led_to(caught[-1], log, hit) for log, hit in others[:_MOST_WAITS]) else None


def _led_to(line: LogLine, log: Log, wait: Hit) -> bool:
    """Whether a rank caught a failure shortly before another rank began to wait, by their times or the lines behind."""
    own_s, timeout_s = time_of(line.line), time_of(wait.line)
    caught_s = line.near(-1) if own_s is None else own_s
    if caught_s is None or timeout_s is None:
        place, other = line.place, line_of(log, wait)
        same = log.name == line.log.name
        above = line.number is not None and other.number is not None and line.number < other.number
        behind = () if place is None else line.log.scan.tail[place + 1 : other.place if same else None]
        few = place is not None and sum(bool(text.strip()) for text in behind) <= _LAST_LINES
        return few and (above or not same)  # a timeout takes longer than the copying of a line
    waited_s = float(wait.values.get("ms") or wait.values.get("gloo") or 0) / 1000
    return -SAME_MOMENT_S <= seconds_between(caught_s, timeout_s) <= waited_s + _SHORTLY_S


def was_cleared_away(log: Log, hit: Hit) -> bool:
    """Whether a line of torchrun's summary is about a rank that torchrun killed because another one had failed."""
    place = log.scan.position(hit.number)
    if place is None or not 0 <= place < len(log.scan.tail) or hit.rule.level != "symptom":
        return False
    root = first_root_cause(log.scan.tail)
    if root is None:
        return False
    for line in reversed(log.scan.tail[max(0, place - _ENTRY_LINES) : place]):
        if _ENTRY.match(line):
            break
        if _ENTRY_TIME.match(line):
            first_s, ended_s = time_of(root.time), time_of(line)
            known = first_s is not None and ended_s is not None
            return known and seconds_between(first_s or 0.0, ended_s or 0.0) >= CLEARED_AWAY_AFTER_S
    return False
