"""hpcrun preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.job_options import SUBMISSION
from hpcrun.cli.options import takes_job_options
from hpcrun.cli.output import JsonOption, show, show_json, show_rich, tell, width
from hpcrun.cli.start import show_dry_run, submit_one
from hpcrun.cli.submit import prepare_job
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError

if TYPE_CHECKING:
    from hpcrun.actions.preflight import PreflightResult
    from hpcrun.runs.record import Run


@takes_job_options(without=("preflight", "module", "srun", "torchrun"))
def preflight(
    asked: dict[str, Any],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script and submit nothing.", rich_help_panel=SUBMISSION)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the nodes of a job: run a short job that tests network and GPUs.

    Exit status 7 if a node is bad; the message names it.
    """
    from hpcrun.actions.lineage import Lineage
    from hpcrun.actions.preflight import NAME, WALLTIME_S
    from hpcrun.views.plan import plan_lines, submitted_json

    context = make_context()
    said = {"name": NAME, "walltime_s": str(WALLTIME_S // 60), **{key: v for key, v in asked.items() if v is not None}}
    prepared = prepare_job({**said, "script": NAME, "preflight": "only"}, context)
    if dry_run:
        show_dry_run(prepared, as_json=as_json)
        return
    tell([] if as_json else plan_lines(prepared.plan))
    submitted = submit_one(prepared, context, Lineage(), None)
    if as_json:
        show_json(submitted_json(prepared, submitted))  # until there is a verdict
    tell([f"hpcrun: job {submitted.run.job_id}; Ctrl-C cancels it", *submitted.remarks.splitlines()])
    _report(_wait(submitted.run, context), as_json=as_json)


def _wait(run: Run, context: Context) -> PreflightResult:
    from hpcrun.actions.preflight import PreflightWatch

    watch = PreflightWatch(
        run.run_id,
        store=context.store,
        schedulers=context.scheduler,
        host=context.host,
        tell=lambda words: tell([f"hpcrun: job {run.job_id} {words}"]),
    )
    try:
        return watch.wait()
    except KeyboardInterrupt:
        try:
            watch.cancel()
        except HpcrunError as error:
            raise InterruptedByUser(
                f"interrupted, but job {run.job_id} could not be cancelled: {error.message}",
                hint=f"hpcrun cancel {run.job_id}",
            ) from None
        raise InterruptedByUser(f"interrupted; job {run.job_id} was cancelled") from None


def _report(result: PreflightResult, *, as_json: bool) -> None:
    """Show what was found.

    Raises:
        JobFailedError: a node is bad.
    """
    from hpcrun.views.preflight import preflight_json, preflight_lines, preflight_table

    if as_json:
        show_json(preflight_json(result))
    else:
        show_rich(preflight_table(result, width()))
        show(preflight_lines(result))
    if not result.verdict["ok"]:
        exclude = result.verdict["exclude"]
        raise JobFailedError(
            "the preflight found bad nodes",
            hint=f"add --exclude={exclude}" if exclude else f"hpcrun logs --batch {result.item.run.job_id}",
        )
