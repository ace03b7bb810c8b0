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

from hpcrun.actions.jobs.caller import Typed
from hpcrun.cli.context import Context
from hpcrun.errors import UsageError
from hpcrun.job.launch_options import takes_no_value
from hpcrun.job.launchers import find_calls
from hpcrun.job.quoting import quote_bash

# Of the options with one letter those that few scripts have; the others are often the script's own.
_SHORT = {"-P": "--profile", "-G": "--gpus", "-N": "--nodes"}
_DRY_RUN = "--dry-run"
REPEATABLE = frozenset({"--after", "--env", "--load", "--mount", "--no-sbatch", "--notify", "--sbatch", "--secret",
                        "--setup", "--snapshot-include", "--srun", "--sweep", "--torchrun"})  # fmt: skip
"""Options of which every value counts."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """hpcrun's options behind the script, each with its value, and what is left of the arguments."""

    options: tuple[str, ...]
    names: tuple[str, ...]
    args: tuple[str, ...]


def with_typed(context: Context, asked: Mapping[str, Any], options: Mapping[str, bool]) -> Context:
    """Return the context with the command line that asks for SCRIPT, and a note where hpcrun's options stand behind it.

    Args:
        asked: the values of the command, ``script`` and ``args`` among them.
        options: hpcrun's options; see ``option_names``.

    Raises:
        UsageError: one of them stands behind SCRIPT, and SCRIPT does not define it.
    """
    script, args = asked["script"], tuple(asked.get("args") or ())
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
    text = _program_text(asked, context)
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


def _program_text(asked: Mapping[str, Any], context: Context) -> str:
    """Return the text of SCRIPT, and of a script among its arguments: ``python train.py``."""
    from hpcrun.actions.jobs.program import file_text

    script, folder = asked["script"], context.cwd / Path(asked.get("workdir") or "").expanduser()
    if asked.get("module"):
        path = script.replace(".", "/")
        names = [f"{path}.py", f"{path}/__main__.py"]
    else:
        names = [script, *(word for word in asked.get("args") or () if word.endswith((".py", ".sh")))]
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
    """Return a script's new arguments for resubmit, which stand behind ``--``.

    Raises:
        UsageError: --dry-run is among them, and no second ``--`` says that it is the script's own.
    """
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


def option_names(command: Any) -> dict[str, bool]:
    """Return the options of a command, each with whether a value follows it: the long ones, and a few short ones."""
    names: dict[str, bool] = {}
    for parameter in inspect.signature(command).parameters.values():
        type_, *infos = get_args(parameter.annotation) or (None,)
        for info in infos:
            # in an annotation typer takes its first name for the default
            declared = (info.default, *(info.param_decls or ())) if isinstance(info, OptionInfo) else ()
            for name in (part for text in declared if isinstance(text, str) for part in text.split("/")):
                if name.startswith("--") or name in _SHORT:
                    names[name] = type_ is not bool
    return names


def find_misplaced(args: Sequence[str], options: Mapping[str, bool]) -> Misplaced:
    """Find hpcrun's options among a script's arguments.

    Args:
        options: each option with whether a value follows it.
    """
    moved: list[str] = []
    names: list[str] = []
    kept: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":  # the script's own way to say that no options follow
            kept += [word, *rest]
            break
        name, equals, _ = word.partition("=")
        if name not in options or (equals and not options[name]):
            kept.append(word)
            continue
        names.append(name)
        moved.append(word)
        if options[name] and not equals and rest and not rest[0].startswith("-"):
            moved.append(rest.pop(0))
    return Misplaced(tuple(moved), tuple(dict.fromkeys(names)), tuple(kept))


def unknown_options(
    words: Sequence[str], options: Mapping[str, bool], *, script_last: bool
) -> list[tuple[str, str | None]]:
    """Return all options that a command does not have, each with the value behind its ``=``.

    Args:
        words: those behind the command's name.
        options: those that the command has, each with whether a value follows it.
        script_last: what follows the first word that is no option belongs to the script.
    """
    found: list[tuple[str, str | None]] = []
    rest = list(words)
    while rest and (word := rest.pop(0)) != "--":
        name, equals, value = word.partition("=")
        short = word[:2] if not word.startswith("--") else ""
        if not word.startswith("-") or word == "-":
            if script_last:
                break
        elif name in options:
            del rest[: 1 if options[name] and not equals else 0]
        elif short not in options:
            found.append((name, value if equals else None))
            # what follows may be its value; a script would be a word with an ending, or the last
            has_value = len(rest) > 1 and not rest[0].startswith("-") and not rest[0].endswith((".py", ".sh"))
            del rest[: 1 if has_value and not equals and not takes_no_value(name) else 0]
    return found


def last_of_each(words: Sequence[str], options: Mapping[str, bool]) -> tuple[str, ...]:
    """Return hpcrun's part of a command line with each option once, where it stood last: click takes the later value.

    Options that may be repeated, as ``--env`` may, and options this command does not have are kept as they are.

    Args:
        options: each option with whether a value follows it.
    """
    groups: list[tuple[str, ...]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        takes_value = options.get(name, False) and not equals and bool(rest)
        groups.append((word, rest.pop(0)) if takes_value else (word,))
    first = [group[0].partition("=")[0] for group in groups]
    names = [_SHORT.get(name, name) for name in first]
    return tuple(word for place, group in enumerate(groups) for word in group
                 if names[place] not in options or names[place] in REPEATABLE
                 or names[place] not in names[place + 1 :])  # fmt: skip


def _line(*words: str) -> str:
    return " ".join(quote_bash(word) for word in words)
