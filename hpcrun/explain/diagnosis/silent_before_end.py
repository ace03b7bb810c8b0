"""The cause if a job was silent for most of its time before it was ended: it may have hung."""

from __future__ import annotations

from dataclasses import replace

from hpcrun.explain.diagnosis.facts import Diagnosis, Facts
from hpcrun.job.job_states import CANCELLED
from hpcrun.job.text.units import format_span
from hpcrun.runs.attempt import Attempt, ranks
from hpcrun.runs.silence import SILENT_S

_OF_THE_END = ("time-limit", "deadline", "cancelled")
"""Rules that only say how the job was stopped."""
_LEAST_SILENCE_S = 20.0
"""The same as of ranks that run (docs/explain.md)."""
_MOST_OF_IT = 0.5
"""The share of its time for which a job was silent: a shorter silence may be the usual one between
two lines.
"""
_FIX_OF_SILENCE = (
    "a longer --time does not help a job that hangs: submit it again, and while it is silent, "
    "hpcrun explain --stacks shows where its ranks are"
)


def with_silence(before: Diagnosis, facts: Facts, attempt: Attempt | None) -> Diagnosis:
    """Return a diagnosis that says how long no rank had written before the job was stopped.

    The diagnosis does not change if the time was short.
    """
    cause = before.cause
    if cause is None or cause.rule.name not in _OF_THE_END or attempt is None:
        return before
    silent_s = silence_s(facts, attempt)
    if silent_s is None:
        return before
    text = f"{cause.rule.cause}; no rank had written for {format_span(silent_s)}"
    if CANCELLED in cause.rule.states and silent_s < SILENT_S:
        # a person who ends a job for another reason does not wait for its next line
        return replace(before, cause=replace(cause, rule=replace(cause.rule, cause=text)))
    text += ": it may have hung"
    rule = replace(cause.rule, cause=text, fix=_FIX_OF_SILENCE, next="hpcrun resubmit {run}")
    return replace(before, cause=replace(cause, rule=rule))


def silence_s(facts: Facts, attempt: Attempt) -> float | None:
    """Return how long no rank had written when the job was signalled, in seconds.

    The result is None if that was short, or is unknown.
    """
    end_s = facts.signalled_s
    read = {log.rank for log in facts.logs}
    # of many ranks, a quick explanation reads some
    if any(rank not in read for rank in ranks(attempt.folder)):
        return None
    written = [
        log.written_s
        for log in facts.logs
        if log.rank is not None and any(map(str.strip, log.scan.tail))
    ]
    if end_s is None or not written:
        return None
    silent_s = end_s - max(written)
    if silent_s >= max(_LEAST_SILENCE_S, _MOST_OF_IT * (end_s - attempt.started_s)):
        return silent_s
    return None
