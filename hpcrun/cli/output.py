"""The result of a command, and its one renderer.

The renderer prints text for people on the right stream, or one JSON document.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hpcrun.actions.hooks import hooks_of
from hpcrun.errors import HpcrunError, InterruptedByUser

if TYPE_CHECKING:
    from rich.console import RenderableType

Document = Callable[[], dict[str, Any]]
Kind = Literal["stdout", "stderr", "table", "verbatim"]
JSON_SCHEMA = 1
_BEGINNING = "{\n"  # of a document that is indented
_END = "\n}"
_PIPE_WIDTH = 400
_FOLD_LEAST = 20
# A path has up to 255 characters between two slashes; a longer word is a mistake, and nobody reads
# it.
_LONG_WORD = re.compile(r"([^\s/,'\":]{40})[^\s/,'\":]{260,}")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of a command's text; each kind has a function below that makes it."""

    kind: Kind  # the stream and the layout
    lines: tuple[str, ...] = ()
    table: RenderableType | None = None  # drawn by rich; there are no lines then


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, or of a step of a command.

    A long command yields an outcome for each step.
    """

    # makes the text for a person; not called with --json
    text: Callable[[], Iterable[TextPart]] | None = None
    # makes the JSON document, with --json alone; that of the last outcome is printed
    document: Document | None = None
    notes: Iterable[TextPart] = ()  # printed at once, with --json too
    failure: HpcrunError | None = None  # why the command failed; its exit code is the exit status
    status: int = 0  # the exit status of a command without a failure


Outcomes = Generator[Outcome, None, None]


def stdout(lines: Iterable[str]) -> TextPart:
    """Return lines for stdout."""
    return TextPart("stdout", tuple(lines))


def stderr(lines: Iterable[str]) -> TextPart:
    """Return lines for stderr: for a person, and not for the program behind a pipe."""
    return TextPart("stderr", tuple(lines))


def table(renderable: RenderableType) -> TextPart:
    """Return a table for stdout: as wide as the terminal, or as wide as it needs for a pipe."""
    return TextPart("table", table=renderable)


def verbatim(text: str) -> TextPart:
    """Return text for stdout that is printed unchanged: a script, a table for programs."""
    return TextPart("verbatim", (text,))


def note(lines: Iterable[str | None]) -> Outcome:
    """Return lines for stderr that are printed with ``--json`` too; empty lines are left out."""
    return Outcome(notes=[stderr(line for line in lines if line)])


def printed(lines: Iterable[str], document: Document | None = None) -> Outcome:
    """Return lines for stdout, and the document that ``--json`` prints instead."""
    part = stdout(lines)
    return Outcome(lambda: [part], document)


class _Answer:
    """The JSON document that this process prints at its end."""

    json = False  # --json was given: every later failure is part of the document
    document: dict[str, Any] | None = None  # None as long as there is no result
    begun: dict[str, Any] | None = None  # the first fields of the document, printed already
    # an option and its value for the commands that a text proposes, and those commands
    option: str = ""
    with_option: tuple[str, ...] = ()
    held: tuple[str, ...] = ()  # remarks on stderr that are printed before anything else is


def want_json(wanted: bool) -> bool:
    """Note whether a command asked for JSON, and return that."""
    _Answer.json = _Answer.json or wanted
    return wanted


def wants_json() -> bool:
    """Return whether a command asked for JSON."""
    return _Answer.json


def propose_with(option: str, commands: Iterable[str]) -> None:
    """Let each of these commands that a text proposes have an option from now on."""
    _Answer.option = option
    _Answer.with_option = tuple(commands)


def can_ask() -> bool:
    """Whether a user at a terminal can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", callback=want_json, is_eager=True)
]
"""The renderer needs no value of it.

A command reads it where options exclude each other or a question is skipped.
"""


def render(outcomes: Outcome | Outcomes) -> int:
    """Print the outcomes of a command, and return the exit status.

    Each outcome is printed as soon as the command yields it.
    """
    if isinstance(outcomes, Outcome):
        return show(outcomes)
    status = 0
    for outcome in outcomes:
        try:
            status = show(outcome)
        except KeyboardInterrupt as interrupt:
            # raised inside the command, whose message says what still runs
            outcomes.throw(interrupt)
    return status


def show(outcome: Outcome) -> int:
    """Print an outcome's notes and text, and return the exit status.

    With --json, the document is kept for the end instead of the text, and so is the failure.
    """
    _print_parts(outcome.notes)
    if _Answer.json:
        if outcome.document:
            _Answer.document = outcome.document()
    elif outcome.text:
        _print_parts(outcome.text())
    if outcome.failure is None:
        return outcome.status
    _show_failure(outcome.failure)
    return outcome.failure.exit_code


def begin_document(fields: Mapping[str, Any]) -> None:
    """Print the first fields of the JSON document now; :func:`finish` prints the others.

    Who ends this process before its end has these fields. Without --json nothing is printed.
    """
    if _Answer.json:
        _Answer.begun = {"schema": JSON_SCHEMA, **fields}
        text = json.dumps(_without_secrets(_Answer.begun), indent=2)
        _print(sys.stdout, f"{text.removesuffix(_END)},")


