"""The command line as it was typed: hpcrun's part, the script's part, and what stands on the wrong side."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from typer.models import OptionInfo

from hpcrun.actions.ports import Typed
from hpcrun.cli.context import Context
from hpcrun.errors import UsageError
from hpcrun.job.launch_options import takes_no_value
from hpcrun.job.launchers import find_calls
from hpcrun.job.quoting import quote_bash

# Of the options with one letter those that few scripts have; the others are often the script's own.
_SHORT = {"-P": "--profile", "-G": "--gpus", "-N": "--nodes"}
_DRY_RUN = "--dry-run"
MANY = 2
"""Of an option that may be repeated: every value counts."""
Options = Mapping[str, int]
"""The options of a command, each with how many values follow it: 0, 1 or ``MANY``."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """hpcrun's options behind the script, each with its value, and what is left of the arguments."""

    options: tuple[str, ...]
    names: tuple[str, ...]
    args: tuple[str, ...]


def with_typed(context: Context, values: Mapping[str, Any], options: Options) -> Context:
    """Return the context with the command line that asks for SCRIPT, and a note on options of hpcrun behind SCRIPT."""
    script, args = values["script"], tuple(values.get("args") or ())
    words = tuple(sys.argv[1:])
    if words[len(words) - 1 - len(args) :] != (script, *args):  # called by a program, not typed
        return context
    words = words[: len(words) - 1 - len(args)]
    if words and words[-1] == "--":  # all behind it is the script's, and meant so
        return replace(context, typed=Typed(words[:-1]))
    behind = find_misplaced(args, options)
    # the options of a launcher are converted, or refused, with it
    if not behind.names or find_calls((script, *args), lambda _: None):
        return replace(context, typed=Typed(words))
    text = _program_text(values, context)
    lost = [name for name in behind.names if not defines_option(text, name)]
    if lost:
        behind = find_misplaced(args, {name: options[name] for name in lost})
    line = _line("hpcrun", *last_of_each((*words, *behind.options), options), script, *behind.args)
    names = f"{', '.join(behind.names)} after {script}"
    if lost:
        quoted = ", ".join(f'"{name}"' for name in lost)
        raise UsageError(
            f"{names} would go to the script, but its text has no {quoted}",
            hint=f"{line}; for the script: {_line('hpcrun', *words, '--', script, *args)}",
        )
    return replace(context, typed=Typed(words, (f"{names} went to the script; for hpcrun, write: {line}",)))


def _program_text(values: Mapping[str, Any], context: Context) -> str:
    """Return the text of SCRIPT, and of a script among its arguments: ``python train.py``."""
    from hpcrun.actions.jobs.program import file_text

    script, folder = values["script"], context.cwd / Path(values.get("workdir") or "").expanduser()
    if values.get("module"):
        path = script.replace(".", "/")
        names = [f"{path}.py", f"{path}/__main__.py"]
    else:
        names = [script, *(argument for argument in values.get("args") or () if argument.endswith((".py", ".sh")))]
    return "\n".join(file_text(folder / name) for name in names)


def defines_option(text: str, name: str) -> bool:
    """Whether a program's text defines an option: in quotes (argparse, click), or as an annotated name (typer, tyro).

    A comment or ``nodes = 2`` is not enough: the script would then ignore or refuse what hpcrun was meant to take.
    """
    variable = name.removeprefix("--").replace("-", "_")
    quoted = rf"""['"]{name}(?![\w-])"""
    annotated = rf"(?:^|[(,])\s*{variable}\s*:\s*(?:int|float|str|bool|list|Path|[A-Z]\w*\[)"
    return re.search(f"{quoted}|{annotated}" if name.startswith("--") else quoted, text, re.MULTILINE) is not None


