"""hpcrun submit --sweep: one array, or several where the cluster limits their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, note, printed, stderr, verbatim
from hpcrun.cli.start import submit_one
from hpcrun.errors import InterruptedByUser, JobFailedError, PlanError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.jobs.lineage import Lineage
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.actions.jobs.submit import SubmitResult
    from hpcrun.actions.status.elements import ElementStatus
    from hpcrun.actions.status.status import RunStatus
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
) -> Outcomes:
    """Submit a sweep.

    Raises:
        UsageError: --follow, which has one log to follow, or --chain.
    """
    from hpcrun.actions.jobs.sweep import submit_parts
    from hpcrun.views.plan import plan_lines, prepared_json, submitted_json, submitted_lines

    _refuse_what_is_for_one_job(chain=chain, follow=follow)
    parts = _parts(prepared, context)
    lines = plan_lines(prepared.plan)
    yield note(lines) if dry_run else printed(lines)
    if len(parts) > 1:
        names = f"{parts[0].plan.name} to {parts[-1].plan.name}"
        yield note([f"note: the cluster's MaxArraySize requires {len(parts)} runs, {names}"])
    if dry_run:
        yield Outcome(
            lambda: [verbatim("".join(part.script.text for part in parts))],
            lambda: _joined([prepared_json(part) for part in parts]),
        )
        return
    results: list[SubmitResult] = []

    def documents() -> list[dict[str, Any]]:
        return [submitted_json(part, result) for part, result in zip(parts, results, strict=False)]

    for item in submit_parts(parts, lambda part: submit_one(part, context, lineage, output_dir)):
        if isinstance(item, str):
            yield note([f"hpcrun: {item}"])
            continue
        results.append(item)
        yield Outcome(document=lambda: _joined(documents()))  # at once: the next part may be refused
    yield printed(line for result in results for line in submitted_lines(result))
    if wait:
        yield _end(documents(), [_wait(result, context) for result in results])


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
    from hpcrun.actions.jobs.sweep import sweep_parts

    scheduler = context.scheduler(prepared.plan.scheduler)
    if scheduler.unavailable():
        return [prepared]
    return sweep_parts(prepared, scheduler, context.surroundings)


def _joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one document: that of the only run, or of the first with all under ``parts``."""
    return documents[0] if len(documents) == 1 else {**documents[0], "parts": documents}


def _wait(result: SubmitResult, context: Context) -> RunStatus:
    run = result.run
    interrupted = InterruptedByUser(
        f"stopped waiting; sweep {run.job_id} is not affected",
        hint=f"hpcrun status {run.job_id} shows it, hpcrun cancel {run.job_id} cancels it",
    )
    with interrupted_as(interrupted):
        return context.waiter(run.run_id).wait()


def _end(documents: Sequence[dict[str, Any]], ended: Sequence[RunStatus]) -> Outcome:
    """Return how a sweep ended: a failure where an element did not end well.

    Args:
        documents: of what was submitted.
    """
    from hpcrun.job.parameters import index_ranges

    bad = [
        (item, element) for item in ended for element in item.elements if element.status.state != "COMPLETED"
    ]  # fmt: skip
    states = [{"state": item.status.state, "exit_status": item.status.exit_status} for item in ended]
    failure = None
    if bad:
        total = sum(len(item.elements) for item in ended)
        item, element = bad[0]
        failure = JobFailedError(
            f"{len(bad)} of {total} elements did not complete: {index_ranges(element.index for _, element in bad)}",
            hint=f"hpcrun logs {item.run.job_id}/{element.index} shows the first",
        )
    return Outcome(
        lambda: [stderr(f"hpcrun: job {item.run.job_id} {item.status.state} ({item.status.reason})" for item in ended)],
        lambda: _joined([{**document, **state} for document, state in zip(documents, states, strict=True)]),
        notes=_named(bad[:NAMED_AT_MOST]),
        failure=failure,
    )


def _named(bad: Sequence[tuple[RunStatus, ElementStatus]]) -> Iterator[TextPart]:
    """Name elements that did not end well."""
    from hpcrun.job.parameters import parameters_text
    from hpcrun.views.text import one_line

    for item, element in bad:
        status = element.status
        why = f", exit status {status.exit_status}" if status.exit_status else ""
        name = f"{item.run.name}/{element.index} ({parameters_text(element.parameters)})"
        yield stderr([one_line(f"hpcrun: {name} {status.state}{why}")])
