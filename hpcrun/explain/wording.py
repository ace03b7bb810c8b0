"""A diagnosis in words: one sentence, a few lines of evidence, the next command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.culprit import root_of
from hpcrun.explain.diagnosis.facts import Cause, Diagnosis, Facts
from hpcrun.explain.diagnosis.flight_meetings import Flight
from hpcrun.explain.diagnosis.last_words import uncaught
from hpcrun.explain.diagnosis.launcher_lines import first_task, how_it_ended
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.root_exception import complains
from hpcrun.explain.diagnosis.rules import fill
from hpcrun.explain.diagnosis.scan import last_lines
from hpcrun.explain.diagnosis.traceback import Frame, Traceback
from hpcrun.explain.diagnosis.waiting_cause import flight_sentence, stand_lines
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.units import count, cut_at_word, rank_text, ranks_text
from hpcrun.runs.attempt import Attempt

_LONGEST = 300
_LONGEST_MESSAGE = 120
_LAST_LINES = 6
_COMPLAINT_LINES = 2
"""Lines at the end of a log of which one may say why its program returned an exit status."""
_MOST_MESSAGE_LINES = 6
_MOST_CONSEQUENCES = 3
_MOST_STANDS = 6
_NOT_A_REASON = ("NonZeroExitCode", "None", "NodeDown", "TimeLimit")
_NEXT_RECORD = re.compile(
    r"Traceback|\[(?:\d|rank|[A-Z]\d{3})|\d+[-/:.]\d|[A-Z]\d{4} |\S+:(?:\d+:)? "
    r"|\W*(?:INFO|WARN|ERROR|DEBUG|Killing|Killed)|[-=*#+]{4}|.*%\|| *\d+%"
)
"""Lines that begin something else than more of an exception's message: a time, a name with a colon,
a rule, a bar.
"""
_SOURCE_PLACE = re.compile(r"^\[[^\]]*:\d+\] ")
"""The place in gloo's own source that its messages begin with."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Lines that support an answer.

    Attributes:
        who: their source: ``rank 5 on node7``, ``batch script``, ``Slurm``.
        where: file below the run's folder and line, ``elements/0/attempts/0/rank-5.err:12``; None
            if it is not a file.
        note: a summary of the lines; empty if they need none.
    """

    who: str
    where: str | None
    lines: tuple[str, ...]
    note: str = ""

    def __post_init__(self) -> None:
        """Hide secrets, also one of several lines."""
        if self.lines:
            lines: Sequence[str] = HIDER.hide("\n".join(self.lines)).split("\n")
        else:
            lines = ()
        object.__setattr__(self, "lines", tuple(lines))
        object.__setattr__(self, "note", HIDER.hide(self.note))


def answer(item: RunStatus, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None) -> str:
    """Return what happened in one sentence.

    The sentence has the rank that ended the run, its last exception, and where it was raised.
    """
    status, cause = item.status, diagnosis.cause
    message = attempt.exit.message if attempt and attempt.exit else ""
    # the end of no one rank
    if cause is not None and ((cause.rule.states and not facts.ends) or diagnosis.by_places):
        if facts.role and diagnosis.by_places:
            return f"{facts.role.name}: {cause.text}"
        return cause.text
    if diagnosis.first is not None and diagnosis.culprit.left:
        text = _left(diagnosis.first, facts)
        return f"{text}; {cause.text}" if cause else text
    if diagnosis.first is not None:
        return f"{_who(diagnosis.first, facts, diagnosis)}{_how(diagnosis.first, diagnosis, facts)}"
    if diagnosis.culprit.alike:
        ranks = ranks_text(diagnosis.culprit.alike, facts.role)
        return f"{ranks}{_how(diagnosis.culprit.alike[0], diagnosis, facts)}"
    if cause is not None or message:
        return cause.text if cause else message
    raised = _raised_anywhere(facts, diagnosis)
    if not item.run.scheduler:
        return raised or "no failure is recognized in this log"
    text = f"the job ended as {status.state}"
    if raised:
        return f"{text}: {raised}"
    if status.exit_status:
        text += f" with exit status {status.exit_status}"
    if status.reason and status.reason not in _NOT_A_REASON:
        text += f" ({status.reason})"
    return text


def _raised_anywhere(facts: Facts, diagnosis: Diagnosis) -> str:
    """Return an exception of a job of which no rank is known to have failed; empty if none."""
    log = _log_of(None, facts)
    if not (log and log.traceback):
        log = _first_ranks_log(diagnosis, facts)
    if log and log.traceback:
        return _exception_at(log.traceback, whole=True)
    if diagnosis.consequences and not facts.ends:
        return _lost(diagnosis.consequences[0])
    return ""


def _lost(consequence: Cause) -> str:
    """Return the message of the first of the ranks that have all lost another one."""
    if consequence.log is not None:
        raised = consequence.log.traceback
    else:
        raised = None
    if consequence.hit is not None:
        line = consequence.hit.line.strip()
    else:
        line = ""
    return (
        f"{consequence.text}: "
        f"{_exception_at(raised, whole=True) if raised else cut_at_word(line, _LONGEST_MESSAGE)}"
    )


def _how(rank: int, diagnosis: Diagnosis, facts: Facts) -> str:
    """Return how the rank that failed first ended: ``: KeyError: 'lr' at train.py:9``."""
    cause, raised = diagnosis.cause, _raised(rank, facts)
    if cause is not None and diagnosis.caught:
        if cause.rule.level == "caught":
            survived = ""
        else:
            survived = ", which the program caught"
        return f": {cause.text}{survived}; other ranks then waited for it until their timeout"
    if cause is not None and diagnosis.culprit.missing:
        return f" did not join the other ranks: {cause.text}"
    if cause is not None:
        text = f": {cause.text}" + (
            f" ({_exception_at(raised, whole=cause.rule.level != 'cause')})" if raised else ""
        )
        if cause.rule.level == "wait":
            silent = _without_timeout(facts)
        else:
            silent = ""
        return f"{text}; {silent} reported no timeout" if silent else text
    if raised is not None:
        return f": {_exception_at(raised, whole=True)}"
    end = facts.ends.get(rank)
    root = root_of(facts)
    if end is not None:
        complaint = cut_at_word(_last_complaint(rank, facts), _LONGEST_MESSAGE)
        if end.by_itself:
            return f" with exit status {end.status}" + (f": {complaint}" if complaint else "")
        return ""
    if root is not None:
        return f" with exit status {root.exitcode}"
    ends = (how_it_ended(log.scan.tail) for log in facts.logs)
    return next((f" failed first{how}" for how in ends if how), ": its lines show no failure")


def _last_complaint(rank: int, facts: Facts) -> str:
    """Return what a rank complained of in one of its last lines; empty where it did not."""
    ends = (last_lines(log.scan.tail, _COMPLAINT_LINES) for log in facts.logs_of(rank))
    return next((line.strip() for lines in ends for line in reversed(lines) if complains(line)), "")


def _without_timeout(facts: Facts) -> str:
    """Return the few ranks that were terminated silently while others timed out.

    One of these ranks may have been missed.
    """
    waited = {
        log.rank for log in facts.logs if any(hit.rule.level == "wait" for hit in log.scan.hits)
    }
    silent_logs = {log.rank for log in facts.logs} - waited
    silent = [
        end.rank
        for end in facts.ends.values()
        if not end.by_itself and end.status and end.rank in silent_logs
    ]
    if not silent or len(silent) > max(1, len(waited) - 1):
        return ""
    if silent[1:]:
        return ranks_text(silent, facts.role)
    return facts.name(silent[0])


def _left(rank: int, facts: Facts) -> str:
    """Return which rank ended with exit status 0 before the others.

    The text also says how the first of the others failed.
    """
    number = sum(end.status != 0 for end in facts.ends.values())
    text = (
        f"{facts.name(rank)} ended first, with exit status 0, while "
        f"{count(number, 'other rank')} continued"
    )
    failed = [end for end in facts.ends.values() if end.by_itself]
    if not failed:
        return text
    then = min(failed, key=lambda end: (end.ended_s, end.rank))
    raised = _raised(then.rank, facts)
    if raised:
        how = f": {_exception_at(raised, whole=True)}"
    else:
        how = f" with exit status {then.status}"
    return f"{text}; {facts.name(then.rank)} then failed{how}"


def _raised(rank: int, facts: Facts) -> Traceback | None:
    """Return the exception that ended a rank.

    Where ranks share a log, this is the exception of the lines without a rank.
    """
    logs = facts.logs_of(rank) or ([] if facts.ends else facts.logs_of(None))
    return uncaught(logs, facts.ends.get(rank))


def _exception_at(raised: Traceback, *, whole: bool) -> str:
    """Return an exception, where it was raised, and what it was raised from.

    An example is ``ValueError: no split at read.py:6``.

    Args:
        raised: the exception.
        whole: with its message; else its name alone.
    """
    text = _exception(raised, whole=whole)
    if raised.origin is not None:
        return f"{text}, raised from {_exception(raised.origin, whole=True)}"
    if raised.aftermath is None:
        return text
    return f"{text}; then {_exception(raised.aftermath, whole=True)}"


def _exception(raised: Traceback, *, whole: bool) -> str:
    """Return an exception and the last line of the user's own code below which it was raised."""
    if raised.stated:
        text = cut_at_word(raised.exception, _LONGEST_MESSAGE)
    else:
        name, _, message = raised.exception.partition(":")
        name = name.rpartition(".")[2]
        message = cut_at_word(_SOURCE_PLACE.sub("", message.strip()), _LONGEST_MESSAGE)
        text = f"{name}: {message}" if whole and message else name
    if raised.user_frame:
        return f"{text} at {raised.user_frame.short}"
    return text


