"""The flight recorder's place among the causes: it decides what only a timeout would explain otherwise. Pure."""

from __future__ import annotations

from dataclasses import replace

from hpcrun.diagnosis.culprit import Speech
from hpcrun.diagnosis.diagnose import Cause, Diagnosis, Facts
from hpcrun.diagnosis.flight.judge import Trouble
from hpcrun.diagnosis.flight.sentences import FIX_OF_CIRCLE, FIXES, flight_sentence
from hpcrun.diagnosis.rules import Rule
from hpcrun.diagnosis.speech import speech_of

_ABORTED = 134
"""torch's watchdog aborts a rank whose collective has timed out."""
_NAMES = {
    Trouble.DIFFERENT: "collective-mismatch",
    Trouble.SIZES: "collective-mismatch",
    Trouble.LATE: "collective-late",
    Trouble.MISSING: "collective-missing",
    Trouble.NO_DUMP: "collective-missing",
}
_CIRCLE = "collective-order"
_SOURCE = "torch's flight recorder (FlightRecorder.hpp)"
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
    rule = Rule(name, cause=text, fix=fix, source=_SOURCE)
    before = (found.cause,) if found.cause and found.cause.hit else ()
    return replace(
        found, cause=Cause(rule, flight.culprit), first=flight.culprit, consequences=(*before, *found.consequences)
    )


def by_flight(found: Diagnosis) -> bool:
    """Whether the flight recorder has decided."""
    return found.cause is not None and found.cause.rule.source == _SOURCE


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
    silent = speech is Speech.NOTHING and (end.told or end.status == _ABORTED)
    return not (silent or speech.of_others)


def _was_aborted(cause: Cause, facts: Facts) -> bool:
    end = facts.ends.get(cause.rank) if cause.rank is not None else None
    return cause.hit is None and end is not None and end.status == _ABORTED
