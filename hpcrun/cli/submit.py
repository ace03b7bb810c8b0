"""hpcrun submit and hpcrun render."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import takes_job
from hpcrun.cli.output import JsonOption, show, show_json, tell, write
from hpcrun.errors import InterruptedByUser, JobFailedError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.submit import Prepared, SubmitResult

_NOW = "What happens now"


@takes_job
def submit(
    asked: dict[str, Any],
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            metavar="DIR",
            help="Put the run's folder here.",
            rich_help_panel=_NOW,
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the exact script, submit nothing.", rich_help_panel=_NOW)
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Stay: stream the log of rank 0, then report.", rich_help_panel=_NOW),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Stay until it is over; exit with 0, or 7 if it failed.", rich_help_panel=_NOW),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a training script as a job.

    hpcrun's options stand before SCRIPT; all that follows is the script's own.
    """
    from hpcrun.actions.submit import submit as submit_job
    from hpcrun.views.plan import plan_lines, prepared_json, submitted_json, submitted_lines

    if follow and as_json:
        raise UsageError("--follow and --json exclude each other", hint="use --wait --json")
    context = make_context()
    prepared = _prepare(asked, context)
    if dry_run:
        if as_json:
            show_json(prepared_json(prepared))
        else:
            tell(plan_lines(prepared.plan))
            write(prepared.script.text)
        return
    if not as_json:
        show(plan_lines(prepared.plan))
    result = submit_job(
        prepared,
        store=context.store,
        scheduler=context.scheduler(prepared.plan.scheduler),
        surroundings=context.surroundings,
        run_id=context.new_run_id(prepared.plan.name),
        now_s=context.now_s(),
        output_dir=None if output_dir is None else context.cwd / output_dir.expanduser(),
    )
    if as_json and not wait:
        show_json(submitted_json(prepared, result))
    elif not as_json:
        show(submitted_lines(result))
    if follow or wait:
        _stay(prepared, result, context, follow=follow, as_json=as_json)


@takes_job
def render(
    asked: dict[str, Any],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write here; by default NAME.sh.",
            rich_help_panel=_NOW,
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.", rich_help_panel=_NOW)] = False,
) -> None:
    """Write the script that submit would send to a file.

    The file is complete: sbatch (or bash, for the local profile) does the same as hpcrun submit.
    """
    from hpcrun.views.plan import plan_lines

    context = make_context()
    prepared = _prepare(asked, context)
    target = context.cwd / (out or Path(f"{prepared.plan.name}.sh"))
    tell(plan_lines(prepared.plan))
    try:
        with target.open("w" if force else "x", encoding="ascii", newline="") as file:
            file.write(prepared.script.text)
    except FileExistsError:
        raise UsageError(f"{target} is there already", hint="--force replaces it, --out names another") from None
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    program = "sbatch" if prepared.plan.scheduler == "slurm" else "bash"
    tell([f"written    {target}", f"submit     {program} {target.name}"])


def _prepare(asked: dict[str, Any], context: Context) -> Prepared:
    # pydantic looks through every installed distribution for plugins; set after the job's environment was taken
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from hpcrun.actions.submit import choose_profile, prepare
    from hpcrun.job.request import read_request
    from hpcrun.schedulers.machine import this_machine

    profile = asked.pop("profile")
    # a list that was not given is None from typer, and empty in the request
    said = {name: value for name, value in asked.items() if value is not None}
    if "workdir" in said:
        said["workdir"] = str(context.cwd / Path(said["workdir"]).expanduser())
        if not Path(said["workdir"]).is_dir():
            raise UsageError(f"--workdir: there is no folder {said['workdir']}")
    surroundings = context.surroundings
    tell(surroundings.warnings)
    name = choose_profile(profile, surroundings, context.scheduler("slurm").unavailable())
    return prepare(read_request(said), name, surroundings, lambda: this_machine(context.env))


def _stay(prepared: Prepared, result: SubmitResult, context: Context, *, follow: bool, as_json: bool) -> None:
    """Wait for the end of a run, streaming its log where that was asked for.

    Raises:
        JobFailedError: it did not end well.
        InterruptedByUser: Ctrl-C; the job goes on.
    """
    from hpcrun.actions.logs import LogChoice, follow_logs
    from hpcrun.actions.wait import waiter_for
    from hpcrun.cli.logs import print_finished, print_stream
    from hpcrun.cli.report import report_end
    from hpcrun.views.plan import submitted_json

    run = result.run
    waiter = waiter_for(run.run_id, store=context.store, schedulers=context.scheduler, host=context.host)
    try:
        if follow:
            choice = LogChoice()
            printed = print_stream(
                follow_logs(result.folder, choice, lines=None, is_over=waiter.over()), prefixes=False
            )
            if not printed:
                print_finished(result.folder, choice, None)
        status = waiter.wait()
    except KeyboardInterrupt:
        raise InterruptedByUser(
            f"the job goes on: {run.job_id}",
            hint=f"hpcrun logs -f {run.job_id} comes back to it, hpcrun cancel {run.job_id} ends it",
        ) from None
    if as_json:
        show_json(
            {
                **submitted_json(prepared, result),
                "state": status.status.state,
                "exit_status": status.status.exit_status,
            }
        )
    report_end(status, result.folder, quiet=as_json)
    if status.status.state != "COMPLETED":
        sys.stdout.flush()
        raise JobFailedError(
            f"job {run.job_id} ended as {status.status.state}", hint=f"hpcrun logs --all-ranks {run.job_id}"
        )
