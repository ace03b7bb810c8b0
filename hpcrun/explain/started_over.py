"""Attempts compared: the newest one began where the first one had begun, which had come further."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.progress import Numbers, Shape, shape_of, steps
from hpcrun.explain.evidence import Evidence
from hpcrun.files.reading import open_regular
from hpcrun.job.run_paths import RoleRanks, RunFolder
from hpcrun.job.text.units import cut_at_word, rank_text
from hpcrun.runs.attempt import RESTART_BEGINS, Attempt, attempts, ranks
from hpcrun.runs.log_files import rank_log
from hpcrun.runs.silence import STREAMS

LOAD_CHECKPOINT = (
    "let the program load its newest checkpoint at each start: $HPCRUN_CHECKPOINT_DIR is the same "
    "folder in all attempts (checkpoint_dir() of hpcrun_runtime)"
)
_READ = 32 << 10
"""Bytes that are read at the beginning of a log, and at its end."""
_MOST_ATTEMPTS = 5
_LEAST = 5
"""Lines that count in the first attempt: one that came less far may have saved nothing."""
_ALIKE = 3
"""Lines that count in the newest attempt: a bar may begin at 0, and jump to the step that was
loaded."""
_LONGEST = 160
_UNIT = re.compile(r"step|epoch|iter|batch|trial|episode|fold|round", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StartedOver:
    """A sentence that says that the newest attempt started over, and the lines that show it."""

    sentence: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class _NumberedLine:
    """A line of a log. Its number is 0 if it is not known."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of line: its stream, its shape, and how many numbers it has."""

    stream: str
    shape: Shape
    columns: int


@dataclass(frozen=True, slots=True)
class _Count:
    """A line that counts the work of a program, and its position in its log."""

    place: int
    line: _NumberedLine
    numbers: Numbers

    def __str__(self) -> str:
        text = cut_at_word(self.line.text.strip(), _LONGEST)
        return f"line {self.line.number}: {text}" if self.line.number else text


_Counts = Mapping[_Kind, Sequence[_Count]]


def started_over(item: RunStatus, role: RoleRanks | None = None) -> StartedOver | None:
    """Return that the newest attempt began where the first one did, although that came further.

    None if this is not certain. Not compared are attempts that count nothing, and those of a run
    that continues from the checkpoints of another one: its first attempt may have loaded one.
    """
    element = RunFolder(item.folder).element(item.element or 0)
    begun = list(attempts(item.folder, item.element or 0, role))
    if len(begun) < 2 or element.checkpoints.is_symlink():
        return None
    newest = begun[0]
    of_newest = ranks(newest.folder)
    for rank in dict.fromkeys([*of_newest[:1], *of_newest[-1:]]):  # those that mostly report steps
        after = _counts_of(newest, rank)
        if not after:
            continue
        for first in begun[:0:-1][:_MOST_ATTEMPTS]:  # one that counted nothing has saved nothing
            before = _counts_of(first, rank)
            if before and _was_done(first):
                return None
            if before:
                return _compared(first, before, newest, after, rank)
    return None


def _was_done(attempt: Attempt) -> bool:
    """Whether an attempt completed, and a person has requeued its job."""
    return attempt.exit is not None and attempt.exit.status == 0 and not attempt.exit.reason


def _counts_of(attempt: Attempt, rank: int) -> _Counts:
    """Return the lines of a rank that count its work, until torchrun restarted it."""
    counts: dict[_Kind, list[_Count]] = {}
    for stream in STREAMS:
        lines: Sequence[_NumberedLine] = ()
        with suppress(OSError):
            lines = _lines(rank_log(attempt.folder, rank, stream).path)
        texts = [line.text for line in lines]
        shapes = {step.shape for step in steps(texts) if step.counts}
        for place, line in enumerate(lines):
            shape, numbers = shape_of(line.text)
            if shape in shapes:
                kind = _Kind(stream, shape, len(numbers))
                counts.setdefault(kind, []).append(_Count(place, line, numbers))
    return counts