def finish(status: int = 0) -> None:
    """Print the command's JSON document, if the command has one.

    The document has what the command found, and with a bad exit status why it failed.
    """
    tell(())
    document = _Answer.document
    if document is None:
        return
    if status and not document.get("error"):
        error = {"message": f"exit status {status}", "hint": None, "exit_code": status}
        document = {**document, "error": error}
    _Answer.document = None
    begun = _Answer.begun or {}
    shown = {"schema": JSON_SCHEMA, **_without_secrets(document)}
    others = {name: value for name, value in shown.items() if name not in begun}
    text = json.dumps(others, indent=2)
    if begun:
        text = text.removeprefix(_BEGINNING)
    _print(sys.stdout, text)


def give_up_stdout() -> None:
    """Write to stdout no more, not even what is still to be flushed: there is no space for it."""
    _Answer.json = False
    _Answer.document = None
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def hold(lines: Iterable[str]) -> None:
    """Keep remarks on configuration that is not used, and print them before the next output.

    A remark that a failure repeats is not printed.
    """
    # --on may have read the configuration before
    _Answer.held = tuple(dict.fromkeys((*_Answer.held, *lines)))


def tell(lines: Iterable[str]) -> None:
    """Print lines on stderr: for prompts and logs, which are printed without an outcome."""
    _print(sys.stderr, "\n".join(lines))


def width() -> int:
    """Return how many columns there are: the terminal's, or enough for anything in a pipe."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return _PIPE_WIDTH


def write(text: str) -> None:
    """Write text to stdout as it is, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are: what a job wrote need not be text."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _print_parts(parts: Iterable[TextPart]) -> None:
    for part in parts:
        text = "\n".join(part.lines)
        if part.table is not None:
            _print_table(part.table)
        elif part.kind == "stdout":
            _print(sys.stdout, text)
        elif part.kind == "verbatim":
            write(text)
        else:
            _print(sys.stderr, text)


def _print_table(renderable: RenderableType) -> None:
    """Print a table; colours by NO_COLOR and isatty."""
    from rich.console import Console

    # height: without it rich 15 takes every dumb terminal for one of 80 columns
    console = Console(width=width(), height=25, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    lines = capture.get().splitlines()
    _print(sys.stdout, "\n".join(line.rstrip() for line in lines))


def _print_folded(lines: Iterable[str]) -> None:
    import textwrap

    if not sys.stderr.isatty():
        tell(lines)
        return
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    wrapper = textwrap.TextWrapper(
        max(columns, _FOLD_LEAST),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    folded = []
    for line in lines:
        folded += wrapper.wrap(line) or [""]
    tell(folded)


def _show_failure(error: HpcrunError) -> None:
    """Print a failure on stderr, or put it into the JSON document; secrets are masked."""
    _Answer.held = tuple(line for line in _Answer.held if not _repeats(error.message, line))
    message = _without_secrets(error.message)
    hint = _without_secrets(error.hint or None)
    if _Answer.json:
        failure = {"message": message, "hint": hint, "exit_code": error.exit_code}
        _Answer.document = {**(_Answer.document or {}), "error": failure}
        return
    message = hooks_of("remote").as_typed(message)  # before it is folded
    from hpcrun.views.text import one_line

    lines = f"hpcrun: {_shortened(message)}".expandtabs().splitlines()
    if isinstance(error, InterruptedByUser) and sys.stderr.isatty():
        lines.insert(0, "")  # the terminal has drawn ^C
    _print_folded(one_line(line) for line in lines)
    if hint:
        tell([one_line(f"hint: {_shortened(hint)}")])


def _without_secrets(value: Any) -> Any:
    from hpcrun.job.text.hide_secrets import HIDER

    return HIDER.hide_all(value)


def _repeats(message: str, remark: str) -> bool:
    """Return whether a failure is about the folder that a remark says is not used."""
    folder, is_unused, _ = remark.removeprefix("hpcrun: ").partition(" is not used: ")
    return bool(is_unused) and f"{folder}/" in message


def _shortened(text: str) -> str:
    return _LONG_WORD.sub(lambda match: f"{match[1]}... ({len(match[0])} characters)", text)


def _with_option(text: str) -> str:
    if not _Answer.option:
        return text
    commands = "|".join(_Answer.with_option)
    pattern = rf"(?<![\w./-])hpcrun (?:{commands})(?= [\w-])"
    return re.sub(pattern, lambda match: f"{match[0]} {_Answer.option}", text)


def _print(stream: Any, text: str) -> None:
    held = _Answer.held
    _Answer.held = ()
    if held:
        _print(sys.stderr, "\n".join(held))
    if not text:
        return
    is_document = _Answer.json and stream is sys.stdout
    if not is_document:  # a document is the same for everybody
        text = hooks_of("remote").as_typed(_with_option(text))
    if stream.isatty():  # where text comes from files and servers; a pipe gets it as it is
        from hpcrun.views.text import harmless

        text = harmless(text)
    stream.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
    stream.flush()
