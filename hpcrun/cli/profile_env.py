"""hpcrun profile env."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, printed
from hpcrun.cli.output import JsonOption, width


def env(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|VARIABLE]", help="Profile or variable. Default: all variables.", show_default=False
        ),
    ] = None,
    _json: JsonOption = False,
) -> Outcome:
    """Explain the environment variables of NCCL, torch and CUDA."""
    from hpcrun.actions.profiles.variables import ProfileVariables, all_variables, find_variables
    from hpcrun.views import variables as view

    if name is None:
        variables = all_variables()
        return printed(view.variables_lines(variables, width()), lambda: view.variables_json(variables))
    context = make_context()
    found = find_variables(name, context.surroundings)
    if isinstance(found, ProfileVariables):
        lines = view.profile_variables_lines(found, context.profile_paths, width())
        return printed(lines, lambda: view.profile_variables_json(found))
    return printed(view.variable_lines(found, width()), lambda: view.variables_json([found]))
