"""Python's tracebacks in the text of a log, in every notation that training programs print them in.

Python's own (also of one process in another's message, and of exception groups), loguru's, rich's
box, IPython's, faulthandler's stack. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath, PureWindowsPath

_HEADER = "Traceback (most recent call last)"
# Monarch's, of an actor in another process
REMOTE_HEADER = "Traceback of where the remote call failed (most recent call last)"
# torch.distributed.checkpoint adds the rank
_HEADER_END = re.compile(r"\s*:(?: \(RANK (?P<rank>\d{1,7})\))?\s*")
_PLACE = re.compile(
    r'^(?:> | *)File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:, in (?P<function>.+))?$'
)
_EXCEPTION = re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Failure|Timeout)\w*(?::"
    r"|$)"
)
_ANY_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?:[A-Z_]\w*|(?<=\.)\w+)(?::|$)")
_NOT_OWN = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "/lib64/python3",
    "/lib/python2",
    "<frozen ",
    "<string>",
)
_WINDOWS_LIBRARY = "\\lib\\"
_MOST_LINES = 1500
"""Lines of a box: a header without an end costs so many."""
_MOST_BETWEEN = 12
"""Lines of other processes between two frames of a traceback."""
_LONGEST_NAME = 300
"""Characters of an exception's full name: of a longer line only the beginning is looked at, since
that is quadratic.
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def in_user_code(self) -> bool:
        """Whether it is in the user's code, and not in a library."""
        if "\\" in self.file and _WINDOWS_LIBRARY in self.file.lower():
            return False
        return not any(part in self.file for part in _NOT_OWN)

    @property
    def short(self) -> str:
        """Its file and line: ``train.py:88``, ``models/__init__.py:3``."""
        if "\\" in self.file:
            path: PurePath = PureWindowsPath(self.file)
        else:
            path = PurePath(self.file)
        if path.stem in ("__init__", "__main__"):
            parts = path.parts[-2:]
        else:
            parts = path.parts[-1:]
        return f"{'/'.join(parts)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Traceback:
    """One traceback, or the first words of a message that ended a program.

    Attributes:
        begins: position of its first line; of a chain that of the first in it.
        ends: position of the line with the exception.
        last: position of its last line.
        exception: its class and message, or the message.
        origin: the exception from which it was raised; None if there is none, or if both are the
            same.
        aftermath: a second exception, raised by accident in the handler of this one.
        stated: it is a message of the program or of a crash, and not an exception with a class.
        followed_by: the number of lines with text after it, up to a launcher's report of it.
        rank: the rank that raised it, where torch.distributed.checkpoint passes it on to all; else
            None.
        raised: how many processes that share a log raised it.
    """

    begins: int
    ends: int
    frames: tuple[Frame, ...]
    exception: str
    last: int = 0
    origin: Traceback | None = None
    aftermath: Traceback | None = None
    stated: bool = False
    followed_by: int = 0
    rank: int | None = None
    raised: int = 1

    @property
    def user_frame(self) -> Frame | None:
        """The last frame in the user's own code; None if all are in libraries."""
        return next((frame for frame in reversed(self.frames) if frame.in_user_code), None)


def is_exception_line(line: str) -> bool:
    """Return whether a line may be the end of a traceback, judged alone."""
    return _EXCEPTION.match(line[:_LONGEST_NAME]) is not None


def tracebacks(lines: Sequence[str]) -> Iterator[Traceback]:
    """Yield the tracebacks in some lines, in their order; one without its end is left out."""
    cut = _read_cut(lines)
    if cut is not None:
        yield cut
    position = 0
    while position < len(lines):
        raised = next((raised for read in _NOTATIONS if (raised := read(lines, position))), None)
        if raised is None:
            position += 1
            continue
        yield raised
        # the line of the exception may be the header of another process's traceback
        position = max(position + 1, raised.ends)


def _read_cut(lines: Sequence[str]) -> Traceback | None:
    """Read a traceback without its header, which is above the first line.

    The traceback of a deep recursion is long.
    """
    first = next(
        (place for place, line in enumerate(lines) if _HEADER in line or _PLACE.match(line)), None
    )
    if first is None or _HEADER in lines[first]:
        return None
    frames, ends = _read_frames(lines, first, "")
    if (
        ends is None
        or any(_HEADER in line for line in lines[first:ends])
        or not is_exception_line(lines[ends])
    ):
        return None
    return Traceback(first, ends, frames, lines[ends].strip(), ends)


