"""What the logs of one rank say of its end, and what of it its program survived. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcrun.explain.diagnosis.facts import SAME_MOMENT_S, LogSubject, RankEnd
from hpcrun.explain.diagnosis.line_order import came_of_a_timeout
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.progress import is_done
from hpcrun.explain.diagnosis.root_exception import AFTER_MOST
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.explain.diagnosis.traceback import Traceback, is_exception_line
from hpcrun.job.job_states import EXIT_ABORTED, EXIT_TERMINATED

UNCAUGHT = 1
"""Python's exit status after an uncaught exception."""
_EXCEPTION_STATUSES = (UNCAUGHT, 130, EXIT_ABORTED, EXIT_TERMINATED)
"""An exception that nobody catches ends Python with 1, 130 (^C), an abort in a C++ thread, or a
termination.
"""
_SIGNALS = 128
"""Exit statuses above it are those of signals."""
LAST_WORDS = 3
"""Lines that a program may write between an exception that it prints and its end."""
_INTERRUPT = "KeyboardInterrupt"
_LAST_LINES = 12
"""Lines that may follow a failure after which a program hangs: those of the other ranks, and
Slurm's.
"""
_CONNECTION = re.compile(
    r"Dist(?:Network|Store)Error|Connection\w*Error|BrokenPipeError|EOFError|Rendezvous\w*Error"
    r"|[Cc]onnection (?:was )?(?:closed|reset|refused|lost|aborted)|[Bb]roken pipe|[Rr]emote "
    r"(?:process|worker)"
    r"|[Tt]imed out|[Tt]imeout|[Ff]ailed to recv|[Pp]eer|connectFullMesh"
)
"""Messages after the loss of a peer: torch c10d socket.cpp and TCPStore.cpp, gloo transport/tcp,
NCCL.
"""
_MESSAGE_LINES = 8
"""Lines after that of an exception which may be more of its message."""
_KILLED = re.compile(r"Killed$|\[rank: \d+\] Child process with PID ")
"""Lines after an exception which are no part of its message: what was left of the job is killed."""
_OF_MACHINES = re.compile(
    r"CUDA|cuda|(?i:dnn)|CUBLAS|NCCL|nccl|Dist\w*Error|DataLoader|[Kk]illed|signal|"
    + _CONNECTION.pattern
)
"""Exceptions that pass on a failure of a GPU, of the network or of another process."""
_OF_OTHERS = re.compile(r"DEADLINE_EXCEEDED|distributed service detected fatal errors")
"""What JAX's coordination service says on a rank that waited for another one, or that another one's
end aborted.
"""
_COLLECTIVES = "/torch/distributed/"
_QUOTES = re.compile(r'^\W*\w+\s?[:=]\s?"[^"]*"\W*$')
"""A line that shows a text, such as a sample of the data or what a model generated."""


def subject_of_logs(logs: Sequence[Log], end: RankEnd | None) -> LogSubject:
    """Return the subject of the end of a rank's logs.

    This is the subject of its uncaught exception, else of the lines that match rules.
    """
    hits = [
        hit
        for log in logs
        for hit in log.scan.hits
        if not was_survived(hit, log, end) and not came_of_a_timeout(log, hit)
    ]
    levels = {hit.rule.level for hit in hits} - {"caught"}
    waited_or_gone = LogSubject.WAITED if "wait" in levels else LogSubject.GONE
    raised = uncaught(logs, end)
    if raised is not None and (
        raised.rank not in (None, logs[0].rank) or _OF_OTHERS.search(raised.exception)
    ):
        return LogSubject.GONE
    if "cause" in levels:
        return LogSubject.OWN
    if raised is None or raised.stated:
        if levels and levels <= {"wait", "consequence"}:
            return waited_or_gone
        return LogSubject.OWN if raised or levels else LogSubject.NOTHING
    of_line = {hit.rule.level for hit in hits if hit.line.strip() == raised.exception}
    if of_line & {"wait", "consequence"}:
        return waited_or_gone
    deepest = raised.frames[-1] if raised.frames else None
    by_program = deepest is not None and deepest.in_user_code and deepest.code.startswith("raise ")
    if _CONNECTION.search(raised.exception) and not by_program:
        if deepest and _COLLECTIVES in deepest.file:
            return waited_or_gone
        return LogSubject.NETWORK
    return LogSubject.OWN