def new_args(args: Sequence[str], run: str, *, submits: bool) -> list[str]:
    """Return a script's new arguments for resubmit, which stand behind ``--``."""
    if args[:1] == ["--"]:
        return list(args[1:])
    if submits and _DRY_RUN in args:
        rest = [arg for arg in args if arg != _DRY_RUN]
        raise UsageError(
            f"{_DRY_RUN} after -- goes to the script, and the job would be submitted",
            hint=f"{_line('hpcrun', 'resubmit', _DRY_RUN, run, '--', *rest)}; if the script needs it: "
            f"{_line('hpcrun', 'resubmit', run, '--', '--', *args)}",
        )
    return list(args)


def option_names(command: Any) -> dict[str, int]:
    """Return the options of a command, the long ones and a few short ones, each with its values: none, one or MANY."""
    names: dict[str, int] = {}
    for parameter in inspect.signature(command).parameters.values():
        type_ = str(parameter.annotation)
        values = MANY if "list[" in type_ else int(parameter.annotation is not bool and "[bool," not in type_)
        for info in (parameter.default, *get_args(parameter.annotation)):
            # in an annotation typer takes its first name for the default
            texts = (info.default, *(info.param_decls or ())) if isinstance(info, OptionInfo) else ()
            for name in (part for text in texts if isinstance(text, str) for part in text.split("/")):
                if name.startswith("--") or name in _SHORT:
                    names[name] = values
    return names


def find_misplaced(args: Sequence[str], options: Options) -> Misplaced:
    """Find hpcrun's options among a script's arguments."""
    moved, names, kept = list[str](), list[str](), list[str]()
    rest = list(args)
    while rest:
        token = rest.pop(0)
        if token == "--":  # the script's own way to say that no options follow
            kept += [token, *rest]
            break
        name, equals, _ = token.partition("=")
        if name not in options or (equals and not options[name]):
            kept.append(token)
            continue
        names.append(name)
        moved.append(token)
        if options[name] and not equals and rest and not rest[0].startswith("-"):
            moved.append(rest.pop(0))
    return Misplaced(tuple(moved), tuple(dict.fromkeys(names)), tuple(kept))


def unknown_options(words: Sequence[str], options: Options, *, script_last: bool) -> list[tuple[str, str | None]]:
    """Return all options that a command does not have, each with the value behind its ``=``.

    With ``script_last``, what follows the first word that is no option belongs to the script.
    """
    unknown, rest = list[tuple[str, str | None]](), list(words)
    while rest and (token := rest.pop(0)) != "--":
        name, equals, value = token.partition("=")
        short = token[:2] if not token.startswith("--") else ""
        if not token.startswith("-") or token == "-":
            if script_last:
                break
        elif name in options:
            del rest[: 1 if options[name] and not equals else 0]
        elif short not in options:
            unknown.append((name, value if equals else None))
            # what follows may be its value; a script would be a word with an ending, or the last
            has_value = len(rest) > 1 and not rest[0].startswith("-") and not rest[0].endswith((".py", ".sh"))
            del rest[: 1 if has_value and not equals and not takes_no_value(name) else 0]
    return unknown


def last_of_each(words: Sequence[str], options: Options) -> tuple[str, ...]:
    """Return hpcrun's part of a command line with each option once, where it stood last: click takes the later value.

    Options that may be repeated, as ``--env`` may, and options this command does not have are kept as they are.
    """
    groups: list[tuple[str, ...]] = []
    rest = list(words)
    while rest:
        token = rest.pop(0)
        name, equals, _ = token.partition("=")
        takes_value = options.get(name, False) and not equals and bool(rest)
        groups.append((token, rest.pop(0)) if takes_value else (token,))
    first = [group[0].partition("=")[0] for group in groups]
    names = [_SHORT.get(name, name) for name in first]
    return tuple(token for place, group in enumerate(groups) for token in group
                 if names[place] not in options or options[names[place]] == MANY
                 or names[place] not in names[place + 1 :])  # fmt: skip


def _line(*words: str) -> str:
    return " ".join(map(quote_bash, words))