def _lines(path: Path) -> Sequence[_NumberedLine]:
    """Return the lines of a log, each state of a bar as a line; without the middle of a long log.

    Raises:
        OSError: the log is no regular file that can be read.
    """
    with open_regular(path, links=False) as file:
        head = file.read(_READ)
        rest = file.seek(0, os.SEEK_END) - len(head)
        file.seek(-min(rest, _READ), os.SEEK_END)
        end = file.read(_READ)
    if rest <= _READ:
        head += end
        end = b""
    else:
        head = head[: head.rfind(b"\n")]
    lines = []
    for number, line in enumerate(head.decode("utf-8", "replace").split("\n"), 1):
        lines += [_NumberedLine(number, state) for state in line.split("\r")]
    for line in end.decode("utf-8", "replace").split("\n")[1:]:
        lines += [_NumberedLine(0, state) for state in line.split("\r")]
    restarts = [place for place, line in enumerate(lines) if line.text.startswith(RESTART_BEGINS)]
    return lines[: restarts[0]] if restarts else lines


def _compared(
    first: Attempt, before: _Counts, newest: Attempt, after: _Counts, rank: int
) -> StartedOver | None:
    """Return that an attempt repeats the steps of the first one; None if it may not."""
    for kind in before.keys() & after.keys():
        begin = after[kind][0].numbers[0]
        if begin.is_integer() and begin > before[kind][0].numbers[0]:
            return None  # an epoch goes on, and its steps begin anew
    counters = _last_counters(before)
    for kind, column in counters.items():
        if not _repeats(before[kind], after.get(kind, ()), column):
            return None
    if not counters:
        return None
    kind, column = next(iter(counters.items()))
    name = _unit(kind, column)
    begin = after[kind][0].numbers[column]
    reached = before[kind][-1].numbers[column]
    sentence = (
        f"attempt {newest.number + 1} started over at {name} {begin:.0f}, although attempt "
        f"{first.number + 1} had come to {name} {reached:.0f}: the checkpoints are not loaded"
    )
    shown = []
    for attempt, counts in ((first, before[kind]), (newest, after[kind])):
        where = rank_log(attempt.folder, rank, kind.stream).path.relative_to(attempt.folder.run)
        who = f"attempt {attempt.number + 1}, {rank_text(rank, role=attempt.folder.role)}"
        shown.append(Evidence(who, str(where), (str(counts[0]), str(counts[-1]))))
    return StartedOver(sentence, tuple(shown))


def _last_counters(before: _Counts) -> Mapping[_Kind, int]:
    """Return what an attempt counted last, in each of its streams, and which number counts.

    What it counted before that, such as the files that it reads, begins anew at each start.
    """
    chosen: dict[str, _Kind] = {}
    columns: dict[_Kind, int] = {}
    for kind, counts in before.items():
        column = _counter(kind, counts)
        if column is None:
            continue
        columns[kind] = column
        known = chosen.get(kind.stream)
        if known is None or counts[-1].place > before[known][-1].place:
            chosen[kind.stream] = kind
    return {kind: columns[kind] for kind in chosen.values()}


def _counter(kind: _Kind, counts: Sequence[_Count]) -> int | None:
    """Return which number of a line counts through an attempt: it is whole, rises, never falls."""
    if len(counts) < _LEAST:
        return None
    texts = kind.shape.split("#")
    named_first = sorted(range(kind.columns), key=lambda column: not _UNIT.search(texts[column]))
    for column in named_first:
        values = [count.numbers[column] for count in counts]
        is_whole = all(value.is_integer() for value in values)
        never_falls = all(one <= another for one, another in pairwise(values))
        is_percent = texts[column + 1].startswith("%")
        if is_whole and never_falls and values[0] < values[-1] and not is_percent:
            return column
    return None


def _repeats(before: Sequence[_Count], after: Sequence[_Count], column: int) -> bool:
    """Whether an attempt does what the first one did at its beginning."""
    if len(after) < _ALIKE:
        return False
    pairs = zip(before[:_ALIKE], after, strict=False)
    return all(later.numbers[column] <= earlier.numbers[column] for earlier, later in pairs)


def _unit(kind: _Kind, column: int) -> str:
    """Return what a number of a line counts: the last such word before it, or ``step``."""
    before = "".join(kind.shape.split("#")[: column + 1])
    units = _UNIT.findall(before)
    return units[-1].lower() if units else "step"
