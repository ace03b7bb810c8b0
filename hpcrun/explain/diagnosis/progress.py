"""How far a program came, by its own lines: those that say the same again with other numbers.

What stands above the last few of them is history: whatever failed there, the program went on. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_LONGEST = 300
_STEPS = 3
"""Steps that prove that a program went on: after one rank has failed, another one may still print
one or two.
"""
_DONE_WITHIN = 3
"""Lines at the end of a log in which a program says that it is done."""
_LAST = 2
"""Lines at the end of a log that show whether its program made progress until then."""
_TIME = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T _]?|\d{1,3}(?::\d\d){1,2}(?:[.,]\d{1,9})?Z?"
    r"|\b(?:\d+h)?(?:\d+m)?\d+s\b",
    re.ASCII,
)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.ASCII)
_FILLING = re.compile(r"[#█▏▎▍▌▋▊▉=>. ]{2,}")
"""A progress bar, or the blanks in front of a number."""
_COUNTS = re.compile(
    r"\b(?:step|epoch|iter|iteration|batch|trial|episode|fold|round)\w{0,12}\b\W{0,3}\d"
    r"|\bloss\W{1,4}\d|\b\d+/\d+ \[\d",
    re.ASCII | re.IGNORECASE,
)
"""Words of programs that count their work: of these one line is enough."""
_ASIDE = re.compile(
    r"frame #|Exception raised from |\s*#\d|[^a-z]*$|[\s\W]{2,}rank +:|.*0x[0-9a-f]{4}"
    r"|.*/job:|srun: |slurmstepd: |.*NCCL |.*\bc10d?\b|\[?[EWIF]\d{3,4}[ :]|[│|╰╭]",
    re.IGNORECASE,
)
"""Lines that count something else than the program's work: stacks, reports of launchers and
libraries.
"""
_NO_STEP = re.compile(
    r"\b(?:wait|retr|pending|hang|stuck|still|timed? ?out|timeout|heartbeat|sleep|attempt|signal"
    r"|kill|exit|abort|sig|terminat|fail|error|warn|traceback|exception|pid)",
    re.IGNORECASE,
)
"""Words of programs that wait aloud or complain: such a line counts only if it also counts work."""
_DONE = re.compile(
    r"\b(?:done|finished|(?:training|job|run) (?:is )?complete|completed(?: successfully)?"
    r"|success(?:fully)?|succeeded)\b|stopped: `max_\w+=",  # Lightning's last words
    re.IGNORECASE,
)
_REPEATED = 3
"""A complaint that a program writes so often without a step between is what it waits for."""
_TRIED_AGAIN = re.compile(
    r"\b(?:retry|attempt \d+|second try)\b.*\bsucceeded\b|\brecovered\b", re.IGNORECASE
)

_WAITS = re.compile(
    r"\b(?:wait|retr[iy]|pending|stuck|still|timed? ?out|timeout|insufficient|unavailable|cannot"
    r"|could not|unable|failed|refused|lock)",
    re.IGNORECASE,
)
"""Words of programs that wait for something, or try it again."""

Shape = str
"""The words of a line, with a sign in the place of each number."""
Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """A line that shows progress.

    Attributes:
        place: the position of the line.
        counts: it counts work: steps, epochs.
    """

    place: int
    shape: Shape
    numbers: Numbers
    counts: bool


def is_aside(line: str) -> bool:
    """Whether a line is of a launcher or a library, and not of the program's work."""
    return _ASIDE.match(line[:_LONGEST]) is not None


def shape_of(line: str) -> tuple[Shape, Numbers]:
    """Return the words of a line, and its numbers; a time is neither."""
    text = _FILLING.sub(" ", _TIME.sub("", line[:_LONGEST]))
    numbers = tuple(map(float, _NUMBER.findall(text)))
    return _NUMBER.sub("#", text), numbers


def steps(lines: Sequence[str]) -> Iterator[ProgressLine]:
    """Yield the lines by which a program shows that it comes further, in their order."""
    known: dict[Shape, set[Numbers]] = {}
    for place, line in enumerate(lines):
        head = line[:_LONGEST]
        if not head or is_aside(head):
            continue
        counts = _COUNTS.search(head) is not None
        if not counts and _NO_STEP.search(head):
            continue
        shape, numbers = shape_of(head)
        before = known.setdefault(shape, set())
        is_new = numbers and numbers not in before
        if is_new and (before or counts):
            yield ProgressLine(place, shape, numbers, counts)
        before.add(numbers)


