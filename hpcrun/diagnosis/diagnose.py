"""Chooses the cause among its consequences, from the scheduler's state, the ranks' records and their logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcrun.diagnosis.culprit import (
    TERMINATED,
    Culprit,
    RankEnd,
    Speech,
    before_signal,
    failure_order,
    find_culprit,
    first_leaver,
)
from hpcrun.diagnosis.flight.judge import Flight
from hpcrun.diagnosis.launcher import TORN_DOWN, RootCause, failed_task, first_root_cause
from hpcrun.diagnosis.log import Log
from hpcrun.diagnosis.root import AFTER_MOST
from hpcrun.diagnosis.rules import Rule, fill
from hpcrun.diagnosis.scan import Hit
from hpcrun.diagnosis.traceback import Traceback, is_exception_line

UNCAUGHT = 1
"""Python's exit status after an uncaught exception."""
_EXCEPTION_STATUSES = (UNCAUGHT, 134, TERMINATED)
"""An exception that nobody catches ends Python with 1, or with an abort in a C++ thread, or while it is terminated."""
_OF_THE_JOB = frozenset({"FAILED", "OUT_OF_MEMORY", "COMPLETED", "UNKNOWN"})
"""States in which a job ends because of its own program; in the others it was signalled to end."""
_WAITED_FOR = frozenset({"TIMEOUT", "CANCELLED"})
"""How a job ends of which one rank has failed, and the others wait for it."""
_CONNECTION = re.compile(
    r"Dist(?:Network|Store)Error|Connection\w*Error|BrokenPipeError|EOFError|Rendezvous\w*Error"
    r"|[Cc]onnection (?:was )?(?:closed|reset|refused|lost|aborted)|[Bb]roken pipe|[Rr]emote (?:process|worker)"
    r"|[Tt]imed out|[Tt]imeout|[Ff]ailed to recv|[Pp]eer|connectFullMesh"
)
"""Messages after the loss of a peer: torch c10d socket.cpp and TCPStore.cpp, gloo transport/tcp, NCCL."""
_COLLECTIVES = "/torch/distributed/"


# The kinds of causes, the most likely first. A rank that was terminated, or has no record, failed because of others.
_CAUSE, _STATE, _CAUSE_OF_OTHERS, _SYMPTOM, _SYMPTOM_OF_OTHERS, _TOLD = range(6)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a run that has ended.

    Attributes:
        ends: how the ranks ended, those that left word.
        signalled_s: when the script or a rank first heard that the job was to end, in seconds since the epoch; None
            where it was not signalled, or nobody noted it.
        shared: what a log is called that is no rank's.
        flight: what torch's flight recorder kept of the ranks' collectives; None where there are no dumps.
    """

    state: str
    ends: Mapping[int, RankEnd] = field(default_factory=dict)
    logs: Sequence[Log] = ()
    signalled_s: float | None = None
    shared: str = "batch script"
    flight: Flight | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule that explains a run, and the line that matches.

    Attributes:
        log, hit: None if the job's state or a rank's exit status decided.
        rank: the rank that failed; None for the whole job.
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
    """The result of a diagnosis.

    Attributes:
        cause: None if no rule matches.
        first: the rank that ended the run, without consequences; None if there is none or it is unknown.
        consequences: messages of other ranks and the launchers that follow from it.
        left: ``first`` ended with exit status 0 while others continued.
        of_record: the records of the ranks show that ``first`` ended the run.
        leaver: the rank that ended before all others with exit status 0, whether it is ``first`` or only evidence.
    """

    cause: Cause | None
    first: int | None
    consequences: tuple[Cause, ...] = ()
    left: bool = False
    leaver: int | None = None
    of_record: bool = False

    def failed_first(self, end: RankEnd | None) -> bool:
        """Whether a rank's own failure was the first, and it was not only terminated."""
        return end is not None and end.rank == self.first and (end.by_itself or self.of_record) and not self.left


def diagnose(facts: Facts, rules: Sequence[Rule]) -> Diagnosis:
    """Find the rank that ended the run, and the cause of its end.

    If a rank failed because of itself, the messages of other ranks and launchers are evidence. A cause in a rank has
    priority over the state of the job, and the state over a symptom.
    """
    speech = {rank: _speech(rank, facts) for rank, end in facts.ends.items() if _may_speak(end, facts)}
    culprit = _culprit(facts, speech)
    order = _failure_order(facts, speech)
    found = [Cause(hit.rule, log.rank, log, hit) for log in facts.logs for hit in _telling(log, facts)]
    consequences = [item for item in found if item.rule.level == "consequence"]
    symptoms = [item for item in found if item.rule.level != "consequence" and _is_evidence(item, culprit, speech)]
    candidates = [item for item in found if item not in consequences and item not in symptoms]
    places = {rule.name: place for place, rule in enumerate(rules)}
    ranked = [(_key(item, facts, order, places), item) for item in candidates]
    ranked += _without_lines(facts, rules, order, {item.rank for item in consequences}, culprit, speech)
    ranked.sort(key=lambda item: item[0])
    cause = _behind([item for _, item in ranked])
    first = culprit.rank if culprit else None
    if cause and cause.rank is not None and not (culprit and culprit.left):
        first = cause.rank
    if first is None and facts.state in _OF_THE_JOB:
        first = next(iter(order), None)
    if first is None and not facts.ends:
        first = _launchers_rank(facts)
    leaver = first_leaver(_counted(facts)) if culprit and not culprit.left else None
    others = {item.rank: item for item in (*symptoms, *consequences) if item.rank is None or item.rank != first}
    left = culprit is not None and culprit.left
    return Diagnosis(
        cause,
        first,
        tuple(others.values()),
        left=left,
        leaver=first if left else leaver.rank if leaver else None,
        of_record=culprit is not None,
    )


