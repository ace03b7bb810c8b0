"""hpcrun submit --sweep: one array, or several where the cluster limits their size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.output import show, show_json, tell, write
from hpcrun.cli.start import submit_one
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError, PlanError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.lineage import Lineage
    from hpcrun.actions.prepare import Prepared
    from hpcrun.actions.status import RunStatus
    from hpcrun.actions.submit import SubmitResult
    from hpcrun.cli.context import Context

NAMED_AT_MOST = 10
"""How many failed elements are named at the end; ``hpcrun status`` has them all."""


def submit_sweep(
    prepared: Prepared,
    context: Context,
    lineage: Lineage,
    output_dir: Path | None,
    *,
    chain: str | None,
    dry_run: bool,
    follow: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Submit a sweep.

    Raises:
        UsageError: --follow, which has one log to follow, or --chain.
        JobFailedError: with ``wait``: an element did not end well.
    """
    from hpcrun.views.plan import plan_lines, prepared_json, submitted_json, submitted_lines

    _refuse_what_is_for_one_job(chain=chain, follow=follow)
    parts = _parts(prepared, context)
    if not as_json or dry_run:
        (tell if dry_run or as_json else show)(plan_lines(prepared.plan))
    if len(parts) > 1:
        names = f"{parts[0].plan.name} to {parts[-1].plan.name}"
        tell([f"note: the cluster's MaxArraySize requires {len(parts)} runs, {names}"])
    if dry_run:
        if as_json:
            show_json(_joined([prepared_json(part) for part in parts]))
        else:
            write("".join(part.script.text for part in parts))
        return
    documents: list[dict[str, Any]] = []

    def note(part: Prepared, result: SubmitResult) -> None:
        documents.append(submitted_json(part, result))
        if as_json:
            show_json(_joined(documents))  # at once: the next part may be refused

    results = _submit_all(parts, context, lineage, output_dir, note)
    if not as_json:
        show(line for result in results for line in submitted_lines(result))
    if not wait:
        return
    ended = [_wait(result, context) for result in results]
    if as_json:
        states = [{"state": item.status.state, "exit_status": item.status.exit_status} for item in ended]
        show_json(_joined([{**document, **state} for document, state in zip(documents, states, strict=True)]))
    _report(ended, quiet=as_json)


def _refuse_what_is_for_one_job(*, chain: str | None, follow: bool) -> None:
    if follow:
        raise UsageError(
            "--follow shows one log, but a sweep has one per element",
            hint="use --wait, or follow one element after the submission: hpcrun logs -f NAME/0",
        )
    if chain:
        raise UsageError("--chain does not support sweeps", hint="requeue its elements with --requeue N")


def only_part(prepared: Prepared, context: Context) -> Prepared:
    """Return a sweep as the one script that it is.

    Raises:
        PlanError: the cluster takes it in several arrays.
    """
    from hpcrun.job.parameters import index_ranges

    parts = _parts(prepared, context)
    if len(parts) > 1:
        pieces = ", ".join(index_ranges(part.request.elements) for part in parts)
        raise PlanError(
            f"the cluster's MaxArraySize requires {len(parts)} scripts for this sweep, but render writes one",
            hint=f"render it in pieces: --elements {pieces}",
        )
    return parts[0]


def _parts(prepared: Prepared, context: Context) -> list[Prepared]:
    from hpcrun.actions.sweep import sweep_parts

    scheduler = context.scheduler(prepared.plan.scheduler)
    if scheduler.unavailable():
        return [prepared]
    return sweep_parts(prepared, scheduler, context.surroundings)


def _joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one document: that of the only run, or of the first with all under ``parts``."""
    return documents[0] if len(documents) == 1 else {**documents[0], "parts": documents}


def _submit_all(
    parts: list[Prepared],
    context: Context,
    lineage: Lineage,
    output_dir: Path | None,
    note: Callable[[Prepared, SubmitResult], None],
) -> list[SubmitResult]:
    results: list[SubmitResult] = []
    for part in parts:
        try:
            result = submit_one(part, context, lineage, output_dir)
        except HpcrunError as error:
            if results:
                jobs = " ".join(str(done.run.job_id) for done in results)
                tell([f"hpcrun: {len(results)} of {len(parts)} arrays are submitted: {jobs}"])
                error.hint = f"hpcrun cancel {jobs} cancels them" + (f"; {error.hint}" if error.hint else "")
            raise
        results.append(result)
        note(part, result)
    return results


def _wait(result: SubmitResult, context: Context) -> RunStatus:

    run = result.run
    try:
        return context.waiter(run.run_id).wait()
    except KeyboardInterrupt:
        raise InterruptedByUser(
            f"stopped waiting; sweep {run.job_id} is not affected",
            hint=f"hpcrun status {run.job_id} shows it, hpcrun cancel {run.job_id} cancels it",
        ) from None


def _report(ended: list[RunStatus], *, quiet: bool) -> None:
    """Say how a sweep ended, and name the elements that did not end well.

    Raises:
        JobFailedError: there are such.
    """
    from hpcrun.job.parameters import index_ranges, parameters_text
    from hpcrun.views.text import one_line

    bad = [
        (item, element) for item in ended for element in item.elements if element.status.state != "COMPLETED"
    ]  # fmt: skip
    for item, element in bad[:NAMED_AT_MOST]:
        status = element.status
        why = f", exit status {status.exit_status}" if status.exit_status else ""
        name = f"{item.run.name}/{element.index} ({parameters_text(element.parameters)})"
        tell([one_line(f"hpcrun: {name} {status.state}{why}")])
    total = sum(len(item.elements) for item in ended)
    if not quiet:
        tell(f"hpcrun: job {item.run.job_id} {item.status.state} ({item.status.reason})" for item in ended)
    if bad:
        sys.stdout.flush()
        item, element = bad[0]
        raise JobFailedError(
            f"{len(bad)} of {total} elements did not complete: {index_ranges(element.index for _, element in bad)}",
            hint=f"hpcrun logs {item.run.job_id}/{element.index} shows the first",
        )
