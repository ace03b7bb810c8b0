"""The evidence for a diagnosis: lines of logs and records, each with its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.culprit import root_of
from hpcrun.explain.diagnosis.facts import Cause, Diagnosis, Facts
from hpcrun.explain.diagnosis.flight_meetings import Flight
from hpcrun.explain.diagnosis.last_lines import last_lines_of
from hpcrun.explain.diagnosis.launcher_lines import first_task
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.rules import fill
from hpcrun.explain.diagnosis.scan import last_lines
from hpcrun.explain.diagnosis.traceback import Frame, Traceback
from hpcrun.explain.diagnosis.waiting_cause import flight_sentence, stand_lines
from hpcrun.explain.diagnosis.watchdog import WATCHDOG
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.units import count, cut_at_word, ranks_text
from hpcrun.runs.attempt import Attempt

_LONGEST = 300
_LAST_LINES = 6
_MOST_MESSAGE_LINES = 6
_MOST_CONSEQUENCES = 3
_MOST_STANDS = 6
_NEXT_RECORD = re.compile(
    r"Traceback|\[(?:\d|rank|[A-Z]\d{3})|\d+[-/:.]\d|[A-Z]\d{4} |\S+:(?:\d+:)? "
    r"|\W*(?:INFO|WARN|ERROR|DEBUG|Killing|Killed)|[-=*#+]{4}|.*%\|| *\d+%"
)
"""Lines that begin something else than more of an exception's message: a time, a name with a colon,
a rule, a bar.
"""
_TORCHRUN_HINT = "To enable traceback see"


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
        lines: Sequence[str] = ()
        if self.lines:
            lines = HIDER.hide("\n".join(self.lines)).split("\n")
        object.__setattr__(self, "lines", tuple(lines))
        object.__setattr__(self, "note", HIDER.hide(self.note))


def evidence_of(
    item: RunStatus, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None
) -> Iterator[Evidence]:
    """Yield the evidence for the answer: about fifteen lines at most."""
    if diagnosis.leaver is not None:
        yield _of_leaver(diagnosis.leaver, facts, attempt)
    of_cause = _of_cause(diagnosis.cause, facts)
    if of_cause is not None:
        yield of_cause
    flight = facts.flight
    if flight is not None and flight.meetings and flight.source != WATCHDOG:
        yield _of_flight(flight, facts, diagnosis, attempt)
    lines_of_end: tuple[str, ...] = ()
    last = last_lines_of(facts, diagnosis)
    log = first_ranks_log(diagnosis, facts)
    if last and (log is None or log.traceback is None):
        yield Evidence("last lines", None, tuple(map(_short, last)))
    elif log is not None and not _says_the_cause(log, diagnosis):
        of_end = _of_end(log, facts)
        lines_of_end = of_end.lines
        yield of_end
    for of_launcher in _of_launchers(facts):
        if of_launcher.lines[0] not in lines_of_end:
            yield of_launcher
    of_script = _of_script(item, attempt)
    if of_script is not None:
        yield of_script
    yield from islice(_of_others(facts, diagnosis), _MOST_CONSEQUENCES)
    if item.run.scheduler:
        yield of_scheduler(item)


def _of_script(item: RunStatus, attempt: Attempt | None) -> Evidence | None:
    """Return the message of the batch script; None without one, or if the status repeats it."""
    if attempt is None or attempt.exit is None or not attempt.exit.message:
        return None
    message = attempt.exit.message
    if message in (item.status.reason or ""):
        return None
    return Evidence("batch script", None, (_short(message),))


def of_scheduler(item: RunStatus) -> Evidence:
    """Return the state that the scheduler, or the run's records, give the run."""
    status = item.status
    line = status.state
    if status.exit_status:
        line += f", exit status {status.exit_status}"
    if status.signal:
        line += f", signal {status.signal}"
    if status.reason:
        line += f", {status.reason}"
    if status.hosts:
        line += f", on {status.hosts}"
    who = "Slurm" if item.run.scheduler == "slurm" else "this machine"
    return Evidence(who, None, (line,))


def _of_leaver(rank: int, facts: Facts, attempt: Attempt | None) -> Evidence:
    """Return the exit record of the rank that ended with exit status 0 before the others."""
    left_s = facts.ends[rank].ended_s
    others_ended_s = [end.ended_s for end in facts.ends.values() if end.status != 0]
    ahead_s = min(others_ended_s, default=left_s) - left_s
    line = "exit status 0"
    if ahead_s > 0:
        line += f", {ahead_s:.1f} s before another rank failed or was terminated"
    where = None
    if attempt:
        where = str(attempt.folder.rank_exit(rank).relative_to(attempt.folder.run))
    return Evidence(facts.name(rank), where, (line,))


