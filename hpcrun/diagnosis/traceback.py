"""Python's tracebacks in the text of a log: the last one, the frame in the user's own code, and its exception."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HEADER = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$')
_EXCEPTION = re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Failure|Timeout)\w*(?::|$)"
)
_ANY_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::|$)")
_NOT_OWN = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen ", "<string>")
_MOST_FRAMES = 300
_LONGEST_NAME = 300
"""Characters of an exception's full name: only the beginning of a longer line is matched, since this is quadratic."""
_LAUNCHERS = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def own(self) -> bool:
        """Whether it is in the user's code, and not in a library."""
        return not any(part in self.file for part in _NOT_OWN)


@dataclass(frozen=True, slots=True)
class Traceback:
    """The last traceback of a log, with those to which it is chained.

    Attributes:
        begins: position of the first line of the chain.
        ends: position of the line with the exception.
        followed_by: the number of lines after it, up to the traceback of a launcher that reports it.
    """

    begins: int
    ends: int
    frames: tuple[Frame, ...]
    exception: str
    followed_by: int = 0

    @property
    def user_frame(self) -> Frame | None:
        """The last frame in the user's own code; None if all are in libraries."""
        return next((frame for frame in reversed(self.frames) if frame.own), None)


def is_exception_line(line: str) -> bool:
    """Return whether a line may be the end of a traceback, judged alone."""
    return _EXCEPTION.match(line[:_LONGEST_NAME]) is not None


def last_traceback(lines: Sequence[str]) -> Traceback | None:
    """Return the last traceback in some lines, None if there is none or it was cut off."""
    headers = [position for position, line in enumerate(lines) if line.rstrip().endswith(_HEADER)]
    end = len(lines)
    for position in reversed(headers):
        found = _read(lines, position)
        if found is None:
            continue
        ends, frames, exception = found
        if exception.startswith(_LAUNCHERS):
            end = position
            continue
        return Traceback(_chain_begins(lines, headers, position), ends, frames, exception, end - ends - 1)
    return None


def _read(lines: Sequence[str], header: int) -> tuple[int, tuple[Frame, ...], str] | None:
    indent = len(lines[header]) - len(lines[header].lstrip())
    frames: list[Frame] = []
    for position in range(header + 1, min(len(lines), header + 1 + 3 * _MOST_FRAMES)):
        line = lines[position]
        if match := _FRAME.match(line):
            frames.append(Frame(match["file"], int(match["line"]), match["function"]))
        elif line[indent:].startswith("    ") and frames and not frames[-1].code:
            code = line.strip()
            frames[-1] = Frame(frames[-1].file, frames[-1].line, frames[-1].function, code)
        elif not line[indent:].startswith(" ") and line.strip():
            return (position, tuple(frames), line.strip()) if _ANY_EXCEPTION.match(line[indent:]) else None
    return None


def _chain_begins(lines: Sequence[str], headers: Sequence[int], last: int) -> int:
    begins = last
    for position in reversed([header for header in headers if header < last]):
        between = lines[max(position, begins - 6) : begins]
        inside = lines[begins].lstrip().startswith("Original ")
        if not inside and not any(line.strip().startswith(_CHAINED) for line in between):
            break
        begins = position
    return begins
