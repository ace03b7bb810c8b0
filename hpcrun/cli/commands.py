"""The table of commands: the module of each, loaded when the command is typed, and its panel of the help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, cast

GROUP = "hpcrun.commands"
"""The group of entry points with which another package adds commands, as git and kubectl find theirs."""
_SCRIPT_LAST = {"allow_interspersed_args": False}
"""Of a command with a script: everything behind it is the script's own, as with sbatch, srun and torchrun."""


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is."""

    module: str
    panel: str  # of the help
    function: str = ""  # empty for the last word of the command's name
    settings: Mapping[str, Any] = field(default_factory=dict)


COMMANDS: dict[str, Command] = {
    "init": Command("hpcrun.cli.init", "Start"),
    "submit": Command("hpcrun.cli.submit", "Start", settings=_SCRIPT_LAST),
    "resubmit": Command("hpcrun.cli.submit", "Start"),
    "import": Command("hpcrun.features.importing.command", "Start", "import_"),
    "where": Command("hpcrun.features.where.command", "Start"),
    "status": Command("hpcrun.cli.status", "Watch"),
    "top": Command("hpcrun.features.top.command", "Watch"),
    "logs": Command("hpcrun.cli.logs", "Watch"),
    "explain": Command("hpcrun.cli.explain", "Watch"),
    "metrics": Command("hpcrun.cli.metrics", "Watch"),
    "sweep": Command("hpcrun.features.sweep.command", "Watch"),
    "history": Command("hpcrun.features.history.command", "Watch"),
    "share": Command("hpcrun.features.share.command", "Watch"),
    "open": Command("hpcrun.features.trackers.command", "Watch", "open_"),
    "cancel": Command("hpcrun.cli.control", "Control"),
    "hold": Command("hpcrun.cli.control", "Control"),
    "release": Command("hpcrun.cli.control", "Control"),
    "shell": Command("hpcrun.cli.control", "Control"),
    "notify": Command("hpcrun.features.notify.command", "Control"),
    "clean": Command("hpcrun.cli.clean", "Control"),
    "scale plan": Command("hpcrun.features.scaling.command", "Scale", "forecast"),
    "scale run": Command("hpcrun.features.scaling.command", "Scale", "scale", settings=_SCRIPT_LAST),
    "scale report": Command("hpcrun.features.scaling.command", "Scale"),
    "doctor": Command("hpcrun.features.doctor.command", "Cluster"),
    "preflight": Command("hpcrun.features.preflight.command", "Cluster"),
    "nodes": Command("hpcrun.features.preflight.command", "Cluster"),
    "profile list": Command("hpcrun.cli.profile", "Cluster", "list_"),
    "profile show": Command("hpcrun.cli.profile", "Cluster"),
    "profile path": Command("hpcrun.cli.profile", "Cluster"),
    "profile new": Command("hpcrun.cli.profile_edit", "Cluster"),
    "profile set": Command("hpcrun.cli.profile_edit", "Cluster", "set_"),
    "profile unset": Command("hpcrun.cli.profile_edit", "Cluster"),
    "profile edit": Command("hpcrun.cli.profile_edit", "Cluster"),
    "profile use": Command("hpcrun.cli.profile_edit", "Cluster"),
    "profile validate": Command("hpcrun.cli.profile", "Cluster"),
    "profile diff": Command("hpcrun.cli.profile", "Cluster"),
    "profile detect": Command("hpcrun.cli.profile", "Cluster"),
    "profile env": Command("hpcrun.cli.profile", "Cluster"),
    "profile schema": Command("hpcrun.cli.profile", "Cluster"),
    "profile trust": Command("hpcrun.cli.profile_edit", "Cluster"),
}
"""In the order of the help; a name of two words is a command of a group."""
GROUPS = {
    "scale": "Forecast, measure and report how a training scales.",
    "profile": "Show, write and check cluster profiles.",
}
"""The help of each group of commands."""


def first_words(names: Iterable[str]) -> list[str]:
    """Return what is typed first for these commands: their names, or those of their groups."""
    return list(dict.fromkeys(name.split()[0] for name in names))


def commands_of_others() -> dict[str, Command]:
    """Return the commands that other installed packages add; none of them can replace one of hpcrun's."""
    from importlib.metadata import entry_points  # only for a name that is not hpcrun's, and for the list of commands

    points = [point for point in entry_points(group=GROUP) if point.name not in COMMANDS]
    return {point.name: Command(point.module, "Other packages", point.attr) for point in points}


def help_of(name: str, command: Command) -> str:
    """Return the help of a command out of its module's bytecode: importing all commands takes longer than the help."""
    spec = find_spec(command.module)
    code = cast(Any, spec).loader.get_code(command.module) if spec else None
    function_name = command.function or name
    functions = (const for const in code.co_consts if getattr(const, "co_name", None) == function_name) if code else ()
    function = next(iter(functions), None)
    return str(function.co_consts[0] or "") if function else ""
