"""The messages for mistakes in a command line: the nearest option or command, and an example."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

from hpcrun.cli.commands import EXAMPLES
from hpcrun.cli.misplaced_options import unknown_options
from hpcrun.errors import UsageError, nearest
from hpcrun.job.launch_options import instead_of
from hpcrun.job.text.units import error_words

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
