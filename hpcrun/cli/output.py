"""Printing results and failures: text for people on the right stream, or one JSON document."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.errors import HpcrunError, InterruptedByUser

if TYPE_CHECKING:
    from rich.console import RenderableType

JSON_SCHEMA = 1
_PIPE_WIDTH = 400
_FOLD_LEAST = 20
# A path has up to 255 characters between two slashes; a longer word is a mistake, and nobody reads it.
_LONG_WORD = re.compile(r"[^\s/,'\":]{300,}")
_SHOWN_OF_WORD = 40


def show(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    _print(sys.stdout, "\n".join(lines))


def tell(lines: Iterable[str]) -> None:
    """Print lines on stderr: what a person should see and a pipe should not."""
    _print(sys.stderr, "\n".join(lines))


def tell_person(line: str) -> None:
    """Print a line on stderr where that is a terminal: what nobody needs who reads a file or a pipe."""
    if sys.stderr.isatty():
        tell([line])


def tell_folded(lines: Iterable[str]) -> None:
    """Print lines on stderr, on a terminal folded between words. Not for what one is to copy."""
    import textwrap

    if sys.stderr.isatty():
        room = max(os.get_terminal_size(sys.stderr.fileno()).columns, _FOLD_LEAST)
        fold = textwrap.TextWrapper(room, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        lines = [part for line in lines for part in fold.wrap(line) or [""]]
    tell(lines)


def show_json(document: dict[str, Any]) -> None:
    """Let this be the one JSON document that the command prints at its end; a later one replaces it."""
    _Outcome.document = document


def finish(status: int = 0) -> None:
    """Print the command's JSON document, if it has one: what it found, and with a bad exit status why it failed."""
    document = _Outcome.document
    if document is None:
        return
    if status and not document.get("error"):
        document = {**document, "error": {"message": f"exit status {status}", "hint": None, "exit_code": status}}
    _Outcome.document = None
    _print(sys.stdout, json.dumps({"schema": JSON_SCHEMA, **document}, indent=2, default=str))


def width() -> int:
    """Return how many columns there are: the terminal's, or enough for anything in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH


def show_rich(renderable: RenderableType) -> None:
    """Print a table: as wide as the terminal, or as wide as it needs for a pipe; colours by NO_COLOR and isatty."""
    from rich.console import Console

    # height: without it rich 15 takes every dumb terminal for one of 80 columns
    console = Console(width=width(), height=25, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    _print(sys.stdout, "\n".join(line.rstrip() for line in capture.get().splitlines()))


def clear_screen() -> None:
    """Begin the screen again; a pipe or file gets one table after the other."""
    if sys.stdout.isatty():
        write("\x1b[H\x1b[2J")


def write(text: str) -> None:
    """Write text to stdout as it is, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are: what a job wrote need not be text."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class _Outcome:
    """What a command came to: one document for its result and its failure, printed once and at its end.

    Attributes:
        json: the command asked for JSON: a failure anywhere behind that answers in JSON too.
        document: the result, None where there is none yet.
    """

    json = False
    document: dict[str, Any] | None = None


def want_json(wanted: bool) -> bool:
    """Note whether a command asked for JSON, and return that."""
    _Outcome.json = _Outcome.json or wanted
    return wanted


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.", callback=want_json, is_eager=True)]


def show_error(error: HpcrunError) -> None:
    """Print a failure: on stderr, or with ``--json`` in the command's document on stdout. No secret stands in it."""
    from hpcrun.job.secrets import hide_secrets

    message, hint = hide_secrets(error.message), hide_secrets(error.hint) if error.hint else None
    if _Outcome.json:
        failure = {"message": message, "hint": hint, "exit_code": error.exit_code}
        show_json({**(_Outcome.document or {}), "error": failure})
        finish(error.exit_code)
        return
    from hpcrun.views.text import one_line

    behind_ctrl_c = isinstance(error, InterruptedByUser) and sys.stderr.isatty()  # the terminal has drawn ^C
    lines = f"hpcrun: {_LONG_WORD.sub(_shortened, message)}".expandtabs().splitlines()
    tell_folded(one_line(line) for line in (["", *lines] if behind_ctrl_c else lines))
    tell([one_line(f"hint: {_LONG_WORD.sub(_shortened, hint)}")] if hint else [])


def _shortened(match: re.Match[str]) -> str:
    word = match[0]
    return f"{word[:_SHOWN_OF_WORD]}... ({len(word)} characters)"


def _print(stream: Any, text: str) -> None:
    if text:
        if stream.isatty():  # where text comes from files and servers; a pipe gets it as it is
            from hpcrun.views.text import harmless

            text = harmless(text)
        stream.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
        stream.flush()