def _who(rank: int, facts: Facts, diagnosis: Diagnosis) -> str:
    """Return ``rank 5 on node7 failed first``, as much of it as is known."""
    end = facts.ends.get(rank)
    root = root_of(facts)
    if root is not None and root.rank == rank and not facts.ends:
        return f"{rank_text(rank, root.host, facts.role)} failed first"
    if diagnosis.failed_first(end):
        return f"{facts.name(rank)} failed first"
    return facts.name(rank)


def evidence_of(
    item: RunStatus, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None
) -> Iterator[Evidence]:
    """Yield the evidence for the answer: about fifteen lines at most."""
    cause = diagnosis.cause
    if diagnosis.leaver is not None:
        yield _of_leaver(diagnosis.leaver, facts, attempt)
    if cause is not None and cause.hit is not None and cause.log is not None:
        line, raised = cause.hit.line.strip(), cause.log.traceback
        of_exception = raised is not None and line == raised.exception
        if of_exception:
            above: tuple[str, ...] = ()
        else:
            above = (_around(line, cause.rule.contains),)
        lines = tuple(dict.fromkeys((*above, *_exception_lines(cause.log))))
        yield Evidence(_name(cause.log, facts), _at(cause.log, cause.hit.number), lines)
    if facts.flight is not None and facts.flight.meetings:
        yield _of_flight(facts.flight, facts, diagnosis, attempt)
    log = _first_ranks_log(diagnosis, facts)
    shown = None
    if log is not None and (
        cause is None
        or cause.hit is None
        or (cause.rank is None and diagnosis.first is not None and log is not cause.log)
    ):
        shown = _of_end(log, facts)
        yield shown
    yield from (
        each for each in _of_launchers(facts) if not shown or each.lines[0] not in shown.lines
    )
    if (
        attempt
        and attempt.exit
        and attempt.exit.message
        and attempt.exit.message not in (item.status.reason or "")
    ):
        yield Evidence("batch script", None, (_short(attempt.exit.message),))
    yield from islice(_of_others(facts, diagnosis), _MOST_CONSEQUENCES)
    if item.run.scheduler:
        yield of_scheduler(item)


