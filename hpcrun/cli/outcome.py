"""The result of a command: text, one JSON document, its failure. Only ``hpcrun.cli.output`` prints it."""

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
    """A piece of a command's text.

    Attributes:
        kind: the stream and the layout; each kind has a function below that makes it.
        lines: the text.
        table: drawn by rich; there are no lines then.
    """

    kind: Kind
    lines: tuple[str, ...] = ()
    table: RenderableType | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, or of a step of it: a long command yields an outcome for each step.

    Attributes:
        text: makes the text for a person; not called with ``--json``.
        document: makes the JSON document; not called without ``--json``. The last outcome's document is printed.
        notes: printed at once, with ``--json`` too.
        failure: why the command failed; its exit code is the exit status.
        failure_in_text: the text shows the failure already, and only the document needs its message.
        status: the exit status of a command without a failure.
    """

    text: Callable[[], Iterable[TextPart]] | None = None
    document: Document | None = None
    notes: Iterable[TextPart] = ()
    failure: HpcrunError | None = None
    failure_in_text: bool = False
    status: int = 0


Outcomes = Generator[Outcome, None, None]


def stdout(lines: Iterable[str]) -> TextPart:
    """Return lines for stdout."""
    return TextPart("stdout", tuple(lines))


def stderr(lines: Iterable[str]) -> TextPart:
    """Return lines for stderr: for a person, and not for the program behind a pipe."""
    return TextPart("stderr", tuple(lines))


def folded(lines: Iterable[str]) -> TextPart:
    """Return lines for stderr, folded between words on a terminal. Not for commands that are copied."""
    return TextPart("folded", tuple(lines))


def for_person(line: str) -> TextPart:
    """Return a line for stderr that is printed on a terminal only."""
    return TextPart("person", (line,))


def table(renderable: RenderableType) -> TextPart:
    """Return a table for stdout: as wide as the terminal, or as wide as it needs for a pipe."""
    return TextPart("table", table=renderable)


def verbatim(text: str) -> TextPart:
    """Return text for stdout that is printed unchanged: a script, a table for programs."""
    return TextPart("verbatim", (text,))


def cleared() -> TextPart:
    """Return a part that clears the terminal; it prints nothing into a pipe or a file."""
    return TextPart("screen")


def note(lines: Iterable[str | None]) -> Outcome:
    """Return lines for stderr that are printed with ``--json`` too; empty lines are left out."""
    return Outcome(notes=[stderr(line for line in lines if line)])


def printed(lines: Iterable[str], document: Document | None = None) -> Outcome:
    """Return lines for stdout, and the document that ``--json`` prints instead."""
    part = stdout(lines)
    return Outcome(lambda: [part], document)


def each(action: Generator[T, None, R], outcome_of: Callable[[T], Outcome]) -> Generator[Outcome, None, R]:
    """Yield an outcome for each event of an action; returns the action's result."""
    while True:
        try:
            event = next(action)
        except StopIteration as end:
            return cast("R", end.value)
        yield outcome_of(event)
