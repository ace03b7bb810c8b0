"""The messages for mistakes in a command line: the nearest option or command, and an example."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

from hpcrun.cli.commands import EXAMPLES
from hpcrun.cli.misplaced_options import SCRIPTS, unknown_options
from hpcrun.cli.runs_option import READERS
from hpcrun.errors import UsageError, nearest
from hpcrun.job.launch_options import instead_of
from hpcrun.job.text.units import error_words

_OTHER_NAMES = {
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
}
"""The names that a command has in Slurm, kubectl, docker or sky, or had in hpcrun before."""


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
    wrong_number = _wrong_number(error, own_help)
    if wrong_number:
        return wrong_number
    if names == ["metrics"] and message.startswith("Got unexpected extra argument"):
        return UsageError(message, hint="hpcrun compare RUN RUN compares the metrics of runs")
    examples = EXAMPLES.get(" ".join(names))
    if examples and message.startswith("Missing"):
        line, _ = examples[0]
        return UsageError(message, hint=f"for example: {line}; `{own_help}` shows all options")
    return UsageError(message, hint=own_help)


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
    for length in (2, 1):
        first = plain[:length]
        if " ".join(first) in EXAMPLES:
            return first
    return []


def _unknown_command(message: str, words: Sequence[str], commands: Sequence[str]) -> UsageError:
    typed = next((token for token in words if not token.startswith("-")), "")
    if typed.endswith(SCRIPTS):
        line = shlex.join(words)
        return UsageError(f"{typed} is not a command", hint=f"to submit it: hpcrun submit {line}")
    hint = "`hpcrun --help` lists the commands"
    close = _command_of(typed) or nearest(typed, list(commands))
    if close:
        hint = f"did you mean hpcrun {close}? {hint}"
    message = message.partition(" Did you mean")[0]  # typer does not know commands by other names
    return UsageError(message, hint=hint)


def _command_of(other_name: str) -> str | None:
    for command, names in _OTHER_NAMES.items():
        if other_name in names.split():
            return command
    return None


def _unknown_options(
    error: Any, names: Sequence[str], words: Sequence[str], own_help: str
) -> UsageError:
    """Return the failure that names all unknown options of the line.

    For each option, the failure also says what to write instead.
    """
    if not names and any(token.endswith(SCRIPTS) for token in words):
        line = shlex.join(words)
        return UsageError(
            f"hpcrun {line} names no command", hint=f"to submit a script: hpcrun submit {line}"
        )
    command = error.ctx.command
    known = _options_of(command)
    for name in names:
        if name in words:
            words = words[words.index(name) + 1 :]
    unknown = unknown_options(words, known, script_last=not error.ctx.allow_interspersed_args)
    # of -gpus typer names -g
    named = {name for name, _ in unknown} | {name[:2] for name, _ in unknown}
    if error.option_name not in named:
        unknown.insert(0, (error.option_name, None))
    command_name = " ".join(names)
    if "--runs" in dict(unknown):
        return UsageError(
            f"{' '.join(['hpcrun', *names])} has no --runs: other runs are only read",
            hint=f"--runs FOLDER is for {', '.join(READERS)}",
        )
    advice = {}
    for name, value in unknown:
        advice[name] = instead_of(name, value, command_name, list(known))
    listing = f"`{own_help}` lists all options"
    if len(advice) == 1:
        [(name, text)] = advice.items()
        return UsageError(f"No such option: {name}", hint=_option_hint(text, listing) or own_help)
    lines = ["No such options:"]
    for name, text in advice.items():
        lines.append(f"  {name}: {text}" if text else f"  {name}")
    return UsageError("\n".join(lines), hint=listing)


def _options_of(command: Any) -> dict[str, bool]:
    """Return the options of a command, each with whether it takes a value."""
    options = {"--help": False, "-h": False}
    for param in command.params:
        if param.param_type_name == "option":
            takes_value = not param.is_flag
            options |= dict.fromkeys((*param.opts, *param.secondary_opts), takes_value)
    return options


def _option_hint(advice: str | None, listing: str) -> str | None:
    if not advice:
        return None
    if advice.endswith("?"):
        return f"{advice} {listing}"
    return f"{advice}; {listing}"