def _of_cause(cause: Cause | None, facts: Facts) -> Evidence | None:
    """Return the line that shows the cause, with the exception of its log; None without a line."""
    if cause is None or cause.hit is None or cause.log is None:
        return None
    line = cause.hit.line.strip()
    raised = cause.log.traceback
    lines = []
    if raised is None or line != raised.exception:
        lines.append(_around(line, cause.rule.contains))
    lines += _exception_lines(cause.log)
    where = _at(cause.log, cause.hit.number)
    return Evidence(_name(cause.log, facts), where, tuple(dict.fromkeys(lines)))


def _says_the_cause(log: Log, diagnosis: Diagnosis) -> bool:
    """Whether the evidence for the cause says all that the log of the first rank could add."""
    cause = diagnosis.cause
    if cause is None or cause.hit is None:
        return False
    return cause.rank is not None or diagnosis.first is None or log is cause.log


def _of_flight(
    flight: Flight, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None
) -> Evidence:
    """Return where the ranks stood, by the flight recorder.

    The sentence about these places is added, if the sentence is not the answer.
    """
    lines = []
    if not diagnosis.by_places:
        lines.append(_short(flight_sentence(flight, facts.nodes)))
    lines += [_short(line) for line in stand_lines(flight)]
    shown = tuple(dict.fromkeys(lines))[:_MOST_STANDS]
    where = None
    if attempt:
        where = str(attempt.folder.flight.relative_to(attempt.folder.run))
    note = count(len(flight.dumps), "dump")
    if flight.unknown:
        note += f"; none of {ranks_text(flight.unknown)}"
    return Evidence("flight recorder", where, shown, note)


def _of_end(log: Log, facts: Facts) -> Evidence:
    """Return the exception of a log, else its first complaint and its last lines."""
    name = _name(log, facts)
    if log.traceback is not None:
        where = _at(log, log.scan.number(log.traceback.ends))
        return Evidence(name, where, (*_warning_of_another(log, facts), *_exception_lines(log)))
    place = len(log.scan.tail) - 1
    lines = [_short(line) for line in last_lines(log.scan.tail, _LAST_LINES)]
    note = "its last lines"
    if log.complaint is not None:
        place = log.complaint
        complaint = _short(log.scan.tail[place])
        if complaint not in lines:
            lines.insert(0, complaint)
            note = "its first complaint and its last lines"
    return Evidence(name, _at(log, log.scan.number(place)), tuple(lines), note)


def _warning_of_another(log: Log, facts: Facts) -> list[str]:
    """Return NCCL's first warning, where another process of the same log has warned.

    One process raises NCCL's error, and another one has warned.
    """
    if not log.part or log.traceback is None or log.nccl_warnings:
        return []
    if "NCCL" not in log.traceback.exception:
        return []
    for other in facts.logs:
        if not other.part:
            continue
        for line in other.scan.tail:
            if " NCCL WARN " in line:
                return [_short(line.strip())]
    return []


def _of_launchers(facts: Facts) -> Iterator[Evidence]:
    """Yield what srun and torchrun report about the first failure."""
    logs = facts.logs_of(None)
    if not logs:
        return
    log = logs[0]
    task = first_task(log.end)
    if task is not None:
        position, _, message = task
        yield Evidence("srun", _at(log, log.scan.number(position)), (_short(message),))
    root = root_of(facts)
    if root is not None and not facts.ends:
        lines = [line for line in root.message.splitlines() if _TORCHRUN_HINT not in line]
        shown = [_short(line) for line in last_lines(lines, _LAST_LINES)]
        if not shown:
            shown.append(f"exit status {root.exitcode}")
        where = _at(log, log.scan.number(root.position))
        yield Evidence(f"torchrun: rank {root.rank} on {root.host}", where, tuple(shown))


def _of_others(facts: Facts, diagnosis: Diagnosis) -> Iterator[Evidence]:
    """Yield what other ranks and the launchers report, the ranks with the same message together."""
    groups: dict[tuple[str, bool], list[Cause]] = {}
    for other in diagnosis.consequences:
        groups.setdefault((other.rule.name, other.rank is None), []).append(other)
    for causes in groups.values():
        evidence = _of_group(causes, facts, diagnosis)
        if evidence is not None:
            yield evidence


