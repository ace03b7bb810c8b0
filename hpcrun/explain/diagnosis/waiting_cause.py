"""The cause if ranks waited for each other and the logs show only a timeout. Pure.

Sources: the dumps of torch's flight recorder; without dumps, the tracebacks of the ranks that timed out.
"""

from __future__ import annotations

from dataclasses import replace

from hpcrun.explain.diagnosis.culprit import Speech
from hpcrun.explain.diagnosis.facts import Cause, Diagnosis, Facts
from hpcrun.explain.diagnosis.flight.meetings import Trouble
from hpcrun.explain.diagnosis.flight.sentences import FIX_OF_CIRCLE, FIXES, flight_sentence
from hpcrun.explain.diagnosis.rank_positions import Group, RankStack, grouped
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.speech import speech_of
from hpcrun.job.state import EXIT_ABORTED
from hpcrun.job.units import ranks_text

_NAMES = {
    Trouble.DIFFERENT: "collective-mismatch",
    Trouble.SIZES: "collective-mismatch",
    Trouble.LATE: "collective-late",
    Trouble.MISSING: "collective-missing",
    Trouble.NO_DUMP: "collective-missing",
}
_CIRCLE = "collective-order"
_BRACES = str.maketrans("{}", "()")


def with_flight(found: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with what the dumps show as its cause, if no rank failed because of itself."""
    flight = facts.flight
    if flight is None or not flight.decided or _failed_by_itself(found, facts):
        return found
    nodes = {rank: end.node for rank, end in facts.ends.items()}
    finding = flight.meetings[0].finding
    name, fix = (_CIRCLE, FIX_OF_CIRCLE) if flight.in_circle else (_NAMES[finding], FIXES[finding])
    text = flight_sentence(flight, nodes).translate(_BRACES)  # they are the places of a rule's values
    rule = Rule(name, cause=text, fix=fix, source="torch's flight recorder (FlightRecorder.hpp)")
    before = (found.cause,) if found.cause and found.cause.hit else ()
    return replace(
        found,
        cause=Cause(rule, flight.culprit),
        first=flight.culprit,
        consequences=(*before, *found.consequences),
        by_places=True,
    )


def with_tracebacks(found: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with the different collectives in which the ranks timed out as its cause, if it is no better.

    The first rank that times out is no more to blame than the others: all of them wait, each in its own call.
    """
    cause = found.cause
    if facts.flight is not None and facts.flight.meetings:
        return found
    if found.by_places or found.missing or found.caught or cause is None or cause.rule.level != "wait":
        return found
    stacks = [
        RankStack(log.rank, facts.ends[log.rank].node if log.rank in facts.ends else "", log.traceback.frames)
        for log in facts.logs
        if log.rank is not None and log.traceback is not None
    ]
    groups = grouped(stacks)
    calls = {group.position.call for group in groups}
    if len(calls) < 2 or not all(group.position.waits for group in groups):
        return found
    few = [group for group in groups if len(group.ranks) == 1]
    odd = few[0].ranks[0].rank if len(few) == 1 and len(groups) == 2 else None
    text = f"the ranks timed out in different collectives: {'; '.join(map(_calls_text, groups))}"
    rule = Rule(
        "collective-mismatch",
        cause=text.translate(_BRACES),
        fix=FIXES[Trouble.DIFFERENT],
        source=cause.rule.source,
    )
    return replace(found, cause=replace(cause, rule=rule), first=odd, by_places=True)


def _calls_text(group: Group) -> str:
    """Return ``ranks 0, 2 in all_reduce (train.py:95)``."""
    position = group.position
    at = f" ({position.user.short})" if position.user else ""
    return f"{ranks_text([each.rank for each in group.ranks])} in {position.call}{at}"


def _failed_by_itself(found: Diagnosis, facts: Facts) -> bool:
    """Whether the run ended because of more than ranks that waited for each other."""
    assert facts.flight is not None
    if found.left or not (found.cause is None or found.cause.rule.level == "wait" or _was_aborted(found.cause, facts)):
        return True
    end = facts.ends.get(found.first) if found.first is not None else None
    if end is not None and not end.by_itself:
        return False
    if end is None:
        ranks = {log.rank for log in facts.logs if log.rank is not None}
        return any(speech_of([log for log in facts.logs if log.rank == rank], None) is Speech.OWN for rank in ranks)
    speech = speech_of([log for log in facts.logs if log.rank == end.rank], end)
    # a rank that crashed leaves no word either; but the watchdog aborts those that wait, and a launcher the missing one
    silent = speech is Speech.NOTHING and (end.signalled or end.status == EXIT_ABORTED)
    return not (silent or speech.of_others)


def _was_aborted(cause: Cause, facts: Facts) -> bool:
    """Whether only the exit status of a rank is known, and torch's watchdog may have aborted it after a timeout."""
    end = facts.ends.get(cause.rank) if cause.rank is not None else None
    return cause.hit is None and end is not None and end.status == EXIT_ABORTED
