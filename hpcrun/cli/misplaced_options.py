"""Options on the wrong side of SCRIPT: hpcrun's behind it, and those that no command has."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from typer.models import OptionInfo

from hpcrun.actions.ports import Typed
from hpcrun.cli.context import Context
from hpcrun.errors import UsageError
from hpcrun.files.reading import file_text
from hpcrun.job.launch_options import takes_no_value
from hpcrun.job.launcher.launchers import find_calls
from hpcrun.job.text.quoting import bash_line

# hpcrun's short options that few scripts have; the others are often the script's own.
_SHORT = {"-P": "--profile", "-G": "--gpus", "-N": "--nodes"}
MANY = 2
"""Of an option that may be repeated: every value counts."""
Options = Mapping[str, int]
"""The options of a command, each with how many values follow it: 0, 1 or ``MANY``."""


def with_typed(context: Context, values: Mapping[str, Any], options: Options) -> Context:
    """Return the context with the command line that requests SCRIPT.

    A note tells about options of hpcrun behind SCRIPT.

    Raises:
        UsageError: options of hpcrun stand behind SCRIPT, and the script's text has no such option.
    """
    script = values["script"]
    args = tuple(values.get("args") or ())
    words = tuple(sys.argv[1:])
    if words[len(words) - 1 - len(args) :] != (script, *args):  # called by a program
        return context
    words = words[: len(words) - 1 - len(args)]
    if words and words[-1] == "--":  # all words behind it belong to the script
        return replace(context, typed=Typed(words[:-1]))
    behind = list(option_groups(args, options))
    names = list(dict.fromkeys(name for name, _ in behind if name))
    # the options of a launcher are converted, or refused, with it; --role ends hpcrun's own options
    if not names or values.get("roles") or find_calls((script, *args), lambda _: None):
        return replace(context, typed=Typed(words))
    text = _program_text(values, context)
    lost = [name for name in names if not defines_option(text, name)]
    moved = lost or names
    before = [*option_groups(words, options), *(group for group in behind if group[0] in moved)]
    left = [token for name, group in behind if name not in moved for token in group]
    line = bash_line(("hpcrun", *last_of_each(before, options), script, *left))
    listed = f"{', '.join(moved)} after {script}"
    if lost:
        quoted = ", ".join(f'"{name}"' for name in lost)
        raise UsageError(
            f"{listed} would go to the script, but its text has no {quoted}",
            hint=f"{line}; for the script: {bash_line(('hpcrun', *words, '--', script, *args))}",
        )
    return replace(
        context, typed=Typed(words, (f"{listed} went to the script; for hpcrun, write: {line}",))
    )


def _program_text(values: Mapping[str, Any], context: Context) -> str:
    """Return the text of SCRIPT, and of a script among its arguments: ``python train.py``."""
    script = values["script"]
    folder = context.cwd / os.path.expanduser(values.get("workdir") or "")
    if values.get("module"):
        path = script.replace(".", "/")
        names = [f"{path}.py", f"{path}/__main__.py"]
    else:
        names = [
            script,
            *(
                argument
                for argument in values.get("args") or ()
                if argument.endswith((".py", ".sh"))
            ),
        ]
    return "\n".join(file_text(folder / name) for name in names)


def defines_option(text: str, name: str) -> bool:
    """Return whether a program's text defines an option.

    The option stands in quotes (argparse, click), or as an annotated name (typer, tyro). A comment
    or ``nodes = 2`` is not enough: the script would then ignore or refuse what hpcrun was meant to
    take.
    """
    variable = name.removeprefix("--").replace("-", "_")
    quoted = rf"""['"]{name}(?![\w-])"""
    annotated = rf"(?:^|[(,])\s*{variable}\s*:\s*(?:int|float|str|bool|list|Path|[A-Z]\w*\[)"
    return (
        re.search(f"{quoted}|{annotated}" if name.startswith("--") else quoted, text, re.MULTILINE)
        is not None
    )


def option_names(command: Any) -> dict[str, int]:
    """Return the options of a command, each with its values: none, one or MANY.

    The options are the long ones and a few short ones.
    """
    names: dict[str, int] = {}
    for parameter in inspect.signature(command).parameters.values():
        type_ = str(parameter.annotation)
        if "list[" in type_:
            values = MANY
        else:
            values = int(parameter.annotation is not bool and "[bool," not in type_)
        for info in (parameter.default, *get_args(parameter.annotation)):
            # in an annotation typer takes its first name for the default
            if isinstance(info, OptionInfo):
                texts = (info.default, *(info.param_decls or ()))
            else:
                texts = ()
            for name in (
                part for text in texts if isinstance(text, str) for part in text.split("/")
            ):
                if name.startswith("--") or name in _SHORT:
                    names[name] = values
    return names


def option_groups(words: Sequence[str], options: Options) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Split a part of a command line into the options that a command has, and other words.

    Each option has its value. A word that is no option has no name; nor has anything behind ``--``.
    """
    rest = list(words)
    while rest:
        token = rest.pop(0)
        name, equals, _ = token.partition("=")
        if token == "--":
            yield "", (token, *rest)
            return
        if name not in options or (equals and not options[name]):
            yield "", (token,)
        elif options[name] and not equals and rest and not rest[0].startswith("-"):
            yield name, (token, rest.pop(0))
        else:
            yield name, (token,)


def unknown_options(
    words: Sequence[str], options: Options, *, script_last: bool
) -> list[tuple[str, str | None]]:
    """Return all options that a command does not have, each with the value behind its ``=``.

    With ``script_last``, what follows the first word that is no option belongs to the script.
    """
    unknown = list[tuple[str, str | None]]()
    rest = list(words)
    while rest and (token := rest.pop(0)) != "--":
        name, equals, value = token.partition("=")
        short = token[:2] if not token.startswith("--") else ""
        if not token.startswith("-") or token == "-":
            if script_last:
                break
        elif name in options:
            del rest[: 1 if options[name] and not equals else 0]
        elif short not in options:
            if short and f"-{name}" not in options and name != "-np":  # -n4, and not -gpus 4
                name = short
                equals = token[2:]
                value = token[2:].removeprefix("=")
            unknown.append((name, value if equals else None))
            # the next word may be its value; a script would have a suffix, or be the last word
            has_value = (
                len(rest) > 1
                and not rest[0].startswith("-")
                and not rest[0].endswith((".py", ".sh"))
            )
            del rest[: 1 if has_value and not equals and not takes_no_value(name) else 0]
    return unknown


def last_of_each(groups: Sequence[tuple[str, tuple[str, ...]]], options: Options) -> Iterator[str]:
    """Yield the words of a command line with each option once, where the option stood last.

    click takes the later value. Options that may be repeated, as ``--env`` may, and other words are
    kept as they are.
    """
    names = [_SHORT.get(name, name) for name, _ in groups]
    for place, (name, group) in enumerate(groups, 1):
        if not name or options[name] == MANY or _SHORT.get(name, name) not in names[place:]:
            yield from group