def _launchers_rank(facts: Facts) -> int | None:
    """Return the rank that torchrun or srun saw fail first, of a job whose ranks left no records."""
    if (root := root_of(facts)) is not None:
        return root.rank
    shared = [log for log in facts.logs if log.rank is None]
    return next((rank for log in shared if (rank := failed_task(log.scan.tail)) is not None), None)


def root_of(facts: Facts) -> RootCause | None:
    """Return what torchrun says of the first failure; None where it says nothing of it."""
    found = (first_root_cause(log.scan.tail) for log in facts.logs if log.rank is None)
    return next((root for root in found if root is not None and root.exitcode != TORN_DOWN), None)


def _may_speak(end: RankEnd, facts: Facts) -> bool:
    """Whether a rank's log may have the reason of its end: it may have an error from before a termination."""
    return end.status != TERMINATED or facts.state in _OF_THE_JOB


def _counted(facts: Facts) -> list[RankEnd]:
    """Return the ends that count: if the job was signalled, those before the signal."""
    if facts.state in _OF_THE_JOB:
        return list(facts.ends.values())
    if facts.signalled_s is None:
        return []
    return before_signal(facts.ends.values(), facts.signalled_s)


def _culprit(facts: Facts, speech: Mapping[int, Speech]) -> Culprit | None:
    return find_culprit(_counted(facts), speech)


def _is_evidence(item: Cause, culprit: Culprit | None, speech: Mapping[int, Speech]) -> bool:
    """Whether a line is a consequence of the first rank's failure, and not its cause.

    Messages of Slurm and of the kernel explain the end of any rank; messages of programs in the batch script's log
    (torchrun's agents, set-up commands) and of other ranks do not.
    """
    if culprit is None or item.rank == culprit.rank:
        return False
    if item.rank is not None or culprit.left:
        return culprit.left or not speech.get(culprit.rank, Speech.NOTHING).of_others
    assert item.hit is not None
    return item.rule.level != "cause" or is_exception_line(item.hit.line) or "[c10d]" in item.hit.line


def _without_lines(
    facts: Facts,
    rules: Sequence[Rule],
    order: Mapping[int, int],
    blaming: set[int | None],
    culprit: Culprit | None,
    speech: Mapping[int, Speech],
) -> list[tuple[tuple[int, ...], Cause]]:
    """Return the rules that match the job's state or a rank's exit status, with their sort keys."""
    ranked: list[tuple[tuple[int, ...], Cause]] = [
        ((_STATE,), Cause(rule)) for rule in rules if facts.state in rule.states
    ]
    if not facts.ends and facts.state in _WAITED_FOR and any(raised_in(log) for log in facts.logs):
        ranked = []  # a rank failed, and the others waited for it until then
    own = culprit is not None and not culprit.left and not speech.get(culprit.rank, Speech.NOTHING).of_others
    if own and facts.state not in _OF_THE_JOB:
        ranked = []  # the rank ended before the job was signalled
    for rule in rules:
        for end in facts.ends.values():
            if end.status not in rule.exits or end.rank in blaming:
                continue
            if end.by_itself and (culprit is None or culprit.rank == end.rank):
                ranked.append(((_SYMPTOM, order.get(end.rank, len(order)), 1), Cause(rule, end.rank)))
            elif not end.by_itself and not order and culprit is None:
                ranked.append(((_TOLD,), Cause(rule)))
    return ranked


def _telling(log: Log, facts: Facts) -> list[Hit]:
    """Return the matching lines of a log that concern its end."""
    end = facts.ends.get(log.rank) if log.rank is not None else None
    if end is not None and end.status == 0:
        return []
    return [hit for hit in log.scan.hits if not _was_survived(hit, log, end)]


