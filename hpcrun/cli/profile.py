"""hpcrun profile: its commands; list, show and path themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import complete
from hpcrun.cli.command import CliCommand, CliGroup
from hpcrun.cli.context import make_context
from hpcrun.cli.examples import epilog
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, printed, stderr, stdout, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.cli.profile_check import diff, schema, validate
from hpcrun.cli.profile_detect import detect
from hpcrun.cli.profile_edit import edit, new, set_, unset
from hpcrun.cli.profile_env import env
from hpcrun.profiles.folder import Folder, folders_of

if TYPE_CHECKING:
    from hpcrun.actions.profiles.profiles import ProfileRow
    from hpcrun.profiles.load import LoadedProfile

app = typer.Typer(cls=CliGroup, no_args_is_help=True)


@app.command("list", cls=CliCommand, epilog=epilog("profile list"))
def list_(_json: JsonOption = False) -> Outcome:
    """List the profiles; * marks the default profile."""
    from hpcrun.actions.profiles.profiles import list_profiles
    from hpcrun.views.profiles import profiles_json

    context = make_context()
    rows = list_profiles(context.surroundings)
    return Outcome(lambda: _list_text(rows, context.profile_paths), lambda: profiles_json(rows))


def _list_text(rows: Sequence[ProfileRow], paths: Mapping[str, Path]) -> Iterator[TextPart]:
    from hpcrun.views.profiles import profiles_table

    drawn, folders = profiles_table(rows, paths, width())
    yield table(drawn)
    yield stdout(["", *folders] if folders else [])
    yield stderr(f"hpcrun: {row.problem}" for row in rows if row.problem)


@app.command("show", cls=CliCommand, epilog=epilog("profile show"))
def show_(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name or path of a profile.",
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ],
    origin: Annotated[bool, typer.Option("--origin", help="Show the file and line of each value.")] = False,
    _json: JsonOption = False,
) -> Outcome:
    """Show the values of a profile, with those it inherits."""
    from hpcrun.actions.profiles.profiles import show_profile
    from hpcrun.views.profile_values import origins_json

    context = make_context()
    loaded = show_profile(name, context.surroundings)
    values = loaded.profile.model_dump(exclude_defaults=True)

    def document() -> dict[str, Any]:
        origins = {"origins": origins_json(loaded)} if origin else {}
        return {"kind": "profile", "path": str(loaded.path), "profile": values, **origins}

    if origin:
        return Outcome(lambda: _origins_text(loaded, context.profile_paths), document)
    return Outcome(lambda: _values_text(loaded, values), document)


def _origins_text(loaded: LoadedProfile, paths: Mapping[str, Path]) -> Iterator[TextPart]:
    from hpcrun.views.profile_values import origins_table

    drawn, folders = origins_table(loaded, paths, width())
    yield table(drawn)
    yield stdout(["", *folders] if folders else [])


def _values_text(loaded: LoadedProfile, values: dict[str, Any]) -> Iterator[TextPart]:
    from hpcrun.views.profiles import profile_yaml
    from hpcrun.views.text import one_line

    yield stdout([one_line(f"# {loaded.path}"), profile_yaml(values)])


@app.command("path", cls=CliCommand, epilog=epilog("profile path"))
def path() -> Outcome:
    """List the folders of profiles and templates, in order of precedence."""
    surroundings = make_context().surroundings
    folders = [("profiles", folder) for folder in folders_of(surroundings.profile_folders)]
    folders += [("templates", folder) for folder in folders_of(surroundings.template_folders)]
    return printed(f"{kind:<10} {folder.path}{_remark(folder)}" for kind, folder in folders)


def _remark(folder: Folder) -> str:
    if not folder.path.is_dir():
        return "  (not there)"
    return "  (not used)" if folder.withheld else ""


_ELSEWHERE: dict[str, Callable[..., Outcome | Outcomes]] = {
    "new": new,
    "set": set_,
    "unset": unset,
    "edit": edit,
    "validate": validate,
    "diff": diff,
    "detect": detect,
    "env": env,
    "schema": schema,
}
for _name, _command in _ELSEWHERE.items():
    app.command(_name, cls=CliCommand, epilog=epilog(f"profile {_name}"))(_command)