def uncaught(logs: Sequence[Log], end: RankEnd | None) -> Traceback | None:
    """Return the exception that ended a rank, from its logs.

    The result is None if there is no exception, or the program continued.
    """
    candidates = [log for log in logs if log.traceback and log.traceback.followed_by <= AFTER_MOST]
    return next(
        (
            log.traceback
            for log in candidates
            if log.traceback and _may_end(log, log.traceback, end)
        ),
        None,
    )


def _may_end(log: Log, raised: Traceback, end: RankEnd | None) -> bool:
    """Return whether an exception near the end of a log may have ended its program.

    The program's exit status decides. A program may print an exception and return any status, at
    once; what follows a signal does not belong to an exception.
    """
    if end is None or raised.stated or end.status in _EXCEPTION_STATUSES:
        return True
    at_once = raised.followed_by <= LAST_WORDS and end.ended_s - log.written_s <= SAME_MOMENT_S
    return 0 < end.status < _SIGNALS and at_once


def raised_in(log: Log) -> Traceback | None:
    """Return the uncaught exception of a log whose rank left no record."""
    if log.traceback is None or log.traceback.stated:
        return None
    return uncaught([log], None)


def is_in_chain(hit: Hit, log: Log) -> bool:
    """Whether a line is in the last traceback, or in a traceback to which it is chained."""
    place = log.scan.position(hit.number)
    return (
        place is not None
        and log.traceback is not None
        and not log.traceback.stated
        and log.traceback.begins <= place <= log.traceback.last
    )


def was_survived(hit: Hit, log: Log, end: RankEnd | None) -> bool:
    """Whether the program went on after a line: an exception that it caught, and said so."""
    if is_said_caught(hit, log):
        return True
    raised = log.traceback
    if raised is None and _QUOTES.match(hit.line):
        return True
    place = log.scan.position(hit.number)
    if place is None:
        return False
    # a rule with `before` names the cause of what follows, so the program did not survive it
    leads_to_end = bool(hit.rule.before)
    if place < log.history and not (leads_to_end and raised is not None):
        # after a signal a program may go on for some time, unless it says how it ended
        return not hit.rule.states or raised is not None or is_done(log.scan.tail, log.history)
    if raised is None or leads_to_end or not is_exception_line(hit.line) or place > raised.last:
        return False
    return place < raised.begins or uncaught([log], end) is None


def is_beside(hit: Hit, log: Log) -> bool:
    """Whether a line is about something else than the exception that ended its program.

    An exception of the program's own code or data is the answer, whatever was complained of before
    it. An exception of CUDA, NCCL or a connection may have its cause in any line, and the rule of
    that line may have priority over the rule of the exception.
    """
    raised = log.traceback
    if raised is not None and raised.stated:
        place = log.scan.position(hit.number)
        is_exception = is_exception_line(raised.exception)
        return is_exception and place is not None and raised.begins - place > AFTER_MOST
    if raised is None or raised.followed_by > AFTER_MOST or _OF_MACHINES.search(raised.exception):
        return False
    if hit.rule.states or hit.rule.level not in ("cause", "symptom") or is_exception_line(hit.line):
        return False
    place = log.scan.position(hit.number)
    if place is not None and 0 < place - raised.last <= _MESSAGE_LINES:
        return any(_KILLED.match(line) for line in log.scan.tail[raised.last + 1 : place + 1])
    of_it = {other.rule.name for other in log.scan.hits if is_in_chain(other, log)}
    return not is_in_chain(hit, log) and not of_it & hit.rule.before


def is_said_caught(hit: Hit, log: Log) -> bool:
    """Whether a line itself says that the program caught what it is about."""
    same = (
        other.rule.level
        for other in log.scan.hits
        if other.number == hit.number and hit.number is not None
    )
    return hit.rule.level != "caught" and "caught" in same


def failed_in(log: Log) -> bool:
    """Whether a log has an uncaught exception that is not the cancellation of its program."""
    raised = raised_in(log)
    return raised is not None and not raised.exception.startswith(_INTERRUPT)


def hangs_since(log: Log) -> bool:
    """Return whether the log ends with a failure after which the program hung.

    The last lines have the failure, and the program said nothing more until the job was ended.
    """
    hits = (
        hit
        for hit in log.scan.hits
        if hit.rule.level in ("symptom", "wait") and not hit.rule.states
    )
    places = (log.scan.position(hit.number) for hit in hits)
    place = max((place for place in places if place is not None), default=None)
    return (
        place is not None
        and sum(bool(line.strip()) for line in log.scan.tail[place + 1 :]) <= _LAST_LINES
    )