def history_ends(
    lines: Sequence[str], alarms: Sequence[int], speakers: Sequence[object] = ()
) -> int:
    """Return the position from which on a program's end is told.

    It is the position below the last alarm that the program has survived; 0 if it survived none.
    After the alarm, the program went on with what it had done before, or it counts work. What only
    begins after a failure is clean-up. Of an alarm whose like it had survived before, one step is
    enough.

    Args:
        lines: the lines of the program.
        alarms: positions of lines that complain, in their order.
        speakers: the process that wrote each line, None if it is unknown; empty if one wrote all.
            The steps of another process count where the one that complains has none of its own.
    """
    if not alarms:
        return 0
    made = list(steps(lines))
    who = speakers or [None] * len(lines)
    have_steps = {who[step.place] for step in made}
    begins = _beginnings(lines)
    recovered = [place for place, line in enumerate(lines) if _TRIED_AGAIN.search(line[:_LONGEST])]
    done = _done_at(lines)
    survived = set[Shape]()
    history = 0
    for alarm in alarms:
        after = []
        for step in made:
            went_on = begins[step.shape] < alarm
            if who[step.place] in (None, who[alarm]):
                went_on = went_on or step.counts
            elif who[alarm] in have_steps:
                went_on = False
            if step.place > alarm and went_on:
                after.append(step)
        like = shape_of(lines[alarm])[0]
        is_normal = like in survived and bool(after)
        was_recovered = bool(recovered) and recovered[-1] > alarm
        was_done = bool(after) and done > after[-1].place
        if len(after) >= _STEPS:
            survived.add(like)
        if len(after) >= _STEPS or is_normal or was_recovered or was_done:
            history = alarm + 1
        elif made and is_aside(lines[alarm]) and _said_done(lines[made[-1].place : alarm]):
            history = alarm + 1  # libraries complain while they are torn down
    return history


def _said_done(lines: Sequence[str]) -> bool:
    """Whether one of some lines ends with saying that the program is done."""
    for line in lines:
        match = _DONE.search(line[:_LONGEST])
        if match and not line[match.end() :].strip(" .!\n"):
            return True
    return False


def _beginnings(lines: Sequence[str]) -> dict[Shape, int]:
    """Return where each shape stands first."""
    first: dict[Shape, int] = {}
    for place, line in enumerate(lines):
        first.setdefault(shape_of(line)[0], place)
    return first


def is_done(lines: Sequence[str], place: int) -> bool:
    """Whether a program says below a line, and at its end, that it is done."""
    return _done_at(lines) > place


def _done_at(lines: Sequence[str]) -> int:
    """Return where a program says at its end that it is done; -1 if it does not."""
    written = [place for place, line in enumerate(lines) if line.strip()]
    for place in reversed(written[-_DONE_WITHIN:]):
        if _DONE.search(lines[place]):
            return place
    return -1


def went_beyond(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Return whether a program that was started again came further than before.

    The steps that both starts count are compared.
    """
    before = reached(earlier)
    after = reached(later)
    return any(numbers > before[shape] for shape, numbers in after.items() if shape in before)


def reached(lines: Sequence[str]) -> Mapping[Shape, Numbers]:
    """Return the greatest numbers of each kind of line that counts work."""
    greatest: dict[Shape, Numbers] = {}
    for step in steps(lines):
        if step.counts:
            greatest[step.shape] = max(step.numbers, greatest.get(step.shape, ()))
    return greatest


def ends_with_a_step(lines: Sequence[str]) -> bool:
    """Whether one of the last lines of a program goes on with what it has counted before."""
    written = [line for line in lines if line.strip()]
    return went_beyond(written[:-_LAST], written[-_LAST:])


@dataclass(frozen=True, slots=True)
class Stall:
    """A complaint that a program repeats at its end, with the same numbers and no step between.

    Attributes:
        place: the position of its first line.
        times: how often it was written.
    """

    place: int
    times: int


def last_line_is_step(lines: Sequence[str]) -> bool:
    """Whether the last line of a program is a step."""
    written = [place for place, line in enumerate(lines) if line.strip()]
    made = list(steps(lines))
    return bool(made) and made[-1].place == written[-1]


def stall_in(lines: Sequence[str]) -> Stall | None:
    """Return the complaint that a program repeats at its end; None if it made progress."""
    made = list(steps(lines))
    begins = made[-1].place + 1 if made else 0
    places: dict[tuple[Shape, Numbers], list[int]] = {}
    for place in range(begins, len(lines)):
        if _WAITS.search(lines[place][:_LONGEST]):
            places.setdefault(shape_of(lines[place]), []).append(place)
    repeated = [same for same in places.values() if len(same) >= _REPEATED]
    if not repeated:
        return None
    last = max(repeated, key=lambda same: same[-1])
    return Stall(last[0], len(last))
