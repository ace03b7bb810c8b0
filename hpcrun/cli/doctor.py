"""hpcrun doctor."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.output import JsonOption, show_json, show_rich, width
from hpcrun.errors import PlanError


def doctor(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Cluster profile, by name or path. Default: as submit.",
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine's setup for jobs, without a job.

    Checks Slurm, the profile, the runs folder, Python and torch in a few seconds.
    Exit status 4 if there is an error.
    """
    # pydantic looks through every installed distribution for plugins; set after the job's environment was taken
    context = make_context()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from hpcrun.actions.doctor.check_up import check_up
    from hpcrun.schedulers.detect import SlurmSite
    from hpcrun.views.doctor import checkup_json, checkup_text

    found = check_up(profile, context.surroundings, site=SlurmSite(context.env), runs=context.store.root)
    if as_json:
        show_json(checkup_json(found))
    else:
        show_rich(checkup_text(found, width()))
    if not found.ok:
        raise PlanError("a check failed") if as_json else typer.Exit(PlanError.exit_code)
