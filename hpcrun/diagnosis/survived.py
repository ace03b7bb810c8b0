"""What a program survived, by its log alone: after it, the log shows further steps of the training. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcrun.diagnosis.log import Log
from hpcrun.diagnosis.scan import Hit

_STEPS = 3
"""Further steps that prove it: after the failure of a rank, another one may still print one or two."""
_SOON = 3
"""Lines after a failure in which a program says that it tried again with success."""
_LAST = 3
"""Lines at the end of a log in which a program says that it is done."""
_STEP = re.compile(
    r"\b(?:step|epoch|iter|iteration|batch)\b\W{0,3}\d|\bloss\W{1,4}\d|\b\d+/\d+ \[\d", re.ASCII | re.IGNORECASE
)
_DONE = re.compile(
    r"\b(?:done|finished|(?:training|job|run) (?:is )?complete|completed(?: successfully)?|success(?:fully)?)\b"
    r"(?: in \S+(?: \S+)?)?[\s.!]*$",
    re.IGNORECASE,
)
_TRIED_AGAIN = re.compile(r"\b(?:retry|attempt \d+|second try)\b.*\bsucceeded\b|\brecovered\b", re.IGNORECASE)
_QUOTES = re.compile(r'^\W*\w+\s?[:=]\s?"[^"]*"\W*$')
"""A line that shows a text, such as a sample of the data or what a model generated."""


def without_survived(log: Log) -> Log:
    """Return a log without the exception and the lines of failures after which its program went on.

    For a log without a record of its rank's end: the log alone must show it. A batch script's "done" proves nothing,
    since it also follows a failure; so at least one further step must stand between.
    """
    tail, raised = log.scan.tail, log.traceback
    if raised is not None and not _went_on(tail, raised.last):
        return log  # an exception ended it, and what stands above may be why
    hits = tuple(hit for hit in log.scan.hits if not _QUOTES.match(hit.line) and not _went_on(tail, _place(hit, log)))
    return replace(log, scan=replace(log.scan, hits=hits), traceback=None)


def _place(hit: Hit, log: Log) -> int | None:
    """Return the position of a line in the tail; None for one that is needed although the program went on."""
    first = log.scan.first_tail_line
    if first is None or hit.number is None or hit.rule.level == "caught" or hit.rule.states:
        return None
    return max(-1, hit.number - first)


def _went_on(tail: Sequence[str], place: int | None) -> bool:
    if place is None:
        return False
    after = [line for line in tail[place + 1 :] if line.strip()]
    if any(map(_TRIED_AGAIN.search, after[:_SOON])):
        return True
    steps = sum(_STEP.search(line) is not None for line in after)
    return steps >= _STEPS or (steps > 0 and any(map(_DONE.search, after[-_LAST:])))
