"""What a person is told whose command line cannot be read: what was wrong, and what to type instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

from hpcrun.cli.command_line import unknown_options
from hpcrun.cli.examples import EXAMPLES
from hpcrun.errors import UsageError, nearest
from hpcrun.job.launch_options import instead_of
from hpcrun.job.phrases import error_words

_SCRIPTS = (".py", ".sh", ".sbatch", ".slurm")
# Names of commands in other programs: Slurm's, torchx's, sky's, docker's.
_COMMANDS = {
    **dict.fromkeys(("run", "sbatch", "launch", "start", "exec-job"), "submit"),
    **dict.fromkeys(("squeue", "sacct", "queue", "list", "ls", "ps", "show", "info", "jobs"), "status"),
    **dict.fromkeys(("scancel", "kill", "stop", "abort"), "cancel"),
    **dict.fromkeys(("log", "tail", "output", "attach"), "logs"),
    **dict.fromkeys(("why", "debug", "diagnose"), "explain"),
    **dict.fromkeys(("rm", "remove", "delete", "prune", "purge"), "clean"),
    **dict.fromkeys(("retry", "rerun", "restart", "requeue", "resume"), "resubmit"),
    **dict.fromkeys(("ssh", "exec", "bash", "srun", "connect"), "shell"),
    **dict.fromkeys(("nvidia-smi", "gpus", "smi"), "gpu"),
    **dict.fromkeys(("profiles", "config", "cluster"), "profile"),
    **dict.fromkeys(("forecast", "estimate", "cost"), "plan"),
    **dict.fromkeys(("script", "dryrun", "dry-run"), "render"),
    **dict.fromkeys(("sinfo", "check"), "doctor"),
    **dict.fromkeys(("sweeps", "best"), "sweep"),
}


def usage_error(error: typer.TyperException, words: Sequence[str], commands: Sequence[str]) -> UsageError:
    """Return typer's failure with what was meant, as far as it is known, and the command's own help.

    Args:
        words: the command line behind ``hpcrun``.
        commands: the names of all commands.
    """
    names = _names(getattr(error, "ctx", None), words)
    own_help = " ".join(["hpcrun", *names, "--help"])
    message = error.format_message()
    if getattr(error, "message", "").startswith("No such option"):
        return _unknown_options(error, names, words, own_help)
    if message.startswith("No such command") and not names:
        return _unknown_command(message, words, commands)
    if number := _wrong_number(error, own_help):
        return number
    examples = EXAMPLES.get(" ".join(names)) if message.startswith("Missing") else None
    if not examples:
        return UsageError(message, hint=own_help)
    line = examples[0][1].replace("\\\n", " ").splitlines()[0]
    return UsageError(message, hint=f"for example: {' '.join(line.split())}; `{own_help}` shows all options")


def _wrong_number(error: typer.TyperException, own_help: str) -> UsageError | None:
    """Return the failure of an option whose value is no number, or out of bounds; None for other failures.

    typer's own words are pydantic's, and name neither the value nor what to type.
    """
    options = getattr(getattr(error, "param", None), "opts", ())
    details = getattr(error.__cause__, "errors", None)
    if not options or not callable(details):
        return None
    detail = details()[0]
    if not detail["type"].startswith(("int_", "float_", "greater_", "less_")):
        return None
    option, value = max(options, key=len), str(detail["input"])
    if option == "--requeue":
        return UsageError(f"{option}: {value!r} is not a number of times", hint=f"write --requeue 3; `{own_help}`")
    words = error_words(detail).replace("must be a ", "is not a ")
    return UsageError(f"{option}: {value!r} {words}", hint=own_help)


def _names(context: Any, words: Sequence[str]) -> list[str]:
    """Return the names of the command and its group, from the line where typer does not say."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    plain = [word for word in words if not word.startswith("-")]
    if names or not plain:
        return names
    return next((list(plain[:length]) for length in (2, 1) if " ".join(plain[:length]) in EXAMPLES), [])


def _unknown_command(message: str, words: Sequence[str], commands: Sequence[str]) -> UsageError:
    typed = next((word for word in words if not word.startswith("-")), "")
    if typed.endswith(_SCRIPTS):
        return UsageError(f"{typed} is not a command", hint=f"to submit it: hpcrun submit {shlex.join(words)}")
    close = _COMMANDS.get(typed) or nearest(typed, list(commands))
    listing = "`hpcrun --help` lists the commands"
    message = message.partition(" Did you mean")[0]  # typer knows no command by another name
    return UsageError(message, hint=f"did you mean hpcrun {close}? {listing}" if close else listing)


def _unknown_options(error: Any, names: Sequence[str], words: Sequence[str], own_help: str) -> UsageError:
    """Return the failure that names all unknown options of the line, and for each what to write instead."""
    if not names and any(word.endswith(_SCRIPTS) for word in words):
        line = shlex.join(words)
        return UsageError(f"hpcrun {line} names no command", hint=f"to submit a script: hpcrun submit {line}")
    command = error.ctx.command
    own = {name: not param.is_flag for param in command.params if param.param_type_name == "option"
           for name in (*param.opts, *param.secondary_opts)}  # fmt: skip
    own |= {"--help": False, "-h": False}
    for name in names:
        words = words[words.index(name) + 1 :] if name in words else words
    found = unknown_options(words, own, script_last=not command.allow_interspersed_args)
    if error.option_name not in [name for name, _ in found]:
        found.insert(0, (error.option_name, None))
    advice = {name: instead_of(name, value, " ".join(names), list(own)) for name, value in found}
    listing = f"`{own_help}` lists all options"
    if len(advice) == 1:
        ((name, said),) = advice.items()
        hint = own_help if said is None else f"{said} {listing}" if said.endswith("?") else f"{said}; {listing}"
        return UsageError(f"No such option: {name}", hint=hint)
    lines = (f"  {name}: {said}" if said else f"  {name}" for name, said in advice.items())
    return UsageError("\n".join(["No such options:", *lines]), hint=listing)
