"""Choosing the cause among its consequences, from what the scheduler, the ranks and their logs say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcrun.diagnosis.rules import Rule, fill
from hpcrun.diagnosis.scan import Hit, LogScan
from hpcrun.diagnosis.traceback import Traceback, is_exception_line, last_traceback

TOLD_TO_END = 143
UNCAUGHT = 1
"""Python's exit status after an exception that nobody caught."""
_AFTER_MOST = 60
"""Lines that may follow an uncaught exception: its own message, and what libraries say while they are torn down."""


# Of what kind a cause is, the likeliest first. A rank that was told to end, or left no word, failed because of others.
_CAUSE, _STATE, _CAUSE_OF_OTHERS, _SYMPTOM, _SYMPTOM_OF_OTHERS, _TOLD = range(6)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank ended: exit status (128 + n for signal n), on which node, when (seconds since the epoch)."""

    rank: int
    node: str
    status: int
    ended_s: float

    @property
    def by_itself(self) -> bool:
        """It failed, and was not told to end."""
        return self.status not in (0, TOLD_TO_END)


@dataclass(frozen=True, slots=True)
class Log:
    """A log and what was found in it.

    Attributes:
        name: its path in the run's folder.
        rank: None for the batch script's.
        written_s: when it was last written to, in seconds since the epoch.
    """

    name: str
    rank: int | None
    scan: LogScan
    written_s: float = 0.0
    traceback: Traceback | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a run that is over.

    Attributes:
        ends: how the ranks ended, those that left word.
    """

    state: str
    ends: Mapping[int, Ended] = field(default_factory=dict)
    logs: Sequence[Log] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule that explains a run, and the line that it knows.

    Attributes:
        log, hit: None where the job's state or a rank's exit status decided.
        rank: whose failure it is; None where it is the whole job's.
    """

    rule: Rule
    rank: int | None = None
    log: Log | None = None
    hit: Hit | None = None

    @property
    def text(self) -> str:
        """What happened."""
        return fill(self.rule.cause, self.hit.values if self.hit else {})

    @property
    def fix(self) -> str:
        """What to do."""
        return fill(self.rule.fix, self.hit.values if self.hit else {})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found.

    Attributes:
        cause: None where no rule knows it.
        first: the rank that failed first by itself, consequences left out; None where none did or it cannot be told.
        consequences: what other ranks said because of it.
    """

    cause: Cause | None
    first: int | None
    consequences: tuple[Cause, ...] = ()


def examine(name: str, rank: int | None, scan: LogScan, written_s: float = 0.0) -> Log:
    """Return a log with its last traceback."""
    return Log(name, rank, scan, written_s, last_traceback(scan.tail))


def diagnose(facts: Facts, rules: Sequence[Rule]) -> Diagnosis:
    """Find the cause: one that a rank failed by before a state of the job, that before what is a symptom mostly."""
    order = _failure_order(facts)
    found = [Cause(hit.rule, log.rank, log, hit) for log in facts.logs for hit in _telling(log, facts)]
    consequences = [item for item in found if item.rule.level == "consequence"]
    blaming = {item.rank for item in consequences}
    places = {rule.name: place for place, rule in enumerate(rules)}
    ranked = [(_key(item, facts, order, places), item) for item in found if item.rule.level != "consequence"]
    ranked += [((_STATE,), Cause(rule)) for rule in rules if facts.state in rule.states]
    for rule in rules:
        for end in facts.ends.values():
            if end.status not in rule.exits or end.rank in blaming:
                continue
            if end.by_itself:
                ranked.append(((_SYMPTOM, order[end.rank], 1), Cause(rule, end.rank)))
            elif not order:
                ranked.append(((_TOLD,), Cause(rule)))
    ranked.sort(key=lambda item: item[0])
    cause = _behind([item for _, item in ranked])
    first = cause.rank if cause and cause.rank is not None else next(iter(order), None)
    others = {item.rank: item for item in consequences if cause is None or item.rank != cause.rank}
    return Diagnosis(cause, first, tuple(others.values()))


