"""submit of a sweep: the arrays in which a cluster takes it, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hpcrun.actions.status.elements import ElementStatus, failed_elements
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.outcome import Outcome, TextPart, stderr
from hpcrun.errors import InterruptedByUser, JobFailedError
from hpcrun.explain.first_line import with_element_lines
from hpcrun.job.parameters import index_ranges, parameters_text
from hpcrun.job.state import COMPLETED
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.actions.jobs.submit import SubmitResult
    from hpcrun.actions.status.run_status import RunStatus

NAMED_AT_MOST = 10
"""How many failed elements are named at the end; ``hpcrun status`` has them all."""


def parts_of(prepared: Prepared, context: Context) -> list[Prepared]:
    """Return a sweep as the arrays that the cluster takes it in; as one where there is no such cluster here."""
    from hpcrun.actions.jobs.submit import sweep_parts

    scheduler = context.scheduler(prepared.plan.scheduler)
    if scheduler.unavailable():
        return [prepared]
    return sweep_parts(prepared, scheduler, context.surroundings)


def sweep_end(done: Sequence[SubmitResult], context: Context) -> Outcome:
    """Wait until a sweep is over, and return how it ended: a failure where an element did not end well.

    Raises:
        InterruptedByUser: Ctrl-C; the sweep goes on.
    """
    from hpcrun.views.plan import joined_json, submitted_json

    ended = [_explained(_wait(result, context), context) for result in done]
    bad = [
        (item, element) for item in ended for element in item.elements if element.status.state != COMPLETED
    ]  # fmt: skip
    states = [{"state": item.status.state, "exit_status": item.status.exit_status} for item in ended]
    failure = None
    if bad:
        total = sum(len(item.elements) for item in ended)
        item, element = bad[0]
        failure = JobFailedError(
            f"{len(bad)} of {total} elements did not complete: {index_ranges(element.index for _, element in bad)}",
            hint=f"hpcrun explain {item.run.job_id}/{element.index}",
        )
    return Outcome(
        lambda: [stderr(f"hpcrun: job {item.run.job_id} {item.status.state} ({item.status.reason})" for item in ended)],
        lambda: joined_json([{**submitted_json(item), **state} for item, state in zip(done, states, strict=True)]),
        notes=_named(bad[:NAMED_AT_MOST]),
        failure=failure,
    )


def _explained(item: RunStatus, context: Context) -> RunStatus:
    """Return a sweep that is over, the elements that are named at its end with what happened to them."""
    named = failed_elements(item.elements)[:NAMED_AT_MOST]
    return with_element_lines(item, named, context.store, context.rules)


def _wait(result: SubmitResult, context: Context) -> RunStatus:
    run = result.run
    interrupted = InterruptedByUser(
        f"stopped waiting; sweep {run.job_id} is not affected",
        hint=f"hpcrun status {run.job_id} shows it, hpcrun cancel {run.job_id} cancels it",
    )
    with interrupted_as(interrupted):
        return context.waiter(run.run_id).wait()


def _named(bad: Sequence[tuple[RunStatus, ElementStatus]]) -> Iterator[TextPart]:
    """Name elements that did not end well."""
    for item, element in bad:
        status = element.status
        why = f", exit status {status.exit_status}" if status.exit_status else ""
        why = f": {status.cause}" if status.cause else why
        name = f"{item.run.name}/{element.index} ({parameters_text(element.parameters)})"
        yield stderr([one_line(f"hpcrun: {name} {status.state}{why}")])