def _read_python(lines: Sequence[str], header: int) -> Traceback | None:
    before, header_text, after = lines[header].replace(REMOTE_HEADER, _HEADER).partition(_HEADER)
    end = _HEADER_END.fullmatch(after) if header_text else None
    if end is None:
        return None
    lead = _lead(before, lines[header + 1] if header + 1 < len(lines) else "")
    frames, ends = _read_frames(lines, header + 1, lead)
    if ends is None or not _ANY_EXCEPTION.match(_without(lead, lines[ends])[:_LONGEST_NAME]):
        return None
    text = _without(lead, lines[ends]).strip()
    if ends + 1 < len(lines):
        following = _without(lead, lines[ends + 1]).strip()
    else:
        following = ""
    if text.endswith(":"):  # the message begins on the next line
        text = f"{text} {following}".rstrip()
    elif following.startswith(": "):  # srun --label cut the line
        text += following
    return Traceback(
        header, ends, frames, text, ends, rank=int(end["rank"]) if end["rank"] else None
    )


def _read_frames(
    lines: Sequence[str], first: int, lead: str
) -> tuple[tuple[Frame, ...], int | None]:
    """Return the frames from a line on, and the position of the first line behind them.

    The position is None if there is no such line.
    """
    frames: list[Frame] = []
    for position in range(first, len(lines)):
        line = _without(lead, lines[position])
        match = _PLACE.match(line)
        if match:
            frames.append(Frame(match["file"], int(match["line"]), match["function"] or ""))
        elif line.startswith("    ") and frames and not frames[-1].code:
            frames[-1] = replace(frames[-1], code=line.strip())
        elif not line.startswith(" ") and line.strip():
            before = _without(lead, lines[position - 1])
            if _PLACE.match(before) or (match := _PLACE.match(before + line)) is None:
                if _goes_on(lines, position, lead):
                    continue
                return tuple(frames), position
            # srun --label cut it
            frames.append(Frame(match["file"], int(match["line"]), match["function"] or ""))
    return tuple(frames), None


def _goes_on(lines: Sequence[str], position: int, lead: str) -> bool:
    """Whether a line within a traceback is of another process that writes into the same log."""
    for line in (_without(lead, line) for line in lines[position : position + _MOST_BETWEEN]):
        if _PLACE.match(line):
            return True
        if is_exception_line(line) or _HEADER in line:
            return False
    return False


def _without(lead: str, line: str) -> str:
    """Return a line of a traceback without what stands before each of its lines.

    This is the indentation, or who says the line.
    """
    if line.startswith(lead):
        return line[len(lead) :]
    return line if lead.strip() else line.lstrip()


def _lead(before: str, following: str) -> str:
    """Return what stands before each line of a traceback.

    The header and the line after the header tell it.
    """
    lead = following.partition('  File "')[0]
    if lead.strip():
        return lead if before.replace("+", "|").startswith(lead) else ""
    return before[: len(before) - len(before.lstrip(" "))]


_BOX_PLACE = re.compile(r"^(?P<file>\S.*):(?P<line>\d{1,9}) in (?P<function>\S*)\s*$")
_BOX_CODE = re.compile(r"^[❱>]\s*\d{1,9} (?P<code>.*)$")


def _read_rich(lines: Sequence[str], bottom: int) -> Traceback | None:
    """Read rich's box from its end: ``│ /project/train.py:7 in main │``.

    The exception stands behind the box. The box's top may be above the log's first line.
    """
    lead = len(lines[bottom]) - len(lines[bottom].lstrip())
    if not lines[bottom].startswith(("╰─", "+--"), lead):
        return None
    first = bottom
    while first > max(0, bottom - _MOST_LINES) and lines[first - 1].startswith(("│", "|"), lead):
        first -= 1
    frames: list[Frame] = []
    inside = [line[lead + 1 :].rstrip().rstrip("│|").strip() for line in lines[first:bottom]]
    for inner in inside:
        match = _BOX_PLACE.match(inner)
        if match:
            frames.append(Frame(match["file"], int(match["line"]), match["function"]))
        elif (match := _BOX_CODE.match(inner)) and frames and not frames[-1].code:
            frames[-1] = replace(frames[-1], code=match["code"].lstrip("│ ").strip())
    begins = max(0, first - 1)
    ends = next((place for place in range(bottom + 1, len(lines)) if lines[place].strip()), None)
    text = "" if ends is None else lines[ends].strip()
    has_top = _HEADER in lines[begins]
    if has_top:
        known = _ANY_EXCEPTION.match(text) is not None
    else:
        known = is_exception_line(text) and any(map(_BOX_CODE.match, inside))
    if known and ends is not None:
        return Traceback(begins, ends, tuple(frames), text, ends)
    return None