def _of_group(causes: list[Cause], facts: Facts, diagnosis: Diagnosis) -> Evidence | None:
    """Return what the ranks report that one rule explains; None if there is nothing to show."""
    first = causes[0]
    texts = {cause.text for cause in causes}
    text = first.text if len(texts) == 1 else fill(first.rule.cause, {})
    who = ranks_text([cause.rank for cause in causes if cause.rank is not None], facts.role)
    is_one = len(causes) == 1
    if not is_one and diagnosis.cause and first.rule is diagnosis.cause.rule:
        is_the_same = texts == {diagnosis.cause.text}
        return Evidence(who, None, ("the same" if is_the_same else text,))
    if not is_one and first.rule.level == "consequence":
        return Evidence(who, None, (text,))
    if first.log is None or first.hit is None:
        return None
    if is_one:
        who = _name(first.log, facts)
    where = _at(first.log, first.hit.number)
    return Evidence(who, where, (_short(first.hit.line.strip()),), text)


def first_ranks_log(diagnosis: Diagnosis, facts: Facts) -> Log | None:
    """Return the log of the rank that failed first, or another log that explains the end.

    The other log is one of no rank that has an exception or a complaint. Else it is the first part
    of a shared log with a complaint, and else any log of no rank, if no other line explains the
    end.
    """
    first = diagnosis.first
    if first is None and diagnosis.culprit.alike:
        first = diagnosis.culprit.alike[0]
    if first is not None:
        log_of_first = log_of(first, facts)
        if log_of_first is not None:
            return log_of_first
    parts = [log for log in facts.logs if log.part]
    for log in (*facts.logs_of(None), *parts):
        if log.complaint is not None:
            return log
        if log.rank is None and log.traceback is not None:
            return log
    if diagnosis.consequences and not facts.ends:
        return None
    for log in parts:
        if log.traceback is not None:
            return log
    return log_of(None, facts)


def log_of(rank: int | None, facts: Facts) -> Log | None:
    """Return the log of a rank that tells most: one with a traceback, else stderr before stdout."""
    logs = []
    for log in facts.logs_of(rank):
        if any(line.strip() for line in log.scan.tail):
            logs.append(log)
    for log in logs:
        if log.traceback is not None:
            return log
    return logs[0] if logs else None


def _exception_lines(log: Log) -> list[str]:
    """Return the lines of a log that show its exception: no lines if it has none."""
    raised = log.traceback
    if raised is None:
        return []
    if raised.stated:
        lines = [_short(log.scan.tail[raised.ends].strip()), *_message_lines(log, raised)]
        if len(raised.frames) > 1:
            lines += _frame_lines(raised)
        return lines
    lines = [_short(log.scan.tail[place].strip()) for place in log.heralds]
    lines += _frame_lines(raised)
    lines.append(_short(raised.exception))
    lines += _message_lines(log, raised)
    for other in (raised.origin, raised.aftermath):
        if other is not None:
            lines.append(_short(other.exception))
    return lines


def _message_lines(log: Log, raised: Traceback) -> list[str]:
    """Return the further lines of an exception's message: those up to the next record of a log."""
    lines: list[str] = []
    for line in log.scan.tail[raised.ends + 1 :]:
        if len(lines) == _MOST_MESSAGE_LINES or _NEXT_RECORD.match(line):
            break
        text = line.strip()
        if text and (raised.stated or text not in raised.exception):
            lines.append(_short(text))
    return lines


def _frame_lines(raised: Traceback) -> list[str]:
    """Return the user's frame of an exception and the innermost one."""
    shown = (raised.user_frame, *raised.frames[-1:])
    lines = [_frame_text(frame) for frame in shown if frame is not None]
    return list(dict.fromkeys(lines))


def _frame_text(frame: Frame) -> str:
    text = f"{frame.file}:{frame.line}"
    if frame.function:
        text += f" in {frame.function}"
    if frame.code:
        text += f": {frame.code}"
    return _short(text)


def _name(log: Log, facts: Facts) -> str:
    return facts.shared if log.rank is None else facts.name(log.rank)


def _at(log: Log, number: int | None) -> str:
    line = log.scan.line_in_file(number)
    return log.name if line is None else f"{log.name}:{line}"


def _around(text: str, parts: Sequence[bytes]) -> str:
    """Return a line, shortened if it is long.

    A long line keeps its beginning, or the part around texts far to the right.
    """
    if len(text) <= _LONGEST:
        return text
    places = [text.find(part.decode("utf-8", "replace")) for part in parts]
    first = min((place for place in places if place >= 0), default=0)
    if first < _LONGEST // 2:
        return _short(text)
    near = text[first - _LONGEST // 3 :]
    return f"… {_short(near.partition(' ')[2])}"


def _short(text: str) -> str:
    return cut_at_word(text, _LONGEST)
