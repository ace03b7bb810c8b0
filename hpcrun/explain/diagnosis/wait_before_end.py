"""What a job waited for before it was ended: a complaint that it repeated, or silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcrun.explain.diagnosis.facts import Diagnosis, Facts
from hpcrun.explain.diagnosis.progress import last_line_is_step, stall_in
from hpcrun.job.job_states import CANCELLED
from hpcrun.job.text.units import cut_at_word, format_span
from hpcrun.runs.attempt import Attempt, ranks
from hpcrun.runs.log_times import second_of_year
from hpcrun.runs.silence import SILENT_S

_OF_THE_END = ("time-limit", "deadline", "cancelled")
"""Rules that only say how the job was stopped."""
_LEAST_SILENCE_S = 20.0
"""The same as of ranks that run (docs/explain.md)."""
_MOST_OF_IT = 0.5
"""The share of its time for which a job was silent: a shorter silence may be the usual one between
two lines.
"""
_LONGEST = 160
_FIX_OF_SILENCE = (
    "a longer --time does not help a job that hangs: submit it again, and while it is silent, "
    "hpcrun explain --stacks shows where its ranks are"
)
FIX_OF_STALL = "a longer --time does not help: give the job what it waits for"


def with_wait(before: Diagnosis, facts: Facts, attempt: Attempt | None) -> Diagnosis:
    """Return a diagnosis that says what the job waited for before it was stopped.

    The diagnosis does not change if the job made progress, or was silent for a short time only.
    """
    cause = before.cause
    if cause is None or cause.rule.name not in _OF_THE_END:
        return before
    stall = stall_of(facts)
    if stall:
        rule = replace(cause.rule, fix=FIX_OF_STALL, next="")
        return replace(before, cause=replace(cause, rule=rule, more=f"; {stall}"))
    silent_s = silence_s(facts, attempt) if attempt else None
    if silent_s is None:
        return before
    more = f"; no rank had written for {format_span(silent_s)}"
    if CANCELLED in cause.rule.states and silent_s < SILENT_S:
        # a person who ends a job for another reason does not wait for its next line
        return replace(before, cause=replace(cause, more=more))
    line = _last_line(facts)
    if line:
        more += f", since {line}"
    rule = replace(cause.rule, fix=_FIX_OF_SILENCE, next="hpcrun resubmit {run}")
    return replace(before, cause=replace(cause, rule=rule, more=more))


@dataclass(frozen=True, slots=True)
class WrittenLines:
    """The last lines of a log, and when it was last written to, in seconds."""

    lines: Sequence[str]
    written_s: float


def stall_of(facts: Facts) -> str:
    """Return what a job repeated before its end without a step between; empty if nothing."""
    logs = []
    for log in facts.logs:
        scan = log.scan
        lines = [scan.stamped(place) for place in range(log.history, len(scan.tail))]
        logs.append(WrittenLines(lines, 0.0 if log.part else log.written_s))
    return stall_sentence(logs)


def stall_sentence(logs: Sequence[WrittenLines]) -> str:
    """Return ``it waited since 14:03:10, and wrote 20 times: still waiting for a lock``.

    Empty if no log repeats a complaint at its end, or another log goes on with steps.
    """
    last = None
    stall = None
    for log in logs:
        of_log = stall_in(log.lines)
        if of_log and (last is None or log.written_s > last.written_s):
            last = log
            stall = of_log
    if last is None or stall is None:
        return ""
    for log in logs:
        is_recent = log.written_s > last.written_s - _LEAST_SILENCE_S
        if is_recent and last_line_is_step(log.lines):
            return ""
    line = last.lines[stall.place].strip()
    second = second_of_year(line)
    since = "" if second is None else f" since {_clock(int(second))}"
    return f"it waited{since}, and wrote {stall.times} times: {cut_at_word(line, _LONGEST)}"


def _clock(second: int) -> str:
    """Return the time of day of a second of the year, ``14:03:10``."""
    minutes, seconds = divmod(second % 86400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def _last_line(facts: Facts) -> str:
    """Return the line that a rank wrote last; empty if none wrote any."""
    logs = [log for log in facts.logs if log.rank is not None and any(log.scan.tail)]
    if not logs:
        return ""
    last = max(logs, key=lambda log: log.written_s)
    lines = [line.strip() for line in last.scan.tail if line.strip()]
    return f"rank {last.rank} wrote: {cut_at_word(lines[-1], _LONGEST)}" if lines else ""


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
