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
    while queue and queue[0].startswith("-") and queue[0] != "-":  # a script on stdin
        option = [queue.pop(0)]
        name, equals, _ = option[0].partition("=")
        takes_next = known.get(name) and not equals
        if takes_next and queue:
            option.append(queue.pop(0))
        options.append(option)
    return options, queue


def value_of(verb: str, words: Sequence[str], name: str) -> str | None:
    """Return the last value of an option on the line of a command, None without the option."""
    options, _ = split_options(verb, words)
    value = None
    for option in options:
        typed, equals, behind = option[0].partition("=")
        if typed != name:
            continue
        if equals:
            value = behind
        elif len(option) > 1:
            value = option[1]
    return value


def options_of(verb: str) -> dict[str, bool]:
    """Return the options of a command such as ``scale run``, each with whether a value follows."""
    options = {}
    for param in _command(verb).params:
        has_value = not getattr(param, "is_flag", False)
        options.update({name: has_value for name in param.opts if name[0] == "-"})
    return options


def values_of(verb: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the values that the line of a command gives to its parameters, as far as it is right.

    The line has no words of a script.
    """
    context = _command(verb).make_context(verb, list(words), resilient_parsing=True)
    return dict(context.params)


def _command(verb: str) -> Any:
    command: Any = get_command(build_app([verb]))
    for name in verb.split():
        command = command.commands[name]
    return command
