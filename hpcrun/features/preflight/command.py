"""hpcrun preflight."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.job_options import DRY_RUN, takes_job_options
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, Outcomes, each, note, stderr, stdout, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.cli.submit import prepare_job
from hpcrun.cli.submit_flow import dry_run_outcome
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError

if TYPE_CHECKING:
    from hpcrun.features.preflight.preflight_wait import PreflightResult, PreflightWatch
    from hpcrun.runs.record import Run


@takes_job_options(without=("preflight", "module", "srun", "torchrun"))
def preflight(
    asked: dict[str, Any],
    dry_run: bool = DRY_RUN,
    _json: JsonOption = False,
) -> Outcomes:
    """Check the nodes of a job: run a short job that tests network and GPUs.

    Exit status 7 if a node is bad; the message names it.
    """
    import_pydantic()
    from hpcrun.actions.jobs.submit import submit
    from hpcrun.features.preflight.preflight_wait import NAME, WALLTIME_S
    from hpcrun.views.plan import plan_lines, submitted_json

    context = make_context()
    said = {"name": NAME, "walltime_s": f"{WALLTIME_S}s", **{key: v for key, v in asked.items() if v is not None}}
    prepared = prepare_job({**said, "script": NAME, "preflight": "only"}, context)
    if dry_run:
        yield dry_run_outcome(prepared)
        return
    yield Outcome(lambda: [stderr(plan_lines(prepared.plan))])
    submitted = submit(prepared, context.ports, context.surroundings)
    yield Outcome(document=lambda: submitted_json(submitted))  # until there is a verdict
    yield note([f"hpcrun: job {submitted.run.job_id}; Ctrl-C cancels it", *submitted.remarks.splitlines()])
    result = yield from _wait(submitted.run, context)
    yield _verdict(result)


def _wait(run: Run, context: Context) -> Generator[Outcome, None, PreflightResult]:
    from hpcrun.features.preflight.preflight_wait import PreflightWatch

    watch = PreflightWatch(run.run_id, context.ports)
    with interrupted_as(partial(_cancel, watch, run)):
        return (yield from each(watch.wait(), lambda words: note([f"hpcrun: job {run.job_id} {words}"])))


def _cancel(watch: PreflightWatch, run: Run) -> InterruptedByUser:
    try:
        watch.cancel()
    except HpcrunError as error:
        return InterruptedByUser(
            f"interrupted, but job {run.job_id} could not be cancelled: {error.message}",
            hint=f"hpcrun cancel {run.job_id}",
        )
    return InterruptedByUser(f"interrupted; job {run.job_id} was cancelled")


def _verdict(result: PreflightResult) -> Outcome:
    """Return what was found; it is a failure where a node is bad."""
    from hpcrun.features.preflight.display import preflight_json, preflight_lines, preflight_table

    failure = None
    if not result.verdict["ok"]:
        exclude = result.verdict["exclude"]
        failure = JobFailedError(
            "the preflight found bad nodes",
            hint=f"add --exclude={exclude}" if exclude else f"hpcrun logs --batch {result.item.run.job_id}",
        )
    return Outcome(
        lambda: [table(preflight_table(result, width())), stdout(preflight_lines(result))],
        lambda: preflight_json(result),
        failure=failure,
    )
