"""A log and what was found in it, and a log that several processes share as one for each of them.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hpcrun.explain.diagnosis.launcher_lines import (
    NODE_FAILED,
    Speaker,
    of_several_nodes,
    speakers_of,
    starts_ranks,
)
from hpcrun.explain.diagnosis.progress import ends_with_a_step, history_ends
from hpcrun.explain.diagnosis.root_exception import (
    complains,
    first_complaint,
    is_statement,
    root_exception,
)
from hpcrun.explain.diagnosis.scan import Hit, LogScan
from hpcrun.explain.diagnosis.traceback import Traceback, is_exception_line

_MOST_SPEAKERS = 64
"""Processes of a shared log whose failures are compared."""
_HERALD_LINES = 6
_MOST_HERALDS = 2
"""Lines above an exception in which the program may have logged the same error in its own words."""
_GLOBAL = re.compile(r"\bGLOBAL_RANK: (\d{1,7})\b")  # Lightning
_LATER_S = 1.0
"""Two files that one process writes to have the times of its last lines, up to the delay of a file
server.
"""
_WARNING_LINES = 60
"""Lines between NCCL's warning and the exception that comes of it: NCCL's and torch's frames."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log and its matches.

    Attributes:
        name: its path in the run's folder.
        rank: None for the batch script's.
        written_s: when it was last written to, in seconds since the epoch; for a part of a log, the
            place of its end.
        part: the lines of one process, from a log into which several processes write.
        several_nodes: its lines, or those beside them, are of several nodes: a local rank is not
            the rank.
        restart: how often torchrun had started the ranks again.
        history: the number of lines at the beginning of ``scan.tail`` that its program has
            survived: it made progress below them.
    """

    name: str
    rank: int | None
    scan: LogScan
    written_s: float = 0.0
    traceback: Traceback | None = None
    part: bool = False
    several_nodes: bool = False
    restart: int = 0
    history: int = 0

    @property
    def end(self) -> Sequence[str]:
        """The lines of its end; those that its program has survived are empty."""
        if not self.history:
            return self.scan.tail
        return (*[""] * self.history, *self.scan.tail[self.history :])

    @property
    def heralds(self) -> tuple[int, ...]:
        """Positions of complaints directly above its exception, and of NCCL's first warning.

        NCCL's first warning counts if it stands before NCCL's error.
        """
        raised = self.traceback
        if raised is None or raised.stated:
            return ()
        above = [place for place in range(raised.begins) if self.scan.tail[place].strip()]
        complaints = [place for place in above[-_HERALD_LINES:] if complains(self.scan.tail[place])]
        return tuple(dict.fromkeys((*self.nccl_warnings[:1], *complaints)))[:_MOST_HERALDS]

    @property
    def nccl_warnings(self) -> list[int]:
        """Positions of NCCL's warnings above its exception, if that is an error of NCCL."""
        raised, tail = self.traceback, self.scan.tail
        if raised is None or "NCCL" not in raised.exception:
            return []
        above = [place for place in range(raised.begins) if tail[place].strip()]
        return [place for place in above[-_WARNING_LINES:] if " NCCL WARN " in tail[place]]

    @property
    def is_shared(self) -> bool:
        """Whether several ranks write into the log.

        This is true for the batch script's log, or if torch's prefixes name other ranks.
        """
        return self.rank is None or any(
            one is not None and one.kind == "torch" and one.rank not in (None, self.rank)
            for one in self.scan.speakers
        )

    @property
    def complaint(self) -> int | None:
        """Position of the first line near the log's end that complains.

        A log with an exception has no such position, and neither has a log without a complaint: the
        value is None then.
        """
        if self.traceback is None:
            return first_complaint(self.end)
        return None


def examine(name: str, rank: int | None, scan: LogScan, written_s: float = 0.0) -> Log:
    """Return a log with the exception that ended its program.

    The batch script's log has the exceptions of several programs.
    """
    several = rank is None and of_several_nodes(scan.tail)
    log = Log(name, rank, scan, written_s, several_nodes=several)
    return _with_end(log, range(len(scan.tail)), mixed=rank is None)


def _with_end(log: Log, places: Sequence[int], *, mixed: bool) -> Log:
    """Return a log with the exception that ended its program.

    Args:
        log: the log.
        places: positions of the lines of the program.
        mixed: several processes write them.
    """
    tail = log.scan.tail
    with_hit = {log.scan.position(hit.number) for hit in log.scan.hits}
    alarms = [place for place in places if place in with_hit or _is_alarm(tail[place])]
    history = history_ends(tail, alarms, log.scan.speakers) or log.history
    of_end = [place for place in places if place >= history]
    raised = root_exception([tail[place] for place in of_end], mixed=mixed)
    if raised is not None:
        raised = replace(
            raised,
            begins=of_end[raised.begins],
            ends=of_end[raised.ends],
            last=of_end[raised.last],
        )
        log = replace(log, scan=_with_frames(log.scan, raised))
    return replace(log, traceback=raised, history=history)