def of_scheduler(item: RunStatus) -> Evidence:
    """Return the state that the scheduler, or the run's records, give the run."""
    status = item.status
    if status.exit_status:
        code = f", exit status {status.exit_status}"
    else:
        code = ""
    signal = f", signal {status.signal}" if status.signal else ""
    hosts = f", on {status.hosts}" if status.hosts else ""
    reason = f", {status.reason}" if status.reason else ""
    who = "Slurm" if item.run.scheduler == "slurm" else "this machine"
    return Evidence(who, None, (f"{status.state}{code}{signal}{reason}{hosts}",))


def _of_leaver(rank: int, facts: Facts, attempt: Attempt | None) -> Evidence:
    left_s = facts.ends[rank].ended_s
    ahead_s = (
        min((end.ended_s for end in facts.ends.values() if end.status != 0), default=left_s)
        - left_s
    )
    line = "exit status 0" + (
        f", {ahead_s:.1f} s before another rank failed or was terminated" if ahead_s > 0 else ""
    )
    if attempt:
        where = str(attempt.folder.rank_exit(rank).relative_to(attempt.folder.run))
    else:
        where = None
    return Evidence(facts.name(rank), where, (line,))


def _of_flight(
    flight: Flight, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None
) -> Evidence:
    """Return where the ranks stood, by the flight recorder.

    The sentence about these places is added, if the sentence is not the answer.
    """
    if diagnosis.by_places:
        sentence: tuple[str, ...] = ()
    else:
        sentence = (flight_sentence(flight, facts.nodes),)
    lines = dict.fromkeys(_short(line) for line in (*sentence, *stand_lines(flight)))
    if attempt:
        where = str(attempt.folder.flight.relative_to(attempt.folder.run))
    else:
        where = None
    count = len(flight.dumps)
    if flight.unknown:
        without = f"; none of {ranks_text(flight.unknown)}"
    else:
        without = ""
    note = f"{count} dump{'s' if count > 1 else ''}{without}"
    return Evidence("flight recorder", where, tuple(lines)[:_MOST_STANDS], note)


