"""hpcrun profile: its commands; list, show and path themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from hpcrun.cli import complete
from hpcrun.cli.command import Command, Group
from hpcrun.cli.context import make_context
from hpcrun.cli.examples import epilog
from hpcrun.cli.output import JsonOption, show, show_json, show_rich, tell, width
from hpcrun.cli.profile_check import diff, schema, validate
from hpcrun.cli.profile_detect import detect
from hpcrun.cli.profile_edit import edit, new, set_, unset
from hpcrun.cli.profile_env import env
from hpcrun.profiles.folder import Folder, folders_of

app = typer.Typer(cls=Group, help="Show, write and check cluster profiles.", no_args_is_help=True)


@app.command("list", cls=Command, epilog=epilog("profile list"))
def list_(as_json: JsonOption = False) -> None:
    """List the profiles; * marks the default profile."""
    from hpcrun.actions.profiles import list_profiles
    from hpcrun.views.profiles import profiles_json, profiles_table

    context = make_context()
    rows = list_profiles(context.surroundings)
    if as_json:
        show_json(profiles_json(rows))
    else:
        table, folders = profiles_table(rows, context.profile_paths, width())
        show_rich(table)
        show(["", *folders] if folders else [])
        tell(f"hpcrun: {row.problem}" for row in rows if row.problem)


@app.command("show", cls=Command, epilog=epilog("profile show"))
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
    as_json: JsonOption = False,
) -> None:
    """Show the values of a profile, with those it inherits."""
    from hpcrun.actions.profiles import show_profile
    from hpcrun.views.profile_values import origins_json, origins_table
    from hpcrun.views.profiles import profile_yaml
    from hpcrun.views.text import one_line

    context = make_context()
    loaded = show_profile(name, context.surroundings)
    values = loaded.profile.model_dump(exclude_defaults=True)
    if as_json:
        origins = {"origins": origins_json(loaded)} if origin else {}
        show_json({"kind": "profile", "path": str(loaded.path), "profile": values, **origins})
        return
    if origin:
        table, folders = origins_table(loaded, context.profile_paths, width())
        show_rich(table)
        show(["", *folders] if folders else [])
        return
    show([one_line(f"# {loaded.path}"), profile_yaml(values)])


@app.command("path", cls=Command, epilog=epilog("profile path"))
def path() -> None:
    """List the folders of profiles and templates, in order of precedence."""
    surroundings = make_context().surroundings
    folders = [("profiles", folder) for folder in folders_of(surroundings.profile_folders)]
    folders += [("templates", folder) for folder in folders_of(surroundings.template_folders)]
    show(f"{kind:<10} {folder.path}{_remark(folder)}" for kind, folder in folders)


def _remark(folder: Folder) -> str:
    if not folder.path.is_dir():
        return "  (not there)"
    return "  (not used)" if folder.withheld else ""


_ELSEWHERE: dict[str, Callable[..., None]] = {
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
    app.command(_name, cls=Command, epilog=epilog(f"profile {_name}"))(_command)
