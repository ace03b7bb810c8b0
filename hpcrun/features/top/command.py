"""hpcrun top."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.output import Outcomes
from hpcrun.errors import UsageError


def top(
    words: Annotated[
        str,
        typer.Option(
            "--filter", "-f", metavar="WORDS", help="Begin with this filter.", show_default=False
        ),
    ] = "",
) -> Outcomes:
    """Show all runs on the whole terminal, live, with keys to look closer and to cancel.

    It costs Slurm what hpcrun status --watch does. Key ? lists all keys.
    """
    context = make_context()
    _check_terminal(context.env)
    from hpcrun.features.top.reader import Reader

    reader = Reader(
        context.ports,
        context.env,
        context.rules,
        lambda profile: context.metric_patterns(profile)[0],
    )
    reader.start()
    from hpcrun.features.top.app import TopApp

    if all(os.get_terminal_size(sys.stdout.fileno())):  # a serial console has no size of its own
        # textual prefers them: a shell that exports them keeps the size it once had
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
    TopApp(reader, words).run(mouse=False)
    yield from ()


def _check_terminal(env: Mapping[str, str]) -> None:
    """Refuse what cannot be drawn on: there is no terminal, or one that cannot move its cursor.

    Raises:
        UsageError: input or output is not a terminal, or TERM names a terminal without cursor
            movement.
    """
    hint = "hpcrun status --watch shows the runs on any terminal"
    if not (sys.stdin.isatty() and sys.stderr.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "hpcrun top needs a terminal: its input or output is a file or a pipe", hint=hint
        )
    kind = env.get("TERM", "")
    if kind in ("", "dumb", "unknown"):
        raise UsageError(
            f"hpcrun top needs a terminal that can move its cursor; TERM is {kind!r}", hint=hint
        )