def _of_end(log: Log, facts: Facts) -> Evidence:
    """Return the exception of a log, else its first complaint and its last lines."""
    if log.traceback is not None:
        where = _at(log, log.scan.number(log.traceback.ends))
        return Evidence(
            _name(log, facts), where, (*_warning_of_another(log, facts), *_exception_lines(log))
        )
    lines = tuple(_short(line) for line in last_lines(log.scan.tail, _LAST_LINES))
    complaint, note = log.complaint, "its last lines"
    if complaint is not None and (line := _short(log.scan.tail[complaint])) not in lines:
        lines, note = (line, *lines), "its first complaint and its last lines"
    if complaint is not None:
        place = complaint
    else:
        place = len(log.scan.tail) - 1
    return Evidence(_name(log, facts), _at(log, log.scan.number(place)), lines, note)


def _warning_of_another(log: Log, facts: Facts) -> tuple[str, ...]:
    """Return NCCL's first warning, where another process of the same log has warned.

    One process raises NCCL's error, and another one has warned.
    """
    if (
        not log.part
        or log.traceback is None
        or "NCCL" not in log.traceback.exception
        or log.nccl_warnings
    ):
        return ()
    lines = (line for other in facts.logs if other.part for line in other.scan.tail)
    return tuple(_short(line.strip()) for line in lines if " NCCL WARN " in line)[:1]


def _of_launchers(facts: Facts) -> Iterator[Evidence]:
    log = next(iter(facts.logs_of(None)), None)
    if log is None:
        return
    task = first_task(log.scan.tail)
    if task is not None:
        yield Evidence("srun", _at(log, log.scan.number(task[0])), (_short(task[2]),))
    root = root_of(facts)
    if root is not None and not facts.ends:
        message = [
            line for line in root.message.splitlines() if "To enable traceback see" not in line
        ]
        lines = tuple(_short(line) for line in last_lines(message, _LAST_LINES)) or (
            f"exit status {root.exitcode}",
        )
        where = _at(log, log.scan.number(root.position))
        yield Evidence(f"torchrun: rank {root.rank} on {root.host}", where, lines)


def _of_others(facts: Facts, diagnosis: Diagnosis) -> Iterator[Evidence]:
    """Yield what other ranks and the launchers report, the ranks with the same message together."""
    groups: dict[tuple[str, bool], list[Cause]] = {}
    for other in diagnosis.consequences:
        groups.setdefault((other.rule.name, other.rank is None), []).append(other)
    for first, *more in groups.values():
        texts = {one.text for one in (first, *more)}
        if len(texts) == 1:
            text = first.text
        else:
            text = fill(first.rule.cause, {})
        who = ranks_text([one.rank for one in (first, *more) if one.rank is not None], facts.role)
        if more and diagnosis.cause and first.rule is diagnosis.cause.rule:
            yield Evidence(who, None, ("the same" if texts == {diagnosis.cause.text} else text,))
        elif more and first.rule.level == "consequence":
            yield Evidence(who, None, (text,))
        elif first.log is not None and first.hit is not None:
            where = _at(first.log, first.hit.number)
            lines = (_short(first.hit.line.strip()),)
            yield Evidence(who if more else _name(first.log, facts), where, lines, text)


