"""The arguments of a program by name, and those that set a run apart from others. Pure.

hpcrun does not know the program's parser: what it reads here is only shown.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hpcrun.job.text.quoting import bash_line
from hpcrun.job.text.recognise_secrets import MASK, is_secret_option
from hpcrun.job.text.units import cut_at_word

ON = "yes"
"""The value of an option without one."""
_OPTION = re.compile(r"--?[A-Za-z_]")  # -1 and -1e-3 are values
_ASSIGNMENT = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=")  # as Hydra has them
LONGEST = 400
"""Characters of a command, or of arguments, for a person."""
_MOST_SHOWN = 4
_LONGEST_PART = 24


def named_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a program by name, in their order.

    ``--lr 0.1``, ``--lr=0.1`` and ``lr=0.1`` have the name ``lr``. An argument without a name has
    its position, from 1. An option that is given twice has both values, and an option without a
    value has ``yes``. The value of an option that takes a secret is masked.
    """
    values: dict[str, list[str]] = {}
    option = ""  # the option to which further words belong
    position = 0
    for argument in arguments:
        is_option = _OPTION.match(argument) is not None
        if is_option or _ASSIGNMENT.match(argument):
            name, equals, value = argument.partition("=")
            if is_option:
                name = name.lstrip("-")
            given = values.setdefault(name, [])
            if equals:
                given.append(value)
            option = "" if equals else name
        elif option:
            values[option].append(argument)
        elif argument != "--":
            position += 1
            values[str(position)] = [argument]
    return {name: _shown_value(name, " ".join(texts)) for name, texts in values.items()}


def _shown_value(name: str, value: str) -> str:
    if is_secret_option(name, value):
        return MASK
    return value or ON


def arguments_of(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a recorded request by name.

    The words of ``--wrap`` are arguments as well, and so are the words of each role, with the
    role's name in front. The last role has the arguments of the request itself.
    """
    named = {}
    for role in request.get("roles", ()):
        for name, value in named_arguments(role.get("command", ())).items():
            named[f"{role['name']} {name}"] = value
    wrapped = request.get("wrap")
    words = _shell_words(wrapped) if wrapped else request.get("args", ())
    return named | named_arguments(words)


def _shell_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote is not closed
        return command.split()


def program_of(request: Mapping[str, Any]) -> str:
    """Return what runs of one program have in common: the script, or the module behind ``-m``."""
    script = str(request.get("script", ""))
    return f"-m {script}" if request.get("module") else script


def command_of(request: Mapping[str, Any]) -> str:
    """Return the program of a recorded request and its arguments, quoted for a shell.

    Of several roles these are the commands of all roles.
    """
    wrapped = request.get("wrap")
    if wrapped:
        return str(wrapped)
    commands = []
    for role in request.get("roles", ()):
        if role.get("command"):
            commands.append(f"{role['name']}: {bash_line(role['command'])}")
    if request.get("script"):
        words = [request["script"], *request.get("args", ())]
        if request.get("module"):
            words.insert(0, "-m")
        commands.append(bash_line(words))
    return "; ".join(commands)


def arguments_apart(requests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each request the arguments that set it apart from the others of its program.

    The texts are for cells of a table; many are empty.
    """
    places: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        places.setdefault(program_of(request), []).append(place)
    texts = [""] * len(requests)
    for of_program in places.values():
        runs = [arguments_of(requests[place]) for place in of_program]
        for place, arguments, names in zip(of_program, runs, telling_names(runs), strict=True):
            texts[place] = short_arguments(arguments, names)
    return texts


def telling_names(runs: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Return for each run the names of the arguments that set it apart from the other runs.

    A value that more than half of the runs have is the usual one, and tells nothing.

    Args:
        runs: the arguments of each run, by name.
    """
    numbers = Counter(pair for arguments in runs for pair in arguments.items())
    most = len(runs) / 2
    telling = []
    for arguments in runs:
        telling.append([pair[0] for pair in arguments.items() if numbers[pair] <= most])
    return telling


def short_arguments(
    arguments: Mapping[str, str], names: Sequence[str], most: int = _MOST_SHOWN
) -> str:
    """Return some arguments for a cell of a table: ``lr=0.3 width=32``.

    Of more arguments than ``most`` the first are shown, and of a long path its last part.
    """
    parts = [_short(name, arguments[name]) for name in names[:most]]
    if len(names) > most:
        parts.append(f"and {len(names) - most} more")
    return cut_at_word(" ".join(parts), LONGEST)


def _short(name: str, value: str) -> str:
    label = cut_at_word(name, _LONGEST_PART)
    if value == ON:
        return f"--{label}"
    if len(value) > _LONGEST_PART and "/" in value:
        value = f"…/{value.rstrip('/').rpartition('/')[2]}"
    value = cut_at_word(value, _LONGEST_PART)
    return value if name.isdecimal() else f"{label}={value}"
