"""The end of a submitted job, for --wait and --follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcrun.actions.jobs.submission import SubmitResult
from hpcrun.actions.runs.hardware_use import run_use, use_advice
from hpcrun.actions.runs.log_choice import default_choice
from hpcrun.actions.status.run_status import (
    ElementStatus,
    RunStatus,
    element_row,
    failed_elements,
)
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.log_output import print_followed
from hpcrun.cli.output import Outcome, TextPart, stderr
from hpcrun.errors import InterruptedByUser, JobFailedError
from hpcrun.explain.first_line import Ending, Rules, ending, has_failed, with_element_lines
from hpcrun.job.job_states import COMPLETED
from hpcrun.job.text.units import index_ranges, rank_text
from hpcrun.views.end_json import end_json
from hpcrun.views.plan_text import joined_json, submitted_json
from hpcrun.views.status_table import why_text
from hpcrun.views.text import harmless, one_line, time_text

NAMED_AT_MOST = 10
"""How many failed elements are named at the end; ``hpcrun status`` has them all."""


def run_end(result: SubmitResult, context: Context, *, follow: bool) -> Outcome:
    """Wait for the end of a run, with --follow printing its log, and return how it ended."""
    job_id = result.run.job_id
    way_back = f"hpcrun logs -f {job_id} follows it again"
    item = _wait(result, context, f"job {job_id}", way_back, follow=follow)
    end = run_ending(item, context.rules)
    failure = None
    if item.never_starts:
        failure = JobFailedError(
            f"job {job_id} never starts, and is still pending", hint=f"hpcrun cancel {job_id}"
        )
    elif item.status.state != COMPLETED:
        failure = JobFailedError(how_it_ended(item), hint=f"hpcrun explain {job_id}")

    def text() -> Iterator[TextPart]:
        if failure is None:
            yield stderr([f"hpcrun: {how_it_ended(item)}"])
        yield stderr(_advice(item))

    return Outcome(
        text,
        lambda: _ended_json(result, item, end),
        notes=_why_it_failed(end),
        failure=failure,
    )


def sweep_end(done: Sequence[SubmitResult], context: Context) -> Outcome:
    """Wait until a sweep has ended, and return how: a failure if an element did not complete."""
    ended = []
    failed: list[tuple[RunStatus, ElementStatus]] = []
    for result in done:
        job_id = result.run.job_id
        waited = _wait(result, context, f"sweep {job_id}", f"hpcrun status {job_id} shows it")
        named = failed_elements(waited.elements)[:NAMED_AT_MOST]
        item = with_element_lines(waited, named, context.store, context.rules)
        ended.append(item)
        for element in item.elements:
            if element.status.state != COMPLETED:
                failed.append((item, element))
    failure = None
    if failed:
        total = sum(len(item.elements) for item in ended)
        numbers = index_ranges(element.index for _, element in failed)
        sweep, first = failed[0]
        failure = JobFailedError(
            f"{len(failed)} of {total} elements did not complete, numbers: {numbers}",
            hint=f"hpcrun explain {sweep.run.job_id}/{first.index}",
        )

    def document() -> dict[str, object]:
        documents = []
        for result, item in zip(done, ended, strict=True):
            end = run_ending(item, context.rules)
            documents.append(_ended_json(result, item, end))
        return joined_json(documents)

    rows = [element_row(item, element) for item, element in failed[:NAMED_AT_MOST]]
    return Outcome(
        lambda: [stderr(_sweep_line(item) for item in ended)],
        document,
        notes=[stderr(_element_line(row, context.now_s()) for row in rows)],
        failure=failure,
    )


def _sweep_line(item: RunStatus) -> str:
    return f"hpcrun: job {item.run.job_id} {item.status.state} ({item.status.reason})"


def _element_line(row: RunStatus, now_s: float) -> str:
    return one_line(f"hpcrun: {row.run.name} {row.status.state}: {why_text(row, now_s)}")


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
            print_followed(result.folder, default_choice(run), waiter)
        return waiter.wait()


def _ended_json(result: SubmitResult, item: RunStatus, end: Ending) -> dict[str, object]:
    return {**submitted_json(result), **end_json(item, end)}


def run_ending(item: RunStatus, rules: Rules) -> Ending:
    """Return what is said of a run at its end: nothing of one that has not failed."""
    if not has_failed(item.status):
        return Ending("")
    return ending(item, rules)


def _why_it_failed(end: Ending) -> Iterator[TextPart]:
    """Yield the first line of explain for a failed run, and the end of a rank's log.

    The end is the last lines of the stderr of the rank that the first line names.
    """
    if end.line:
        yield stderr([one_line(f"hpcrun: {end.line}")])
    if end.rank is not None and end.last_lines.strip():
        who = rank_text(end.rank, role=end.role)
        yield stderr(
            [f"hpcrun: {who} ended with exit status {end.exit_status}; the end of its stderr:"]
        )
        yield stderr(f"  {line}" for line in harmless(end.last_lines).splitlines())


def _advice(item: RunStatus) -> list[str]:
    """Return advice for the next request from the use of this run."""
    if item.elements:
        return []
    use = run_use(item.folder, item.element or 0)
    if not use:
        return []
    is_completed = item.status.state == COMPLETED
    return [f"hint: {text}" for text in use_advice(use, completed=is_completed)]


def how_it_ended(item: RunStatus) -> str:
    """Return the state in which a run ended, with the reason and its time."""
    status = item.status
    text = f"job {item.run.job_id} {status.state}"
    if status.reason == "NonZeroExitCode" and status.exit_status:
        text += f" (exit status {status.exit_status})"
    elif status.reason:
        text += f" ({status.reason})"
    return one_line(f"{text} after {time_text(status.ran_s)}")
