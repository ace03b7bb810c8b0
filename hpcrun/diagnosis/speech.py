"""What the logs of one rank say of its end, and what of it its program survived. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcrun.diagnosis.culprit import TERMINATED, RankEnd, Speech
from hpcrun.diagnosis.log import Log
from hpcrun.diagnosis.order import came_of_a_timeout, ended_by_a_timeout
from hpcrun.diagnosis.root import AFTER_MOST
from hpcrun.diagnosis.scan import Hit
from hpcrun.diagnosis.traceback import Traceback, is_exception_line

UNCAUGHT = 1
"""Python's exit status after an uncaught exception."""
_EXCEPTION_STATUSES = (UNCAUGHT, 134, TERMINATED)
"""An exception that nobody catches ends Python with 1, or with an abort in a C++ thread, or while it is terminated."""
_CONNECTION = re.compile(
    r"Dist(?:Network|Store)Error|Connection\w*Error|BrokenPipeError|EOFError|Rendezvous\w*Error"
    r"|[Cc]onnection (?:was )?(?:closed|reset|refused|lost|aborted)|[Bb]roken pipe|[Rr]emote (?:process|worker)"
    r"|[Tt]imed out|[Tt]imeout|[Ff]ailed to recv|[Pp]eer|connectFullMesh"
)
"""Messages after the loss of a peer: torch c10d socket.cpp and TCPStore.cpp, gloo transport/tcp, NCCL."""
_COLLECTIVES = "/torch/distributed/"


def speech_of(logs: Sequence[Log], end: RankEnd | None) -> Speech:
    """Return the subject of the end of a rank's logs: of its uncaught exception, else of the lines that match rules.

    Args:
        end: the rank's record; None if there is none.
    """
    hits = [
        hit
        for log in logs
        for hit in log.scan.hits
        if not was_survived(hit, log, end) and not came_of_a_timeout(log, hit)
    ]
    levels = {hit.rule.level for hit in hits} - {"caught"}
    waited_or_gone = Speech.WAITED if "wait" in levels else Speech.GONE
    raised = uncaught(logs, end)
    if "cause" in levels:
        return Speech.OWN
    if "wait" in levels and any(log.traceback is raised and ended_by_a_timeout(log) for log in logs):
        return Speech.WAITED
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


def is_in_chain(hit: Hit, log: Log) -> bool:
    """Whether a line is in the last traceback, or in a traceback to which it is chained."""
    place = _place(hit, log)
    return place is not None and log.traceback is not None and log.traceback.begins <= place <= log.traceback.last


def _place(hit: Hit, log: Log) -> int | None:
    first = log.scan.first_tail_line
    return None if first is None or hit.number is None else hit.number - first


def was_survived(hit: Hit, log: Log, end: RankEnd | None) -> bool:
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
