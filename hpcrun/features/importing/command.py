"""hpcrun import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import PlanError
from hpcrun.job.quoting import quote_bash


def import_(
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="A batch script with #SBATCH lines.", show_default=False)
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="The script's own arguments, $1 and so on.", show_default=False),
    ] = None,
    _json: JsonOption = False,
) -> Outcome:
    """Show what `hpcrun submit` makes of an sbatch script.

    Shows the command, the lines that are changed, and what is different from
    sbatch. The script is only read, never run. Exit status 0 if hpcrun takes
    over its launch, else 4.
    """
    import_pydantic()
    from hpcrun.actions.jobs.batch_job import read_script
    from hpcrun.features.importing.display import import_json, import_lines

    context = make_context()
    found = read_script(context.cwd / script, tuple(args or ()))
    command = ["hpcrun", "submit", str(script), *(args or ())]
    failure = None
    if not found.is_complete:
        how = f"sbatch {quote_bash(str(script))}" if found.options.problems else "its ranks have no logs of their own"
        failure = PlanError(f"{script.name}: not complete", hint=how)
    return Outcome(lambda: [stdout(import_lines(found, command))], lambda: import_json(found, command), failure=failure)
