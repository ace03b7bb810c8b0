"""hpcrun doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, table
from hpcrun.cli.output import JsonOption, width
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
    _json: JsonOption = False,
) -> Outcome:
    """Check this machine's setup for jobs, without a job.

    Checks Slurm, the profile, the runs folder, Python and torch in a few seconds.
    Exit status 4 if there is an error.
    """
    context = make_context()
    import_pydantic()
    from hpcrun.features.doctor.check_up import check_up
    from hpcrun.features.doctor.display import checkup_json, checkup_text
    from hpcrun.schedulers.cluster_facts import SlurmSite

    found = check_up(profile, context.surroundings, site=SlurmSite(context.env), runs=context.store.root)
    return Outcome(
        lambda: [table(checkup_text(found, width()))],
        lambda: checkup_json(found),
        failure=None if found.ok else PlanError("a check failed"),
        failure_in_text=True,
    )
