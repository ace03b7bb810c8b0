"""hpcrun profile validate, diff and schema."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.output import JsonOption, show, show_json, show_rich, tell, tell_folded, write
from hpcrun.errors import ProfileError

_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name or path of a profile.", show_default=False, autocompletion=complete.profile_name
    ),
]


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|FILE]...",
            help="Profiles to check. Default: all.",
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check profiles and list all errors, each with its file, line and key.

    Exit status 3 if there is an error.
    """
    from hpcrun.actions.profiles import validate_profiles
    from hpcrun.views.profile_values import verdicts_json
    from hpcrun.views.text import one_line

    context = make_context()
    verdicts = validate_profiles(names or [], context.surroundings)
    wrong = [verdict for verdict in verdicts if verdict.mistakes]
    if as_json:
        show_json(verdicts_json(verdicts))
    else:
        show(f"{'error' if verdict.mistakes else 'ok':<6} {verdict.name}" for verdict in verdicts)
        # a mistake in what several extend is one mistake
        tell_folded(dict.fromkeys(one_line(str(mistake)) for verdict in wrong for mistake in verdict.mistakes))
        tell_folded(dict.fromkeys(one_line(f"warning: {remark}") for verdict in verdicts for remark in verdict.remarks))
        tell(dict.fromkeys(f"hint: {verdict.hint}" for verdict in wrong if verdict.hint))
    if wrong:
        names_of = ", ".join(verdict.name for verdict in wrong)
        raise ProfileError(f"profiles with errors: {names_of}") if as_json else typer.Exit(ProfileError.exit_code)


def diff(left: _Name, right: _Name, as_json: JsonOption = False) -> None:
    """Show the values that differ between two profiles."""
    from hpcrun.actions.profiles import diff_profiles
    from hpcrun.views.profile_values import diff_json, diff_table

    differences = diff_profiles(left, right, make_context().surroundings)
    if as_json:
        show_json(diff_json(differences, left, right))
    elif differences:
        show_rich(diff_table(differences, left, right))
    else:
        tell([f"{left} and {right} have the same values"])


def schema() -> None:
    """Print the JSON Schema of a profile file, for completion in editors."""
    from hpcrun.profiles.schema import profile_schema

    write(json.dumps(profile_schema(), indent=2) + "\n")
