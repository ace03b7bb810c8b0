"""hpcrun wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hpcrun.actions.runs.find import FoundRun
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.silent_runs import with_silence
from hpcrun.actions.status.status_query import check_there, get_status
from hpcrun.actions.status.wait import Waiter, ends_of
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as, terminated_too
from hpcrun.cli.options import argument, flag, option, read_duration
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, printed, stdout
from hpcrun.cli.submit_end import how_it_ended, run_ending
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError, TimeOverError
from hpcrun.explain.first_line import Ending
from hpcrun.job.job_states import COMPLETED
from hpcrun.views.end_json import end_json
from hpcrun.views.status_table import why_text
from hpcrun.views.text import count, fields_of, one_line, time_text


def wait(
    runs: list[str] = argument(
        "RUN",
        "Job ids, run ids, names, or 'last'. RUN/3 is element 3 of a sweep.",
        default=...,
        complete=run_name,
    ),
    timeout: str | None = option(
        "--timeout TIME", "Wait so long at most: 100s, 10m. Default: until the runs end."
    ),
    first: bool = flag("--any", "Wait for the first of the runs to end. Default: for all."),
    _json: JsonOption = False,
) -> Outcomes:
    """Wait until runs end, or are known to never start.

    Exit status 0 if they completed, 7 if one did not, 8 if the time is over.
    """
    within_s = None
    if timeout is not None:
        within_s = read_duration("--timeout", timeout)
    context = make_context()
    all_named = yield from context.named(runs)
    named = list({item.named: item for item in all_named}.values())
    waiters = [_waiter(item, context) for item in named]
    results: dict[int, _Result] = {}
    interrupted = InterruptedByUser(
        "stopped waiting; the jobs are not affected", hint="hpcrun status shows them"
    )
    with interrupted_as(interrupted), terminated_too():
        for place, item in ends_of(waiters, within_s=within_s, first=first):
            results[place] = _Result(item, run_ending(item, context.rules))
            yield printed([results[place].line(context.now_s())], partial(_json_of, results))
        open_ones = [place for place in range(len(waiters)) if place not in results]
        for place, item in zip(open_ones, _now(waiters, open_ones, context), strict=True):
            results[place] = _Result(item, run_ending(item, context.rules))
    lines = [results[place].line(context.now_s()) for place in open_ones]
    is_met = first and any(result.is_over for result in results.values())
    yield Outcome(
        lambda: [stdout(lines)],
        partial(_json_of, results),
        failure=_failure(list(results.values()), timeout, is_met=is_met),
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """A run that was waited for."""

    item: RunStatus
    end: Ending

    @property
    def is_over(self) -> bool:
        return self.item.status.final or self.item.never_starts is not None

    @property
    def is_completed(self) -> bool:
        return self.item.status.final and self.item.status.state == COMPLETED

    def line(self, now_s: float) -> str:
        """Return what became of the run, or its state, in one line."""
        item = self.item
        if item.status.final:
            parts = [how_it_ended(item), self.end.line]
            return one_line(": ".join(part for part in parts if part))
        text = f"job {item.run.job_id or item.run.run_id} {item.status.state}"
        if item.status.ran_s is not None:
            text += f" for {time_text(item.status.ran_s)}"
        parts = [text, why_text(item, now_s)]
        return one_line(": ".join(part for part in parts if part))


def _waiter(named: FoundRun, context: Context) -> Waiter:
    waiter = context.waiter(named.run.run_id)
    if named.element is None:
        return waiter
    return replace(waiter, element=named.element)


def _now(waiters: Sequence[Waiter], places: Sequence[int], context: Context) -> list[RunStatus]:
    """Return the present status of the runs at these places, with one question for all.

    Raises:
        NotFoundError: a run was removed while it was waited for.
    """
    ids = [waiters[place].folder.name for place in places]
    if not ids:
        return []
    answer = with_silence(get_status(ids, context.ports.for_polling()), context.now_s())
    check_there(ids, answer, context.store)
    by_id = {item.run.run_id: item for item in answer.runs}
    return [waiters[place].part_of(by_id[waiters[place].folder.name]) for place in places]


def _json_of(results: dict[int, _Result]) -> dict[str, Any]:
    runs = []
    for _, result in sorted(results.items()):
        of_run = fields_of(result.item.run, "run_id name job_id")
        element = {"element": result.item.element}
        runs.append({**of_run, **element, **end_json(result.item, result.end)})
    return {"kind": "wait", "runs": runs}


def _failure(
    results: Sequence[_Result], timeout: str | None, *, is_met: bool
) -> HpcrunError | None:
    """Return why the exit status is not 0: the time is over, or a run did not complete.

    With ``is_met``, runs that go on are no failure: one of them was enough.
    """
    open_ones = [result.item for result in results if not result.is_over]
    if open_ones and not is_met:
        labels = " ".join(_label(item) for item in open_ones)
        return TimeOverError(
            f"the time of {timeout} is over before the end of {_share(open_ones, results)}",
            hint=f"hpcrun wait --timeout {timeout} {labels}",
        )
    failed = [result.item for result in results if result.is_over and not result.is_completed]
    if not failed:
        return None
    label = _label(failed[0])
    hint = f"hpcrun explain {label}"
    if failed[0].never_starts:
        hint = f"hpcrun status -v {label}; hpcrun cancel {label}"
    return JobFailedError(f"{_share(failed, results)} did not complete", hint=hint)


def _share(items: Sequence[RunStatus], results: Sequence[_Result]) -> str:
    """Return how many of the runs these are; of a single run its name."""
    if len(results) == 1:
        return f"job {_label(items[0])}"
    return f"{count(len(items), 'run')} of {len(results)}"


def _label(item: RunStatus) -> str:
    """Return the name of a run or of an element for a command."""
    if item.element is None:
        return item.label
    return f"{item.run.run_id}/{item.element}"
