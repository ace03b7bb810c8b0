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

from hpcrun.cli.context import Context
from hpcrun.errors import UsageError
from hpcrun.files.reading import file_text
from hpcrun.job.launch_options import takes_no_value
from hpcrun.job.launcher.known_launchers import find_calls
from hpcrun.job.request.job_request import STDIN
from hpcrun.job.text.quoting import bash_line

# hpcrun's short options that few scripts have; the others are often the script's own.
_SHORT = {"-P": "--profile", "-G": "--gpus", "-N": "--nodes"}
SCRIPTS = (".py", ".sh", ".sbatch", ".slurm")
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
    program = (script, *(values.get("args") or ()))
    typed = tuple(sys.argv[1:])
    number_of_own = len(typed) - len(program)
    words = typed[:number_of_own]
    if typed[number_of_own:] != program:  # called by a program
        return context
    if words[-1:] == ("--",):  # all words behind it belong to the script
        return replace(context, typed=replace(context.typed, words=words[:-1]))
    behind = list(option_groups(program[1:], options))
    names = list(dict.fromkeys(name for name, _ in behind if name))
    if not names or _belong_to_others(values, program):
        return replace(context, typed=replace(context.typed, words=words))
    text = _program_text(values, context)
    lost = [name for name in names if not defines_option(text, name)]
    moved = lost or names
    before = list(option_groups(words, options))
    left: list[str] = []
    for group in behind:
        name, tokens = group
        if name in moved:
            before.append(group)
        else:
            left += tokens
    line = bash_line(("hpcrun", *last_of_each(before, options), script, *left))
    listed = f"{', '.join(moved)} after {script}"
    if lost:
        quoted = ", ".join(f'"{name}"' for name in lost)
        for_script = bash_line(("hpcrun", *words, "--", *program))
        raise UsageError(
            f"{listed} would go to the script, but its text has no {quoted}",
            hint=f"{line}; for the script: {for_script}",
        )
    remark = f"{listed} went to the script; for hpcrun, write: {line}"
    return replace(context, typed=replace(context.typed, words=words, notes=(remark,)))


def _belong_to_others(values: Mapping[str, Any], program: tuple[str, ...]) -> bool:
    """Return whether the options behind SCRIPT are a launcher's or those of --role."""
    if values.get("roles"):  # --role ends hpcrun's own options
        return True
    # the options of a launcher are converted, or refused, with the launcher
    return bool(find_calls(program, lambda _: None))


def _program_text(values: Mapping[str, Any], context: Context) -> str:
    """Return the text of SCRIPT, and of a script among its arguments: ``python train.py``."""
    script = values["script"]
    if script == STDIN:
        return context.typed.stdin or ""
    folder = context.cwd / os.path.expanduser(values.get("workdir") or "")
    if values.get("module"):
        path = script.replace(".", "/")
        names = [f"{path}.py", f"{path}/__main__.py"]
    else:
        args = values.get("args") or ()
        names = [script, *(name for name in args if name.endswith(SCRIPTS))]
    return "\n".join(file_text(folder / name) for name in names)


def defines_option(text: str, name: str) -> bool:
    """Return whether a program's text defines an option.

    The option stands in quotes (argparse, click), or as an annotated name (typer, tyro). A comment
    or ``nodes = 2`` is not enough: the script would then ignore or refuse what hpcrun was meant to
    take.
    """
    quoted = rf"""['"]{name}(?![\w-])"""
    if re.search(quoted, text):
        return True
    if not name.startswith("--"):
        return False
    variable = name.removeprefix("--").replace("-", "_")
    annotated = rf"(?:^|[(,])\s*{variable}\s*:\s*(?:int|float|str|bool|list|Path|[A-Z]\w*\[)"
    return re.search(annotated, text, re.MULTILINE) is not None


def option_names(command: Any) -> dict[str, int]:
    """Return the options of a command, each with its values: none, one or MANY.

    The options are the long ones and a few short ones.
    """
    names: dict[str, int] = {}
    for parameter in inspect.signature(command).parameters.values():
        values = _number_of_values(parameter.annotation)
        for info in (parameter.default, *get_args(parameter.annotation)):
            if isinstance(info, OptionInfo):
                for name in _typed_names(info):
                    names[name] = values
    return names


def _number_of_values(annotation: Any) -> int:
    text = str(annotation)
    if "list[" in text:
        return MANY
    if annotation is bool or "[bool," in text:
        return 0
    return 1


def _typed_names(option: OptionInfo) -> Iterator[str]:
    # in an annotation typer takes its first name for the default
    for text in (option.default, *(option.param_decls or ())):
        if isinstance(text, str):
            for name in text.split("/"):
                if name.startswith("--") or name in _SHORT:
                    yield name


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
    while rest:
        token = rest.pop(0)
        if token == "--":
            break
        if not token.startswith("-") or token == "-":
            if script_last:
                break
            continue
        known_name, equals, _ = token.partition("=")
        if known_name in options:
            if options[known_name] and not equals:
                del rest[:1]
            continue
        if not token.startswith("--") and token[:2] in options:
            continue
        name, value = _name_and_value(token, options)
        unknown.append((name, value))
        if value is None and not takes_no_value(name) and _may_be_value(rest):
            del rest[0]
    return unknown


def _name_and_value(token: str, options: Options) -> tuple[str, str | None]:
    """Return the name and the value of an option that the command does not have."""
    name, equals, value = token.partition("=")
    is_long = token.startswith("--") or f"-{name}" in options  # -gpus 4
    if not is_long and name != "-np":  # -n4
        name = token[:2]
        equals = token[2:]
        value = equals.removeprefix("=")
    return name, value if equals else None


def _may_be_value(rest: Sequence[str]) -> bool:
    """Whether the next word may be the value of an unknown option.

    A script would have a suffix, or be the last word.
    """
    if len(rest) < 2 or rest[0].startswith("-"):
        return False
    return not rest[0].endswith(SCRIPTS)


def last_of_each(groups: Sequence[tuple[str, tuple[str, ...]]], options: Options) -> Iterator[str]:
    """Yield the words of a command line with each option once, where the option stood last.

    click takes the later value. Options that may be repeated, as ``--env`` may, and other words are
    kept as they are.
    """
    long_names = [_SHORT.get(name, name) for name, _ in groups]
    for place, (name, tokens) in enumerate(groups):
        is_last = long_names[place] not in long_names[place + 1 :]
        if not name or options[name] == MANY or is_last:
            yield from tokens
