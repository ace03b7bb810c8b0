"""Up to which line of a log its program went on: lines of the same shape whose numbers grow. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_NO_COUNT = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?|\b[IWEF]\d{4}\b|0x\w+|\d+[.,]\d+(?:e[-+]?\d+)?"
)
"""Numbers that grow or change by themselves: times, addresses and fractions."""
_TOKEN = re.compile(r"[A-Za-z]{2,}|\d+")
_OF_STACKS = re.compile(
    r"^hpcrun: |\bFile \"|, line \d|^\s*at |^#\d|\bframe #?\d|Timed? ?out|[Rr]etry|[Aa]ttempt|Error:|ERROR|WARN"
)
"""Lines of stacks, retries, complaints and hpcrun: their numbers grow as well."""
_LONGEST = 300
_ABOVE = 200
"""Lines above a complaint that show what progress looks like."""
_STEPS = 3
"""Lines of one shape whose numbers grow, before they count as progress."""
_BEHIND = 2
"""Lines of progress behind a failure that the program went on after."""

Counter = tuple[int, ...]
Shape = tuple[str, ...]


def read_counter(line: str) -> tuple[Shape, Counter] | None:
    """Return the words of a line and its whole numbers; None if it has none of one of them."""
    text = line[:_LONGEST]
    if _OF_STACKS.search(text):
        return None
    tokens = _TOKEN.findall(_NO_COUNT.sub(" ", text))
    words = tuple(token for token in tokens if not token.isdigit() and token not in ("nan", "inf"))
    numbers = tuple(int(token[:18]) for token in tokens if token.isdigit())
    return (words, numbers) if words and numbers else None


def progress(lines: Sequence[str], begins: int = 0) -> list[int]:
    """Return the positions of the lines that continue a count: of a shape the third and further whose numbers grow."""
    greatest: dict[Shape, tuple[Counter, int]] = {}
    found: list[int] = []
    for position in range(begins, len(lines)):
        if (read := read_counter(lines[position])) is None:
            continue
        shape, counter = read
        before, grown = greatest.get(shape, ((), 0))
        if counter > before:
            greatest[shape] = counter, grown + 1
            if grown + 1 >= _STEPS:
                found.append(position)
    return found


def survived_up_to(lines: Sequence[str], first: int) -> int:
    """Return the position up to which a program went on after whatever it complained of; -1 if that is unknown.

    Args:
        first: position of the first complaint.
    """
    if len(lines) - first <= _BEHIND:
        return -1
    found = progress(lines, max(0, first - _ABOVE))
    return found[-_BEHIND] if len(found) >= _BEHIND else -1


def ends_with_progress(lines: Sequence[str]) -> bool:
    """Whether the last lines of a log continue a count."""
    last = [position for position, line in enumerate(lines) if line.strip()][-_BEHIND:]
    return any(position in last for position in progress(lines)[-1:])


def reached(lines: Sequence[str]) -> Mapping[Shape, Counter]:
    """Return the greatest numbers of each shape of line."""
    greatest: dict[Shape, Counter] = {}
    for line in lines:
        if read := read_counter(line):
            greatest[read[0]] = max(read[1], greatest.get(read[0], ()))
    return greatest


def went_beyond(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Whether a program that was started again came further than before, by lines that both starts have."""
    before = reached(earlier)
    return any(counter > before[shape] for shape, counter in reached(later).items() if shape in before)