def _telling(log: Log, facts: Facts) -> list[Hit]:
    """Return the lines of a log that tell of its end."""
    end = facts.ends.get(log.rank) if log.rank is not None else None
    if end is not None and end.status == 0:
        return []
    return [hit for hit in log.scan.hits if not _was_survived(hit, log, end)]


def _key(item: Cause, facts: Facts, order: Mapping[int, int], places: Mapping[str, int]) -> tuple[int, ...]:
    """Return what sorts the likeliest cause first: kind, rank that failed first, last traceback, line, rule."""
    assert item.log is not None and item.hit is not None
    by_itself = item.rank is None or _by_itself(item.rank, facts)
    if item.rule.level == "cause":
        tier = _CAUSE if by_itself else _CAUSE_OF_OTHERS
    else:
        tier = _SYMPTOM if by_itself else _SYMPTOM_OF_OTHERS
    rank_place = len(order) if item.rank is None else order.get(item.rank, len(order) + 1)
    line = item.hit.number or 0
    return tier, rank_place, 0, int(not _in_chain(item.hit, item.log)), line, places[item.rule.name]


def _behind(ranked: Sequence[Cause]) -> Cause | None:
    """Return the best, or one in the same log that goes before it."""
    if not ranked:
        return None
    best = ranked[0]
    return next((item for item in ranked if item.log is best.log and best.rule.name in item.rule.before), best)


def _failure_order(facts: Facts) -> dict[int, int]:
    """Return rank → its place among those that failed; one whose log speaks of others' failures comes behind them.

    Where no rank left word, the one whose log fell silent first comes first.
    """
    blamed = {log.rank for log in facts.logs if log.rank is not None and _blames_others(log)}
    failed = [end for end in facts.ends.values() if end.by_itself]
    failed.sort(key=lambda end: (end.rank in blamed, end.ended_s))
    if not facts.ends:
        silent = sorted((log.rank in blamed, log.written_s, log.rank) for log in facts.logs if log.rank is not None)
        return {rank: place for place, rank in enumerate(dict.fromkeys(rank for _, _, rank in silent))}
    return {end.rank: place for place, end in enumerate(failed)}


def _blames_others(log: Log) -> bool:
    """Whether the end of a log speaks of another rank's failure, and of none of its own."""
    hits = [hit for hit in log.scan.hits if not _was_survived(hit, log, None)]
    return bool(hits) and all(hit.rule.level in ("wait", "consequence") for hit in hits)


def _by_itself(rank: int, facts: Facts) -> bool:
    """Whether a rank failed by itself, as far as is known: one that left no word was killed with the others."""
    end = facts.ends.get(rank)
    return end.by_itself if end is not None else not facts.ends and facts.state in ("FAILED", "UNKNOWN")


def _in_chain(hit: Hit, log: Log) -> bool:
    """Whether a line stands in the last traceback, or in one that it was chained to."""
    place = _place(hit, log)
    return place is not None and log.traceback is not None and log.traceback.begins <= place <= log.traceback.ends


def _place(hit: Hit, log: Log) -> int | None:
    first = log.scan.first_tail_line
    return None if first is None or hit.number is None else hit.number - first


def _was_survived(hit: Hit, log: Log, end: Ended | None) -> bool:
    """Whether the program went on after a line: an exception that it caught, and said so."""
    if not is_exception_line(hit.line):
        return False
    if end is not None and log.rank is not None and end.status not in (UNCAUGHT, 134, TOLD_TO_END):
        return True  # an exception that nobody catches ends Python with 1, or with an abort in a C++ thread
    last, place = log.traceback, _place(hit, log)
    if place is None:
        return False
    if last is None or place > last.ends:
        return len(log.scan.tail) - place > _AFTER_MOST
    return place < last.begins or last.followed_by > _AFTER_MOST