def _first_ranks_log(diagnosis: Diagnosis, facts: Facts) -> Log | None:
    """Return the log of the rank that failed first, or another log that explains the end.

    The other log is one of no rank that has an exception or a complaint. Else it is the first part
    of a shared log with a complaint, and else any log of no rank, if no other line explains the
    end.
    """
    if diagnosis.first is not None or not diagnosis.culprit.alike:
        first = diagnosis.first
    else:
        first = diagnosis.culprit.alike[0]
    if first is not None and (mine := _log_of(first, facts)) is not None:
        return mine
    for log in (*facts.logs_of(None), *(log for log in facts.logs if log.part)):
        if log.complaint is not None or (log.rank is None and log.traceback is not None):
            return log
    if diagnosis.consequences and not facts.ends:
        return None
    return next(
        (log for log in facts.logs if log.part and log.traceback is not None), _log_of(None, facts)
    )


def _log_of(rank: int | None, facts: Facts) -> Log | None:
    """Return the log of a rank that tells most: one with a traceback, else stderr before stdout."""
    mine = [log for log in facts.logs_of(rank) if any(line.strip() for line in log.scan.tail)]
    return next((log for log in mine if log.traceback), mine[0] if mine else None)


def _exception_lines(log: Log) -> tuple[str, ...]:
    raised = log.traceback
    if raised is None:
        return ()
    if raised.stated:
        line = _short(log.scan.tail[raised.ends].strip())
        return (line, *_message_lines(log), *(_frame_lines(raised) if raised.frames[1:] else ()))
    others = (
        _short(other.exception) for other in (raised.origin, raised.aftermath) if other is not None
    )
    heralds = (_short(log.scan.tail[place].strip()) for place in log.heralds)
    return (
        *heralds,
        *_frame_lines(raised),
        _short(raised.exception),
        *_message_lines(log),
        *others,
    )


def _message_lines(log: Log) -> tuple[str, ...]:
    """Return the further lines of an exception's message: those up to the next record of a log."""
    assert log.traceback is not None
    lines: list[str] = []
    for line in log.scan.tail[log.traceback.ends + 1 :]:
        if len(lines) == _MOST_MESSAGE_LINES or _NEXT_RECORD.match(line):
            break
        if line.strip() and (log.traceback.stated or line.strip() not in log.traceback.exception):
            lines.append(_short(line.strip()))
    return tuple(lines)


def _frame_lines(raised: Traceback) -> tuple[str, ...]:
    shown = (raised.user_frame, *raised.frames[-1:])
    return tuple(dict.fromkeys(_frame_text(frame) for frame in shown if frame is not None))


def _frame_text(frame: Frame) -> str:
    function = f" in {frame.function}" if frame.function else ""
    return _short(
        f"{frame.file}:{frame.line}{function}" + (f": {frame.code}" if frame.code else "")
    )


def _name(log: Log, facts: Facts) -> str:
    return facts.shared if log.rank is None else facts.name(log.rank)


def _at(log: Log, number: int | None) -> str:
    return log.name if number is None else f"{log.name}:{number}"


def _around(text: str, parts: Sequence[bytes]) -> str:
    """Return a line, shortened if it is long.

    A long line keeps its beginning, or the part around texts far to the right.
    """
    places = [place for part in parts if (place := text.find(part.decode("utf-8", "replace"))) >= 0]
    if len(text) <= _LONGEST or not places or min(places) < _LONGEST // 2:
        return _short(text)
    return f"… {_short(text[max(0, min(places) - _LONGEST // 3) :].partition(' ')[2])}"


def _short(text: str) -> str:
    return cut_at_word(text, _LONGEST)
