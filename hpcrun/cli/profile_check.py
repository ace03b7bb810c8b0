"""hpcrun profile validate, diff and schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, TextPart, folded, stderr, stdout, table, verbatim
from hpcrun.cli.output import JsonOption
from hpcrun.errors import ProfileError

if TYPE_CHECKING:
    from hpcrun.actions.profiles.profiles import Verdict

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
    _json: JsonOption = False,
) -> Outcome:
    """Check profiles and list all errors, each with its file, line and key.

    Exit status 3 if there is an error.
    """
    from hpcrun.actions.profiles.profiles import validate_profiles
    from hpcrun.views.profile_values import verdicts_json

    context = make_context()
    verdicts = validate_profiles(names or [], context.surroundings)
    wrong = [verdict for verdict in verdicts if verdict.mistakes]
    names_of = ", ".join(verdict.name for verdict in wrong)
    return Outcome(
        lambda: _verdicts_text(verdicts, wrong),
        lambda: verdicts_json(verdicts),
        failure=ProfileError(f"profiles with errors: {names_of}") if wrong else None,
        failure_in_text=True,
    )


def _verdicts_text(verdicts: Sequence[Verdict], wrong: Sequence[Verdict]) -> Iterator[TextPart]:
    from hpcrun.views.text import one_line

    yield stdout(f"{'error' if verdict.mistakes else 'ok':<6} {verdict.name}" for verdict in verdicts)
    # a mistake in what several extend is one mistake
    yield folded(dict.fromkeys(one_line(str(mistake)) for verdict in wrong for mistake in verdict.mistakes))
    yield folded(dict.fromkeys(one_line(f"warning: {remark}") for verdict in verdicts for remark in verdict.remarks))
    yield stderr(dict.fromkeys(f"hint: {verdict.hint}" for verdict in wrong if verdict.hint))


def diff(left: _Name, right: _Name, _json: JsonOption = False) -> Outcome:
    """Show the values that differ between two profiles."""
    from hpcrun.actions.profiles.profiles import diff_profiles
    from hpcrun.views.profile_values import diff_json, diff_table

    differences = diff_profiles(left, right, make_context().surroundings)
    same = stderr([f"{left} and {right} have the same values"])
    return Outcome(
        lambda: [table(diff_table(differences, left, right)) if differences else same],
        lambda: diff_json(differences, left, right),
    )


def schema() -> Outcome:
    """Print the JSON Schema of a profile file, for completion in editors."""
    from hpcrun.profiles.schema import profile_schema

    return Outcome(lambda: [verbatim(json.dumps(profile_schema(), indent=2) + "\n")])