def _key(item: Cause, facts: Facts, order: Mapping[int, int], places: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sort key, the most likely cause first: kind, rank that failed first, last traceback, line, rule."""
    assert item.log is not None and item.hit is not None
    by_itself = item.rank is None or item.rank in order or _by_itself(item.rank, facts)
    if item.rule.level == "cause":
        tier = _CAUSE if by_itself else _CAUSE_OF_OTHERS
    else:
        tier = _SYMPTOM if by_itself else _SYMPTOM_OF_OTHERS
    rank_place = len(order) if item.rank is None else order.get(item.rank, len(order) + 1)
    line = item.hit.number or 0
    return tier, rank_place, 0, int(not _in_chain(item.hit, item.log)), line, places[item.rule.name]


def _behind(ranked: Sequence[Cause]) -> Cause | None:
    """Return the best cause, or a cause in the same log that has priority over it."""
    if not ranked:
        return None
    best = ranked[0]
    return next((item for item in ranked if item.log is best.log and best.rule.name in item.rule.before), best)


def _failure_order(facts: Facts, speech: Mapping[int, Speech]) -> dict[int, int]:
    """Return rank → its place among the failed ranks; ranks whose logs are about the failures of others come last.

    If no rank has a record, the rank whose log stopped growing first comes first.
    """
    if facts.ends:
        return {rank: place for place, rank in enumerate(failure_order(facts.ends.values(), speech))}
    speech = {log.rank: _speech(log.rank, facts) for log in facts.logs if log.rank is not None}
    silent = sorted(
        (speech[log.rank].of_others, log.written_s, log.rank)
        for log in facts.logs
        if log.rank is not None and not (log.part and speech[log.rank] is Speech.NOTHING)
    )
    return {rank: place for place, rank in enumerate(dict.fromkeys(rank for _, _, rank in silent))}


def _speech(rank: int, facts: Facts) -> Speech:
    return speech_of([log for log in facts.logs if log.rank == rank], facts.ends.get(rank))


def speech_of(logs: Sequence[Log], end: RankEnd | None) -> Speech:
    """Return the subject of the end of a rank's logs: of its uncaught exception, else of the lines that match rules.

    Args:
        end: the rank's record; None if there is none.
    """
    hits = [hit for log in logs for hit in log.scan.hits if not _was_survived(hit, log, end)]
    levels = {hit.rule.level for hit in hits}
    waited_or_gone = Speech.WAITED if "wait" in levels else Speech.GONE
    raised = uncaught(logs, end)
    if "cause" in levels:
        return Speech.OWN
    if raised is not None and raised.stated and levels and levels <= {"wait", "consequence"}:
        return waited_or_gone
    if raised is not None:
        of_line = {hit.rule.level for hit in hits if hit.line.strip() == raised.exception}
        if of_line & {"wait", "consequence"}:
            return waited_or_gone
        if _CONNECTION.search(raised.exception):
            deepest = raised.frames[-1].file if raised.frames else ""
            return waited_or_gone if _COLLECTIVES in deepest else Speech.NETWORK
        return Speech.OWN
    if levels and levels <= {"wait", "consequence"}:
        return waited_or_gone
    return Speech.OWN if levels else Speech.NOTHING


def uncaught(logs: Sequence[Log], end: RankEnd | None) -> Traceback | None:
    """Return the exception that ended a rank, from its logs; None if there is none, or the program continued.

    Args:
        end: the rank's record; None if there is none.
    """
    found = [log.traceback for log in logs if log.traceback and log.traceback.followed_by <= AFTER_MOST]
    by_exception = end is None or end.status in _EXCEPTION_STATUSES
    return next((one for one in found if by_exception or one.stated), None)


def raised_in(log: Log) -> Traceback | None:
    """Return the uncaught exception of a log whose rank left no record."""
    return None if log.traceback is None or log.traceback.stated else uncaught([log], None)


def _by_itself(rank: int, facts: Facts) -> bool:
    """Whether a rank failed by itself, as far as known: a rank without a record was killed with the others."""
    end = facts.ends.get(rank)
    return end.by_itself if end is not None else not facts.ends and facts.state in ("FAILED", "UNKNOWN")


def _in_chain(hit: Hit, log: Log) -> bool:
    """Whether a line is in the last traceback, or in a traceback to which it is chained."""
    place = _place(hit, log)
    return place is not None and log.traceback is not None and log.traceback.begins <= place <= log.traceback.last


def _place(hit: Hit, log: Log) -> int | None:
    first = log.scan.first_tail_line
    return None if first is None or hit.number is None else hit.number - first


def _was_survived(hit: Hit, log: Log, end: RankEnd | None) -> bool:
    """Whether the program went on after a line: an exception that it caught, and said so."""
    if hit.rule.before or not is_exception_line(hit.line):  # what it goes before came of it
        return False
    if end is not None and log.rank is not None and end.status not in _EXCEPTION_STATUSES:
        return True
    last, place = log.traceback, _place(hit, log)
    if place is None:
        return False
    if last is None or place > last.last:
        return len(log.scan.tail) - place > AFTER_MOST
    return place < last.begins or last.followed_by > AFTER_MOST
