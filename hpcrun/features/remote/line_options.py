"""The options of a command line that another machine will read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from hpcrun.cli.main import build_app


def split_options(verb: str, words: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Return the options of a command, each with its value, and the words behind the options.

    These words begin with the first word that is no option.
    """
    known = options_of(verb)
    queue = list(words)
    options = list[list[str]]()
    while queue and queue[0].startswith("-"):
        option = queue.pop(0)
        name, equals, _ = option.partition("=")
        options.append(
            [option, *([queue.pop(0)] if known.get(name) and not equals and queue else [])]
        )
    return options, queue


def options_of(verb: str) -> dict[str, bool]:
    """Return the options of a command, each with whether a value follows."""
    group: Any = get_command(build_app([verb]))
    params = group.commands[verb].params
    return {
        name: not getattr(param, "is_flag", False)
        for param in params
        for name in param.opts
        if name[0] == "-"
    }