def _with_frames(scan: LogScan, raised: Traceback) -> LogScan:
    """Return what was found in a log, with the rules about the frames of the exception of its end.

    They have priority over what the words of its line alone suggest.
    """
    number = scan.number(raised.ends)
    speaker = scan.speakers[raised.ends]
    hits = []
    for rule in scan.framed:
        values = rule.match_raised(raised)
        if values is not None:
            hits.append(Hit(rule, scan.tail[raised.ends], number, values, speaker))
    names = {hit.rule.name for hit in hits}
    for hit in scan.hits:
        if hit.number != number or hit.rule.name not in names:
            hits.append(hit)
    hits.sort(key=lambda hit: hit.number or 0)
    return replace(scan, hits=tuple(hits))


def _is_alarm(line: str) -> bool:
    return is_exception_line(line) or complains(line)


def parts(beginning: str, log: Log) -> list[Log]:
    """Return the parts of a log that begin with a line that starts so, as logs of their own.

    The lines before the first such line are also a log of their own. What stands above the end of
    the log that is kept belongs to the first of the logs.
    """
    scan = log.scan
    begins = [place for place, line in enumerate(scan.tail) if line.startswith(beginning)]
    if not begins or scan.first_tail_line is None:
        return [log]
    logs: list[Log] = []
    for restart, (first, end) in enumerate(pairwise((0, *begins, len(scan.tail)))):
        numbers = range(scan.first_tail_line + first if restart else 0, scan.first_tail_line + end)
        hits = tuple(hit for hit in scan.hits if hit.number is None or hit.number in numbers)
        kept = slice(first, end)
        part = replace(
            scan,
            hits=hits,
            tail=scan.tail[kept],
            speakers=scan.speakers[kept],
            stamps=scan.stamps[kept],
            first_tail_line=scan.first_tail_line + first,
        )
        logs.append(replace(examine(log.name, log.rank, part, log.written_s), restart=restart))
    return logs


def with_other_log(logs: Sequence[Log]) -> list[Log]:
    """Return the logs of a rank without failures that the rank survived.

    What one log complains of last was survived if the other log later ends with progress.
    """
    last = max(logs, key=lambda log: log.written_s, default=None)
    if last is None:
        return []
    before = [
        log
        for log in logs
        if last.written_s - log.written_s > _LATER_S and (log.traceback or log.scan.hits)
    ]
    if not before or not ends_with_a_step(last.scan.tail):
        return list(logs)
    return [
        replace(log, traceback=None, scan=replace(log.scan, hits=())) if log in before else log
        for log in logs
    ]


def by_speaker(log: Log) -> list[Log]:
    """Split a log into which several processes write.

    First come the lines of no process, then a log for each process. The rank in a line's own prefix
    counts, whatever the name of the file says.

    A line keeps its place: in the log of one process, the lines of the others are empty.
    """
    scan, log = log.scan, replace(log, rank=None)
    speakers = speakers_of(
        [who for who, line in zip(scan.speakers, scan.tail, strict=True) if line.strip()]
    )
    if not speakers:
        return [log]
    known = frozenset(speakers)
    places: dict[Speaker | None, list[int]] = {None: []}
    for place, who in enumerate(scan.speakers):
        places.setdefault(who if who in known else None, []).append(place)
    matching = {hit.speaker for hit in scan.hits}
    failed = {match["node"] for line in scan.tail if (match := NODE_FAILED.search(line))}
    complaining = [
        one
        for one in speakers
        if one in matching
        or any(
            _may_fail(line) or line in failed for line in map(scan.tail.__getitem__, places[one])
        )
    ]
    nodes = [
        one for one in speakers if _is_a_node(one, [scan.tail[place] for place in places[one]])
    ]
    if any(one.may_be_a_node for one in nodes):
        nodes += [one for one in speakers if one.may_be_a_node and one not in nodes]
    several = log.several_nodes or len(nodes) > 1
    no_ranks = {
        one
        for one in speakers
        if one in nodes or one.rank is None or (several and one.kind == "local")
    }
    whole = replace(log, several_nodes=several)
    return [
        _part(whole, one, None if one is None or one in no_ranks else one.rank, places[one], known)
        for one in (None, *complaining[:_MOST_SPEAKERS])
    ]


def _is_a_node(one: Speaker, lines: Sequence[str]) -> bool:
    """Whether the lines with a prefix are of several ranks of a node."""
    if one.kind == "host":
        return True
    if not one.may_be_a_node:
        return False
    return starts_ranks(lines) or any(
        (match := _GLOBAL.search(line)) and int(match[1]) != one.rank for line in lines
    )


def _may_fail(line: str) -> bool:
    return "Traceback" in line or is_exception_line(line) or complains(line) or is_statement(line)


def _part(
    log: Log,
    one: Speaker | None,
    rank: int | None,
    places: Sequence[int],
    speakers: Collection[Speaker],
) -> Log:
    """Return the lines of one process in a log, with the exception among them."""
    scan = log.scan
    tail = [""] * len(scan.tail)
    for place in places:
        tail[place] = scan.tail[place]
    hits = tuple(
        hit
        for hit in scan.hits
        if hit.speaker == one or (one is None and hit.speaker not in speakers)
    )
    # where one rank alone prints the steps, they are those of all: its log's history is kept
    part = replace(
        log, rank=rank, scan=replace(scan, hits=hits, tail=tuple(tail)), traceback=None, part=True
    )
    part = _with_end(part, places, mixed=one is None)
    raised = part.traceback
    return replace(part, written_s=float(raised.ends if raised else len(tail)))
