"""The table of commands: the module of each, loaded when the command is typed, and its panel of the help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, cast

GROUP = "hpcrun.commands"
"""The group of entry points with which another package adds commands, as git and kubectl find theirs."""
_SCRIPT_LAST = {"allow_interspersed_args": False}
"""Of a command with a script: everything behind it is the script's own, as with sbatch, srun and torchrun."""


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is.

    Attributes:
        function: its function, or the typer app of a group of commands; empty for the command's own name.
        help: of a group; the docstring of a command's function is its help.
    """

    module: str
    panel: str
    function: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    help: str = ""


COMMANDS: dict[str, Command] = {
    "init": Command("hpcrun.cli.init", "Start"),
    "submit": Command("hpcrun.cli.submit", "Start", settings=_SCRIPT_LAST),
    "resubmit": Command("hpcrun.cli.resubmit", "Start"),
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
    "open": Command("hpcrun.features.trackers.open_command", "Watch", "open_"),
    "tensorboard": Command("hpcrun.features.trackers.tensorboard_command", "Watch"),
    "sync": Command("hpcrun.features.trackers.sync_command", "Watch"),
    "cancel": Command("hpcrun.cli.cancel", "Control"),
    "hold": Command("hpcrun.cli.hold", "Control"),
    "release": Command("hpcrun.cli.hold", "Control"),
    "shell": Command("hpcrun.cli.shell", "Control"),
    "notify": Command("hpcrun.features.notify.command", "Control"),
    "clean": Command("hpcrun.cli.clean", "Control"),
    "plan": Command("hpcrun.features.scaling.plan_command", "Scale", "forecast"),
    "scale": Command("hpcrun.features.scaling.scale_command", "Scale", settings=_SCRIPT_LAST),
    "report": Command("hpcrun.features.scaling.report_command", "Scale"),
    "doctor": Command("hpcrun.features.doctor.command", "Cluster"),
    "preflight": Command("hpcrun.features.preflight.command", "Cluster"),
    "nodes": Command("hpcrun.features.preflight.nodes_command", "Cluster"),
    "profile": Command("hpcrun.cli.profile", "Cluster", "app", help="Show, write and check cluster profiles."),
}
"""In the order of the help."""


def commands_of_others() -> dict[str, Command]:
    """Return the commands that other installed packages add; none of them can replace one of hpcrun's."""
    from importlib.metadata import entry_points  # only for a name that is not hpcrun's, and for the list of commands

    points = [point for point in entry_points(group=GROUP) if point.name not in COMMANDS]
    return {point.name: Command(point.module, "Other packages", point.attr) for point in points}


def help_of(name: str, command: Command) -> str:
    """Return the help of a command out of its module's bytecode: importing all commands takes longer than the help."""
    if command.help:
        return command.help
    spec = find_spec(command.module)
    code = cast(Any, spec).loader.get_code(command.module) if spec else None
    names = (command.function or name, name)
    functions = (const for const in code.co_consts if getattr(const, "co_name", None) in names) if code else ()
    function = next(iter(functions), None)
    return str(function.co_consts[0] or "") if function else ""
