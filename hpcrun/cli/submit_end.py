"""The end of a submitted job, for --wait and --follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcrun.actions.jobs.submission import SubmitResult
from hpcrun.actions.runs.hardware_use import run_use, use_advice
from hpcrun.actions.runs.log_choice import LogChoice
from hpcrun.actions.status.run_status import RunStatus, element_row, failed_elements
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.log_output import print_followed
from hpcrun.cli.output import Outcome, TextPart, stderr
from hpcrun.errors import InterruptedByUser, JobFailedError
from hpcrun.explain.first_line import Rules, ending, has_failed, with_element_lines
from hpcrun.job.job_states import COMPLETED
from hpcrun.job.text.units import index_ranges, rank_text
from hpcrun.views.plan_text import joined_json, submitted_json
from hpcrun.views.status_table import why_text
from hpcrun.views.text import harmless, one_line, time_text

NAMED_AT_MOST = 10
"""How many failed elements are named at the end; ``hpcrun status`` has them all."""


def run_end(result: SubmitResult, context: Context, *, follow: bool) -> Outcome:
    """Wait for the end of a run, with --follow printing its log, and return how it ended."""
    job_id = result.run.job_id
    item = _wait(
        result, context, f"job {job_id}", f"hpcrun logs -f {job_id} follows it again", follow=follow
    )
    failure = None
    if item.never_starts:
        failure = JobFailedError(
            f"job {job_id} never starts, and is still pending", hint=f"hpcrun cancel {job_id}"
        )
    elif item.status.state != COMPLETED:
        failure = JobFailedError(_how_it_ended(item), hint=f"hpcrun explain {job_id}")
    return Outcome(
        lambda: [
            *([] if failure else [stderr([f"hpcrun: {_how_it_ended(item)}"])]),
            *_advice(item),
        ],
        lambda: _ended_json(result, item),
        notes=_why_it_failed(item, context.rules),
        failure=failure,
    )


def sweep_end(done: Sequence[SubmitResult], context: Context) -> Outcome:
    """Wait until a sweep has ended, and return how: a failure if an element did not complete."""
    ended = []
    for result in done:
        job_id = result.run.job_id
        item = _wait(result, context, f"sweep {job_id}", f"hpcrun status {job_id} shows it")
        named = failed_elements(item.elements)[:NAMED_AT_MOST]
        ended.append(with_element_lines(item, named, context.store, context.rules))
    bad = [
        (item, element)
        for item in ended
        for element in item.elements
        if element.status.state != COMPLETED
    ]
    failure = None
    if bad:
        total = sum(len(item.elements) for item in ended)
        item, element = bad[0]
        failure = JobFailedError(
            f"{len(bad)} of {total} elements did not complete, numbers: "
            f"{index_ranges(each.index for _, each in bad)}",
            hint=f"hpcrun explain {item.run.job_id}/{element.index}",
        )
    return Outcome(
        lambda: [
            stderr(
                f"hpcrun: job {item.run.job_id} {item.status.state} ({item.status.reason})"
                for item in ended
            )
        ],
        lambda: joined_json(
            [_ended_json(result, item) for result, item in zip(done, ended, strict=True)]
        ),
        notes=[
            stderr(
                one_line(
                    f"hpcrun: {row.run.name} {row.status.state}: {why_text(row, context.now_s())}"
                )
                for row in (element_row(*each) for each in bad[:NAMED_AT_MOST])
            )
        ],
        failure=failure,
    )


def _wait(
    result: SubmitResult, context: Context, what: str, way_back: str, *, follow: bool = False
) -> RunStatus:
    run = result.run
    interrupted = InterruptedByUser(
        f"stopped waiting; {what} is not affected",
        hint=f"{way_back}, hpcrun cancel {run.job_id} cancels it",
    )
    waiter = context.waiter(run.run_id)
    with interrupted_as(interrupted):
        if follow:
            print_followed(result.folder, LogChoice((run.main_rank,), run.roles), waiter)
        return waiter.wait()


def _ended_json(result: SubmitResult, item: RunStatus) -> dict[str, object]:
    return {
        **submitted_json(result),
        "state": item.status.state,
        "exit_status": item.status.exit_status,
    }


def _why_it_failed(item: RunStatus, rules: Rules) -> Iterator[TextPart]:
    """Yield the first line of explain for a failed run, and the end of a rank's log.

    The end is the last lines of the stderr of the rank that the first line names.
    """
    if not has_failed(item.status):
        return
    end = ending(item, rules)
    yield stderr([one_line(f"hpcrun: {end.line}")] if end.line else [])
    if end.rank is not None and end.last_lines.strip():
        who = rank_text(end.rank, role=end.role)
        yield stderr(
            [f"hpcrun: {who} ended with exit status {end.exit_status}; the end of its stderr:"]
        )
        yield stderr(f"  {line}" for line in harmless(end.last_lines).splitlines())


def _advice(item: RunStatus) -> Iterator[TextPart]:
    """Yield advice for the next request from the use of this run."""
    if item.elements:
        use = None
    else:
        use = run_use(item.folder, item.element or 0)
    yield stderr(
        f"hint: {text}"
        for text in (use_advice(use, completed=item.status.state == COMPLETED) if use else ())
    )


def _how_it_ended(item: RunStatus) -> str:
    status = item.status
    by_status = status.reason == "NonZeroExitCode" and status.exit_status
    if by_status:
        reason = f" (exit status {status.exit_status})"
    elif status.reason:
        reason = f" ({status.reason})"
    else:
        reason = ""
    return one_line(f"job {item.run.job_id} {status.state}{reason} after {time_text(status.ran_s)}")
