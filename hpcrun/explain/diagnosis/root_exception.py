"""The root exception of a log: the one that ended its program, whatever reported it afterwards. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcrun.explain.diagnosis.statements import last_statement
from hpcrun.explain.diagnosis.traceback import Traceback, tracebacks

AFTER_MOST = 60
"""Lines that may follow an uncaught exception: its own message, and what libraries say while they are torn down."""
_DIRECT = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"
_INSIDE = re.compile(
    r"Original Traceback|^-- Process \d+ terminated with the following error:|^[ |]*\+-\+-+ 1 -+$|^\"\"\"$"
)
"""Lines between a traceback of a process that received a failure from another one, and the traceback of the failure."""
_FURTHER = re.compile(r"^[ |]*\+-+ (?:[2-9]|\d\d+) -+$")
"""Lines before the second and further exceptions of a group."""
_REPORTERS = re.compile(
    r"torch\.distributed\.elastic\.multiprocessing\.(?:errors\.ChildFailedError|api\.SignalException)|ChildFailedError"
    r"|torch\.multiprocessing\.spawn\.Process(?:Raised|Exited)Exception|(?:subprocess\.)?CalledProcessError"
    r"|(?:\w*Error|Exception): .*(?:[Ss]ee (?:the )?(?:stack trace|root cause|inner exception)"
    r"|(?:[Ss]ee|[Cc]heck) .*\babove\b)"
    r"|submitit\.core\.utils\.\w+|ray\.exceptions\.\w+|RuntimeError: Training failed|joblib\.externals"
    r"|(?:\w+\.)*_?RemoteTraceback|(?:\w+\.)*CheckpointException"
)
"""Exceptions by which a launcher says that what it started has failed."""
_SAYS_NOTHING = re.compile(r"ChildFailedError:?(?: [=-]*)?$|SignalException")
"""Exceptions whose line says nothing of the failure: the launcher reports it in other lines."""
_TEARDOWN = re.compile(
    r"Exception ignored (?:in|on|while)|--- Logging error ---|Error in atexit\._run_exitfuncs|Error in sys\.excepthook"
    r"|Exception in thread "
)
"""Lines with which Python begins the traceback of an error that does not end the program."""
_LOST = re.compile(
    r"(?:RuntimeError|(?:[\w.]+\.)?Dist\w*Error): .*(?:[Cc]onnection (?:was )?(?:closed|reset)|[Bb]roken pipe"
    r"|Horovod has been shut down|remote process exited|NCCL communicator was aborted|connectFullMesh"
    r"|[Tt]imed out waiting|Caught collective operation timeout|[Ff]ailed to recv|but store->get|[Ss]ocket [Tt]imeout)"
)
"""Exceptions of a rank that has lost another one, or has waited for it in vain."""
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_REPORT = re.compile(r"[A-Za-z_.]*(?:raise|reraise|Error\()")


def root_exception(lines: Sequence[str], *, mixed: bool = False) -> Traceback | None:
    """Return the exception that ended a program, None where its log shows none.

    A chain is one: an exception that was raised from another names it as its origin. Of a chain whose last link is a
    mistake made while the first was handled, the first counts.

    Args:
        mixed: several processes write into the log: of the exceptions at its end the first counts, not the last,
            and one of a rank that has lost its peer only if there is no other.
    """
    chains = _chains(lines)
    real = [found for found in chains if not _REPORTERS.match(found.exception)]
    ends = [*(found.begins for found in chains if _REPORTERS.match(found.exception)), len(lines)]
    chosen = _chosen([_behind(found, lines, ends) for found in real], mixed=mixed)
    if chosen is not None and chosen.followed_by <= AFTER_MOST:
        return chosen
    said = last_statement(lines, mixed=mixed)
    if said is not None:
        return _behind(said, lines, ends)
    if chosen is not None:
        return chosen
    reports = [found for found in chains if not _SAYS_NOTHING.search(found.exception)]
    return _behind(reports[-1], lines, ends) if reports else None


def _chosen(found: Sequence[Traceback], *, mixed: bool) -> Traceback | None:
    if not found:
        return None
    if not mixed:
        return _first_of_its_kind(found)
    burst = [found[-1]]
    for earlier in reversed(found[:-1]):
        if burst[0].begins - earlier.last > AFTER_MOST:
            break
        burst.insert(0, earlier)
    first = next((one for one in burst if not _LOST.match(one.exception)), burst[0])
    return replace(first, followed_by=burst[-1].followed_by)


def _first_of_its_kind(found: Sequence[Traceback]) -> Traceback:
    """Return the last exception, or the first of several programs' that say the same of other files and numbers.

    A shell script goes on after a program has failed: what its next program says is the same again.
    """
    chosen = found[-1]
    for earlier in reversed(found[:-1]):
        near = chosen.begins - earlier.last <= AFTER_MOST and _program(earlier) != _program(chosen)
        if not near or without_values(earlier.exception) != without_values(chosen.exception):
            break
        chosen = replace(earlier, followed_by=chosen.followed_by)
    return replace(chosen, followed_by=found[-1].followed_by)


def without_values(exception: str) -> str:
    """Return an exception without its numbers and quoted texts, which differ between processes that fail alike."""
    return _VALUES.sub("", exception)


def _program(found: Traceback) -> str:
    return found.frames[0].file if found.frames else ""


def _behind(found: Traceback, lines: Sequence[str], ends: Sequence[int]) -> Traceback:
    """Count the lines behind an exception, up to the first report of it."""
    end = min(place for place in ends if place > found.ends)
    return replace(found, followed_by=sum(bool(line.strip()) for line in lines[found.last + 1 : end]))


def _chains(lines: Sequence[str]) -> list[Traceback]:
    """Return the chains of tracebacks, each as the one that counts in it; a teardown's only where no other is."""
    chains: list[Traceback] = []
    torn: list[Traceback] = []
    for found in tracebacks(lines):
        before = chains[-1] if chains else None
        between = lines[before.last + 1 : found.begins + 1] if before else ()
        if before is not None and (joined := _joined(before, found, between)):
            chains[-1] = joined
        elif any(map(_TEARDOWN.match, lines[max(0, found.begins - 3) : found.begins])):
            torn.append(found)
        else:
            chains.append(found)
    return chains or torn


def _joined(before: Traceback, found: Traceback, between: Sequence[str]) -> Traceback | None:
    """Return two tracebacks as one where the second belongs to the first, else None."""
    if len(between) > 8:
        return None
    if found.begins <= before.last:  # its message is the traceback of another process
        return replace(found, begins=before.begins)
    words = [line.strip() for line in between]
    if any(_FURTHER.match(line) for line in between):
        return replace(before, last=found.last)
    if any(_INSIDE.search(line) for line in between) and _DIRECT not in words:
        return replace(found, begins=before.begins)
    if _DIRECT in words:
        return _raised_from(before, found)
    if _DURING in words:
        last = found.frames[-1].code if found.frames else "raise"
        if _REPORT.match(last) or _REPORTERS.match(before.exception):
            return _raised_from(before, found)
        return replace(before, last=found.last, aftermath=found)
    return None


def _raised_from(origin: Traceback, found: Traceback) -> Traceback:
    """Return an exception with its origin, or only the origin if another process passed it on unchanged."""
    if _same(origin, found):
        return replace(origin, last=found.last)
    return replace(found, begins=origin.begins, origin=origin.origin or origin)


def _same(one: Traceback, other: Traceback) -> bool:
    return one.exception == other.exception or bool(_REPORTERS.match(other.exception))
