"""hpcrun profile detect."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, stderr, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import UsageError


def detect(
    write: Annotated[
        str | None,
        typer.Option("--write", metavar="NAME", help="Save the profile under this name.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing profile; needs --write.")] = False,
    _json: JsonOption = False,
) -> Outcome:
    """Write a profile of this cluster from its Slurm configuration.

    A comment at each value names its source.
    Without --write, the profile is printed to stdout.
    """
    import platformdirs

    from hpcrun.actions.profiles.detect import detect as detect_profile
    from hpcrun.actions.profiles.detect import detect_and_write
    from hpcrun.schedulers.detect import SlurmSite
    from hpcrun.views.profiles import detected_json

    if force and write is None:
        raise UsageError("--force has no effect without --write", hint="add --write NAME")
    context = make_context()
    site = SlurmSite(context.env)
    if write is None:
        found = detect_profile(site, context.surroundings)
    else:
        folder = platformdirs.user_config_path("hpcrun") / "profiles"
        found = detect_and_write(site, context.surroundings, name=write, folder=folder, force=force)
    if found.path is None:
        lines = [found.text.rstrip("\n")]
    else:
        lines = [
            f"written  {found.path}",
            f"look     hpcrun profile show {write}",
            f"use      hpcrun submit -P {write}",
        ]
    return Outcome(
        lambda: [stderr(f"hpcrun: {warning}" for warning in found.warnings), stdout(lines)],
        lambda: detected_json(found),
    )
