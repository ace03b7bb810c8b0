"""hpcrun profile env."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.output import JsonOption, show, show_json, width


def env(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|VARIABLE]", help="Profile or variable. Default: all variables.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain the environment variables of NCCL, torch and CUDA."""
    from hpcrun.actions.variables import ProfileVariables, all_variables, find_variables
    from hpcrun.views import variables as view

    if name is None:
        variables = all_variables()
        if as_json:
            show_json(view.variables_json(variables))
        else:
            show(view.variables_lines(variables, width()))
        return
    context = make_context()
    found = find_variables(name, context.surroundings)
    if isinstance(found, ProfileVariables):
        if as_json:
            show_json(view.profile_variables_json(found))
        else:
            show(view.profile_variables_lines(found, context.profile_paths, width()))
    elif as_json:
        show_json(view.variables_json([found]))
    else:
        show(view.variable_lines(found, width()))
