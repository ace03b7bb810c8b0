"""What each rank wrote last, where no line says why a job ended: its last step, and its last words.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcrun.explain.diagnosis.facts import Diagnosis, Facts
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.progress import is_aside, steps
from hpcrun.job.text.units import cut_at_word, format_span, ranks_text
from hpcrun.runs.log_times import second_of_year, seconds_between

_LONGEST = 160
_MOST = 6
_SHOWN_S = 1.0
"""A shorter age is not shown."""


@dataclass(frozen=True, slots=True)
class LastLine:
    """A line that a rank wrote near its end.

    Attributes:
        age_s: the time between it and the end of the job, in seconds; negative after the signal;
            None if it is unknown.
    """

    kind: str
    text: str
    age_s: float | None

    def __str__(self) -> str:
        if self.age_s is None or abs(self.age_s) < _SHOWN_S:
            when = ""
        elif self.age_s < 0:
            when = " after the signal"
        else:
            when = f" {format_span(self.age_s)} before the end"
        return f"{self.kind}{when}: {self.text}"


def last_lines_of(facts: Facts, diagnosis: Diagnosis) -> list[str]:
    """Return the last step and the last other line of each rank; alike ones of several together."""
    if not _is_unexplained(diagnosis):
        return []
    logs = [log for log in facts.logs if log.rank is not None and not log.part]
    if diagnosis.culprit.left:
        logs = [log for log in logs if log.rank == diagnosis.first]
    written_s = [log.written_s for log in logs]
    end_s = facts.signalled_s or max(written_s, default=0.0)
    ranks_of: dict[str, list[int]] = {}
    of_ranks = {log.rank for log in logs if log.rank is not None}
    for rank in sorted(of_ranks):
        mine = [log for log in logs if log.rank == rank]
        for line in _of_rank(mine, end_s):
            ranks_of.setdefault(str(line), []).append(rank)
    shown = []
    for text, ranks in ranks_of.items():
        name = facts.name(ranks[0]) if len(ranks) == 1 else ranks_text(ranks, facts.role)
        shown.append(f"{name}: {text}")
    return shown[:_MOST]


def _is_unexplained(diagnosis: Diagnosis) -> bool:
    """Whether no line says why the job ended, or only how it was stopped."""
    if diagnosis.culprit.left or diagnosis.culprit.missing:
        return True
    return diagnosis.cause is not None and bool(diagnosis.cause.rule.states)


def _of_rank(logs: Sequence[Log], end_s: float) -> Iterator[LastLine]:
    """Yield the last step of a rank, and the last other line of each of its streams."""
    last = max(logs, key=lambda log: log.written_s)
    for log in sorted(logs, key=lambda log: log is not last):
        tail = log.scan.tail
        made = list(steps(tail))
        if made:
            yield _line("last step", log, made[-1].place, end_s)
        step_places = {step.place for step in made}
        for place in range(len(tail) - 1, -1, -1):
            is_own = tail[place].strip() and not is_aside(tail[place])
            if is_own and place not in step_places:
                if not made or place > made[-1].place:
                    yield _line("last line", log, place, end_s)
                break


def _line(kind: str, log: Log, place: int, end_s: float) -> LastLine:
    text = cut_at_word(log.scan.tail[place].strip(), _LONGEST)
    return LastLine(kind, text, _age_s(log, place, end_s))


def _age_s(log: Log, place: int, end_s: float) -> float | None:
    """Return how long before the end a line was written; None if that is unknown.

    The last line is as old as its file. The time in front of a line tells how much older it is.
    """
    tail = log.scan.tail
    last = max(other for other, line in enumerate(tail) if line.strip())
    age_s = end_s - log.written_s
    if place == last:
        return age_s
    written_s = second_of_year(log.scan.stamped(place))
    for other in range(last, place, -1):
        later_s = second_of_year(log.scan.stamped(other))
        if later_s is not None:
            return None if written_s is None else age_s + seconds_between(written_s, later_s)
    return None
