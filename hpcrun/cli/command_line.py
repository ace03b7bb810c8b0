"""The typed command line: hpcrun's part and the script's; and the messages for mistakes in it."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import typer
from typer.models import OptionInfo

from hpcrun.actions.ports import Typed
from hpcrun.cli.commands import EXAMPLES
from hpcrun.cli.context import Context
from hpcrun.errors import UsageError, nearest
from hpcrun.files.reading import file_text
from hpcrun.job.launch_options import instead_of, takes_no_value
from hpcrun.job.launcher.launchers import find_calls
from hpcrun.job.text.quoting import bash_line
from hpcrun.job.text.units import error_words

# hpcrun's short options that few scripts have; the others are often the script's own.
_SHORT = {"-P": "--profile", "-G": "--gpus", "-N": "--nodes"}
MANY = 2
"""Of an option that may be repeated: every value counts."""
Options = Mapping[str, int]
"""The options of a command, each with how many values follow it: 0, 1 or ``MANY``."""
_SCRIPTS = (".py", ".sh", ".sbatch", ".slurm")
# Names of commands in other programs, Slurm's, kubectl's, docker's, sky's, and those that hpcrun's
# own had before.
_COMMANDS = {
    name: command
    for command, names in {
        "submit": "run sbatch salloc launch start create apply exec-job job qsub bsub",
        "submit --dry-run": "render script dryrun dry-run template",
        "status": "squeue sacct queue list ls ps show info jobs get describe inspect stat qstat "
        "bjobs sstat st",
        "status --gpus": "gpu nvidia-smi gpus smi stats nvtop",
        "cancel": "scancel kill stop abort qdel bkill down terminate",
        "logs": "log tail output attach cat stdout stderr",
        "explain": "why debug diagnose events",
        "clean": "rm remove delete prune purge cleanup",
        "resubmit": "retry rerun restart requeue resume",
        "hold": "pause suspend",
        "release": "unpause unhold continue",
        "shell": "ssh exec bash srun connect login sh",
        "metrics": "metric plot loss",
        "sweep": "sweeps best",
        "profile": "profiles config cluster clusters",
        "profile trust": "trust allow",
        "where": "sprio queue-time eta",
        "scale plan": "plan forecast estimate cost",
        "scale run": "benchmark scaling study",
        "scale report": "report",
        "doctor": "sinfo check verify health",
        "preflight": "nccl-test nccl-tests nodecheck",
        "history": "sreport usage efficiency seff sshare",
        "open": "wandb mlflow aim",
        "open --tensorboard": "tensorboard tb",
        "open --upload": "sync upload",
        "init": "setup configure install",
        "top": "htop watch dashboard ui",
    }.items()
    for name in names.split()
}


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


def usage_error(
    error: typer.TyperException, words: Sequence[str], commands: Sequence[str]
) -> UsageError:
    """Return typer's failure with a proposal if there is one, and the command's own help."""
    names = _names(getattr(error, "ctx", None), words)
    own_help = " ".join(["hpcrun", *names, "--help"])
    message = error.format_message()
    if getattr(error, "message", "").startswith("No such option"):
        return _unknown_options(error, names, words, own_help)
    if message.startswith("No such command") and not names:
        return _unknown_command(message, words, commands)
    number = _wrong_number(error, own_help)
    if number:
        return number
    if message.startswith("Missing"):
        examples = EXAMPLES.get(" ".join(names))
    else:
        examples = None
    if not examples:
        return UsageError(message, hint=own_help)
    return UsageError(
        message, hint=f"for example: {examples[0][0]}; `{own_help}` shows all options"
    )


def _wrong_number(error: typer.TyperException, own_help: str) -> UsageError | None:
    """Return the failure of an option whose value is no number, or out of bounds.

    typer's message is pydantic's, and names neither the value nor what to type.

    Returns:
        The failure; None for other failures.
    """
    options = getattr(getattr(error, "param", None), "opts", ())
    details = getattr(error.__cause__, "errors", None)
    if not options or not callable(details):
        return None
    detail = details()[0]
    if not detail["type"].startswith(("int_", "float_", "greater_", "less_")):
        return None
    option = max(options, key=len)
    value = str(detail["input"])
    words = error_words(detail).replace("must be a ", "is not a ")
    return UsageError(f"{option}: {value!r} {words}", hint=own_help)


def _names(context: Any, words: Sequence[str]) -> list[str]:
    """Return the names of the command and its group.

    The command line gives the names if typer does not tell.
    """
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    plain = [token for token in words if not token.startswith("-")]
    if names or not plain:
        return names
    return next(
        (list(plain[:length]) for length in (2, 1) if " ".join(plain[:length]) in EXAMPLES), []
    )


def _unknown_command(message: str, words: Sequence[str], commands: Sequence[str]) -> UsageError:
    typed = next((token for token in words if not token.startswith("-")), "")
    if typed.endswith(_SCRIPTS):
        return UsageError(
            f"{typed} is not a command", hint=f"to submit it: hpcrun submit {shlex.join(words)}"
        )
    close = _COMMANDS.get(typed) or nearest(typed, list(commands))
    listing = "`hpcrun --help` lists the commands"
    message = message.partition(" Did you mean")[0]  # typer does not know commands by other names
    return UsageError(message, hint=f"did you mean hpcrun {close}? {listing}" if close else listing)


def _unknown_options(
    error: Any, names: Sequence[str], words: Sequence[str], own_help: str
) -> UsageError:
    """Return the failure that names all unknown options of the line.

    For each option, the failure also says what to write instead.
    """
    if not names and any(token.endswith(_SCRIPTS) for token in words):
        line = shlex.join(words)
        return UsageError(
            f"hpcrun {line} names no command", hint=f"to submit a script: hpcrun submit {line}"
        )
    command = error.ctx.command
    known = {
        name: not param.is_flag
        for param in command.params
        if param.param_type_name == "option"
        for name in (*param.opts, *param.secondary_opts)
    }
    known |= {"--help": False, "-h": False}
    for name in names:
        words = words[words.index(name) + 1 :] if name in words else words
    unknown = unknown_options(words, known, script_last=not command.allow_interspersed_args)
    if error.option_name not in [form for name, _ in unknown for form in (name, name[:2])]:
        unknown.insert(0, (error.option_name, None))
    advice = {
        name: instead_of(name, value, " ".join(names), list(known)) for name, value in unknown
    }
    listing = f"`{own_help}` lists all options"
    if len(advice) == 1:
        ((name, advised),) = advice.items()
        advised = advised and f"{advised}{'' if advised.endswith('?') else ';'} {listing}"
        return UsageError(f"No such option: {name}", hint=advised or own_help)
    lines = (f"  {name}: {advised}" if advised else f"  {name}" for name, advised in advice.items())
    return UsageError("\n".join(["No such options:", *lines]), hint=listing)
