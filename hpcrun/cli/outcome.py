"""What a command came to: text for people, one JSON document, and how it failed. Only ``output`` prints it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")
R = TypeVar("R")
Document = Callable[[], dict[str, Any]]
Kind = Literal["stdout", "stderr", "folded", "person", "table", "verbatim", "screen"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of what a command says.

    Attributes:
        kind: the stream that it goes to, and how it is laid out; see the functions that make parts.
        lines: of text.
        table: what rich draws instead of lines.
    """

    kind: Kind
    lines: tuple[str, ...] = ()
    table: RenderableType | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to, or what it came to so far: a command that takes its time yields several.

    Attributes:
        text: makes what a person reads; it is not called with ``--json``.
        document: makes what ``--json`` prints; that of the last outcome counts.
        notes: said with ``--json`` as well.
        failure: why the command failed.
        is_told: the text says already why it failed.
        status: the exit status where there is no failure.
    """

    text: Callable[[], Iterable[TextPart]] | None = None
    document: Document | None = None
    notes: Iterable[TextPart] = ()
    failure: HpcrunError | None = None
    is_told: bool = False
    status: int = 0


Outcomes = Generator[Outcome, None, None]


def stdout(lines: Iterable[str]) -> TextPart:
    """Return lines for stdout."""
    return TextPart("stdout", tuple(lines))


def stderr(lines: Iterable[str]) -> TextPart:
    """Return lines for stderr: what a person should see and a pipe should not."""
    return TextPart("stderr", tuple(lines))


def folded(lines: Iterable[str]) -> TextPart:
    """Return lines for stderr, on a terminal folded between words. Not for what one is to copy."""
    return TextPart("folded", tuple(lines))


def for_person(line: str) -> TextPart:
    """Return a line for stderr where that is a terminal: what nobody needs who reads a file or a pipe."""
    return TextPart("person", (line,))


def table(renderable: RenderableType) -> TextPart:
    """Return a table for stdout: as wide as the terminal, or as wide as it needs for a pipe."""
    return TextPart("table", table=renderable)


def verbatim(text: str) -> TextPart:
    """Return text for stdout that is printed as it is: a script, a table for programs."""
    return TextPart("verbatim", (text,))


def cleared() -> TextPart:
    """Return what begins the screen again; a pipe or file gets one table after the other."""
    return TextPart("screen")


def note(lines: Iterable[str | None]) -> Outcome:
    """Return what is said on stderr at once, with ``--json`` too; lines that are empty are left out."""
    return Outcome(notes=[stderr(line for line in lines if line)])


def printed(lines: Iterable[str], document: Document | None = None) -> Outcome:
    """Return lines for stdout, and what stands for them with ``--json``."""
    part = stdout(lines)
    return Outcome(lambda: [part], document)


def each(action: Generator[T, None, R], outcome_of: Callable[[T], Outcome]) -> Generator[Outcome, None, R]:
    """Yield an outcome for each thing that an action yields; returns what the action returns."""
    while True:
        try:
            item = next(action)
        except StopIteration as end:
            return cast("R", end.value)
        yield outcome_of(item)
