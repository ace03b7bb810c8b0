"""hpcrun resubmit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli.command_line import new_args
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.job_options import SUBMISSION
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.options import takes_job_options
from hpcrun.cli.outcome import Outcomes, note
from hpcrun.cli.output import JsonOption
from hpcrun.cli.start import (
    AfterOption,
    ChainOption,
    check_start,
    submit_job,
)
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.runs.record import Run


@takes_job_options(without=("module",))
def resubmit(
    asked: dict[str, Any],
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Job id, run id, name, or 'last'.", show_default=False, autocompletion=run_name
        ),
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- ARGS", help="New arguments of the script. Default: the same as before.", show_default=False
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start without the checkpoints of the run.", rich_help_panel=SUBMISSION)
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Submit even while the run is pending or running.", rich_help_panel=SUBMISSION),
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Submit only the failed elements of a sweep.", rich_help_panel=SUBMISSION)
    ] = False,
    after: AfterOption = None,
    chain: ChainOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script and submit nothing.", rich_help_panel=SUBMISSION)
    ] = False,
    _json: JsonOption = False,
) -> Outcomes:
    """Submit a run again; it continues from its checkpoints.

    Script, folder, profile and options stay the same.
    An option given here replaces that option of the run.
    """
    import_pydantic()
    from hpcrun.actions.jobs.resubmit import check_over, failed_of, lineage_of
    from hpcrun.actions.runs.find import find_run
    from hpcrun.views.plan import again_text

    if args and "--" not in sys.argv:
        raise UsageError(f"resubmit takes one run; unexpected: {args[0]!r}",
                         hint="write the script's arguments after --")  # fmt: skip
    if "--" in sys.argv:
        asked["args"] = new_args(args or [], run, submits=not dry_run)
    check_start(after, chain)
    context = make_context()
    found = find_run(run, context.store)
    yield note([found.note])
    new_snapshot = bool(asked["snapshot"])
    if failed:
        asked["elements"] = failed_of(found.run, context.ports)
    prepared, there = _prepare(found.run, asked, context)
    if not dry_run:
        check_over(found.run, context.ports, force=force or failed)
    lineage = lineage_of(found.run, prepared.plan, store=context.store, fresh=fresh, new_snapshot=new_snapshot)
    again = again_text(lineage, prepared.plan.workdir or there.cwd)
    yield from submit_job(prepared, there, lineage, after=after, chain=chain, again=again, dry_run=dry_run)


def _prepare(run: Run, asked: dict[str, Any], context: Context) -> tuple[Prepared, Context]:
    """Return the job of a run again, and the context as it would be in the run's folder."""
    from hpcrun.actions.jobs.resubmit import folder_of, repeated, same_python
    from hpcrun.cli.submit import prepare_job

    given = {name: value for name, value in asked.items() if value is not None and value is not False}
    if "workdir" in given:
        given["workdir"] = str(context.cwd / Path(given["workdir"]).expanduser())
    profile = given.pop("profile", None) or run.profile_file or run.profile
    # the runs folder stays the one that the run was found in
    env = {**same_python(run.plan.get("python") or {}, context.env), "HPCRUN_RUNS": str(context.store.root)}
    there = Context(env, folder_of(run.cwd, run.run_id))
    request = {**repeated(run, given, context.env), "profile": profile}
    return prepare_job(request, there), there