_CELL_TOP = re.compile(r"^(?P<name>[A-Za-z_][\w.]*) {2,}" + re.escape(_HEADER) + "$")
_CELL_PLACE = re.compile(
    r"^(?:File |Cell )?(?P<file>(?:[A-Za-z]:(?=\\))?[^\s:,]+(?: (?!in\b)\w+)?|In\[\d+\])"
)
_CELL_CODE = re.compile(r"^-+> (?P<line>\d{1,9}) (?P<code>.*)$")


def _read_ipython(lines: Sequence[str], header: int) -> Traceback | None:
    """Read a traceback of IPython.

    It has a rule, the exception's name before the header, and arrows at the lines of code.
    """
    top = _CELL_TOP.match(lines[header][:_LONGEST_NAME])
    if top is None:
        return None
    frames: list[Frame] = []
    place = ""
    for position in range(header + 1, min(len(lines), header + 1 + _MOST_LINES)):
        line = lines[position]
        match = _CELL_CODE.match(line)
        if match:
            frames.append(Frame(place, int(match["line"]), "", match["code"].strip()))
        elif line.startswith(top["name"]):
            return Traceback(max(0, header - 1), position, tuple(frames), line.strip(), position)
        elif line[:1].strip() and (match := _CELL_PLACE.match(line)):
            place = match["file"]
    return None


_BESIDE_STACKS = ("  ", "Python runtime", "Extension modules")
_FATAL = re.compile(r"^Fatal Python error: .+")
_STACK = re.compile(
    r"^(?P<current>Current thread|Thread) 0x\w+ (?:\[.*\] )?\(most recent call first\):"
)
_STACK_FRAME = re.compile(
    r'^  File "(?P<file>[^"]+)", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>.+)$'
)


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The stack of one thread as faulthandler prints the stack, innermost frame first.

    ``current`` tells whether the report is about this thread.
    """

    current: bool
    frames: list[Frame] = field(default_factory=list)


def read_stack_line(line: str, threads: list[ThreadStack]) -> bool:
    """Add a line of faulthandler's to the stacks above it; return whether it is one."""
    match = _STACK.match(line)
    if match:
        threads.append(ThreadStack(match["current"].startswith("Current")))
    elif (match := _STACK_FRAME.match(line)) and threads:
        number = int(match["line"]) if match["line"].isdigit() else 0
        threads[-1].frames.append(Frame(match["file"], number, match["function"]))
    return match is not None


def _read_fatal(lines: Sequence[str], header: int) -> Traceback | None:
    """Read a report of faulthandler: ``Fatal Python error`` and a stack, innermost frame first.

    The stack is that of the thread in which the error happened.
    """
    if not _FATAL.match(lines[header]):
        return None
    threads: list[ThreadStack] = []
    last = header
    for position in range(header + 1, len(lines)):
        line = lines[position]
        if (
            not read_stack_line(line, threads)
            and line.strip()
            and not line.startswith(_BESIDE_STACKS)
        ):
            break
        last = position
    frames = [frame for thread in threads if thread.current for frame in thread.frames]
    return Traceback(
        header, header, tuple(reversed(frames)), lines[header].strip(), last, stated=True
    )


_MOST_ESCAPED = 20_000
"""Characters of one line that are read as a traceback."""


def _read_escaped(lines: Sequence[str], header: int) -> Traceback | None:
    r"""Read a traceback that is a text in one line, with ``\n`` between its lines.

    It stands in a repr or in JSON.
    """
    if f"{_HEADER}:\\n" not in lines[header]:
        return None
    within = lines[header][:_MOST_ESCAPED].replace('\\"', '"').replace("\\'", "'").split("\\n")
    within[0] = f"{_HEADER}:" if within[0].endswith(f"{_HEADER}:") else ""
    raised = [one for position in range(len(within)) if (one := _read_python(within, position))]
    if not raised:
        return None
    text = re.split(r"""["'],?[)}\]]*,?$""", raised[-1].exception)[0]
    return Traceback(header, header, raised[-1].frames, text, header)


_NOTATIONS: tuple[Callable[[Sequence[str], int], Traceback | None], ...] = (
    _read_python,
    _read_rich,
    _read_ipython,
    _read_fatal,
    _read_escaped,
)
