"""hpcrun status."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.find import named_elements
from hpcrun.actions.status.run_status import (
    RunStatus,
    StatusResult,
    is_in,
    one_element,
    without_lost,
)
from hpcrun.actions.status.silent_runs import first_silent, with_silence
from hpcrun.actions.status.status_query import chosen_ids, get_status, last_known, one_status
from hpcrun.actions.status.wait import Changes, answers_of
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.options import argument, check_least, check_one_of, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    note,
    stderr,
    stdout,
    table,
    verbatim,
    width,
)
from hpcrun.errors import InterruptedByUser, SchedulerError, UsageError
from hpcrun.explain.first_line import with_element_lines, with_first_lines
from hpcrun.job.job_states import parse_states
from hpcrun.job.text.units import format_span
from hpcrun.views.status_table import (
    check_columns,
    lost_line,
    never_starts_lines,
    only_elements,
    status_csv,
    status_json,
    status_table,
    with_element_rows,
)
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from hpcrun.actions.runs.hardware_use import RecordedUse

MIN_INTERVAL_S = 10
MOST_ELEMENTS = 20
"""Of a sweep that has ended, with --gpus as text: each may have several nodes and GPUs."""
_CLEAR = "\x1b[H\x1b[2J"
PATIENCE_S = 3.0
"""A person at a terminal who waits longer for Slurm sees what was last known."""


def status(
    runs: list[str] | None = argument(
        "RUN",
        "Job ids, run ids, names, or 'last'. RUN/3 is element 3 of a sweep. Default: the newest.",
        complete=run_name,
    ),
    everything: bool = flag(
        "--all -a", "Show all runs. Default: the newest and those that have not ended."
    ),
    states: list[str] | None = option(
        "--state STATE", "Show only runs in these states: failed,pending."
    ),
    verbose: bool = flag(
        "--verbose -v",
        "Show details: place in the queue, last line of the log, resources used, folder.",
    ),
    gpus: bool = flag(
        "--gpus", "Show the load of each GPU of one running job; what it recorded, if it has ended."
    ),
    watch: bool = flag("--watch -w", "Refresh until Ctrl-C."),
    interval: int = option(
        "--interval SECONDS",
        f"Seconds between two refreshes, at least {MIN_INTERVAL_S}; after a minute, at least 30.",
        default=15,
    ),
    columns: list[str] | None = option(
        "--columns NAMES", "Columns to show, such as name,job,state,reason."
    ),
    as_csv: bool = flag("--csv", "Print CSV."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the newest runs and all that have not ended, newest last."""
    wanted = parse_states(states or [])
    shown_columns = check_columns(columns or [])
    check_one_of(watch=watch, csv=as_csv, json=as_json)
    check_one_of(columns=columns, json=as_json)
    not_of_gpus = {
        "csv": as_csv,
        "columns": columns,
        "state": states,
        "all": everything,
        "verbose": verbose,
    }
    for name, value in not_of_gpus.items():
        check_one_of(**{"gpus": gpus, name: value})
    check_least("--interval", interval, MIN_INTERVAL_S)
    request = _Request(
        make_context(),
        runs or [],
        wanted,
        everything,
        shown_columns,
        as_csv,
        as_json,
        verbose,
        watch,
    )
    show = _gpus if gpus else _show
    if not watch:
        yield from show(request)
        return
    changes = Changes(request.context.store, interval)
    with interrupted_as(InterruptedByUser("stopped watching; the jobs are not affected")):
        while True:
            yield Outcome(lambda: [verbatim(_CLEAR if sys.stdout.isatty() else "")])
            yield note(
                [
                    f"every {interval} s, {time.strftime('%H:%M:%S')}; Ctrl-C to stop; jobs are "
                    "not affected"
                ]
            )
            try:
                yield from show(request)
            except SchedulerError as error:  # a controller that does not respond may come back
                yield note([f"hpcrun: {error.message}"])
            changes.wait()


@dataclass(frozen=True, slots=True)
class _Request:
    """The requested runs, and the form of the output."""

    context: Context
    words: list[str]
    wanted: set[str]  # states
    everything: bool
    columns: tuple[str, ...]
    csv: bool
    json: bool
    verbose: bool
    watch: bool

    @property
    def ports(self) -> Ports:
        if self.watch:
            return self.context.ports.for_polling()
        return self.context.ports


def _gpus(request: _Request) -> Outcomes:
    """Show the load of a running job's GPUs and its network traffic.

    For a job that has ended, show what the job recorded.

    Raises:
        UsageError: if more than one run is named.
    """
    from hpcrun.actions.runs.hardware_use import read_gpus, record_instead, recorded_uses
    from hpcrun.views import gpu_table

    first, *others = request.words or ["last"]
    if others:
        raise UsageError(f"--gpus shows one run; unexpected: {others[0]!r}")
    [named] = yield from request.context.named([first])
    item, remark = one_element(one_status(named.run.run_id, request.ports).runs[0], named.element)
    yield note([remark])
    if item.status.final and not request.watch:
        uses = list(islice(recorded_uses(item), None if request.json else MOST_ELEMENTS + 1))
        yield Outcome(lambda: _recorded_text(uses), lambda: gpu_table.recorded_json(uses))
        return
    result = read_gpus(item, request.context.env)
    recorded = [use] if (use := record_instead(item, result)) else []

    def text() -> Iterator[TextPart]:
        yield from _recorded_text(recorded) if recorded else ()
        yield stdout(gpu_table.without_lines(result))
        yield from map(table, gpu_table.gpu_tables(result))

    yield Outcome(
        text,
        lambda: {
            **gpu_table.gpu_json(result),
            **(gpu_table.recorded_json(recorded) if recorded else {}),
        },
    )


def _recorded_text(uses: Sequence[RecordedUse]) -> Iterator[TextPart]:
    from hpcrun.views.gpu_table import recorded_tables

    shown = uses[:MOST_ELEMENTS]
    yield from map(table, recorded_tables(shown))
    if len(shown) < len(uses):
        yield stderr([f"the first {len(shown)} elements; RUN/N shows one, --json has all"])
    longest = max(one.seconds for use in shown for one in use.nodes.values())
    yield stderr(
        [f"recorded over {format_span(longest)}; PEAK and MEMORY: highest, other columns: mean"]
    )


def _show(request: _Request) -> Outcomes:
    context = request.context
    named = named_elements((yield from context.named(request.words)))
    everything = request.everything or bool(request.wanted)
    ids = [*named] or chosen_ids(context.store, everything=everything)

    def ask() -> StatusResult:
        result = with_silence(get_status(ids, request.ports), context.now_s())
        result = with_first_lines(result, context.store, context.rules)
        return replace(
            result, runs=tuple(_with_elements(item, named, context) for item in result.runs)
        )

    is_for_program = request.json or request.csv or not sys.stdout.isatty()
    was_late = False
    away = None
    for result in [ask()] if is_for_program else answers_of(ask, PATIENCE_S):
        if result is None:
            was_late = True
            known = last_known(ids, store=context.store, now_s=context.now_s())
            yield from _shown(request, known, named, known_only=True)
            yield note(
                [
                    f"hpcrun: no response for {PATIENCE_S:g} s; showing the last known state; "
                    "still waiting ..."
                ]
            )
            continue
        away = result.away
        if not (was_late and away):  # else it is on the screen already
            yield from _shown(request, result, named)
    if away:
        raise away


def _with_elements(
    item: RunStatus, named: Mapping[str, set[int] | None], context: Context
) -> RunStatus:
    """Return a run; for a sweep whose elements have rows, also why elements failed."""
    if not item.elements or item.run.run_id not in named:
        return item
    indices = named[item.run.run_id] or [element.index for element in item.elements]
    return with_element_lines(item, indices, context.store, context.rules)


def _shown(
    request: _Request,
    result: StatusResult,
    named: Mapping[str, set[int] | None],
    *,
    known_only: bool = False,
) -> Outcomes:
    """Show statuses, each element of ``named`` sweeps in a row.

    With ``known_only`` no scheduler is queried.
    """
    context, now_s = request.context, request.context.now_s()
    is_for_person = not (request.json or request.csv)
    result, lost = only_elements(result, named), 0
    listed = with_element_rows(result) if named else result
    if request.wanted:
        listed = replace(
            listed, runs=tuple(item for item in listed.runs if is_in(item, request.wanted))
        )
        kept = named_elements(listed.runs)
        result = only_elements(
            replace(result, runs=tuple(r for r in result.runs if r.run.run_id in kept)), kept
        )
    elif is_for_person and not (request.everything or named):
        result, lost = without_lost(result)
        listed = result
    details: list[str] = []
    more = None
    if request.verbose and not request.csv:
        from hpcrun.actions.status.status_details import Insight, look_closer
        from hpcrun.views.details_text import insight_json, verbose_lines

        # these queries are not shared: --watch would repeat them
        asks = not (known_only or result.away or request.watch)
        closer = with_element_rows(
            result, [run_id for run_id, indices in named.items() if indices]
        ).runs
        if asks:
            insight = look_closer(closer, context.queue(), context.env, inside=bool(named))
        else:
            insight = Insight()
        shown = () if request.json else closer
        details = [line for item in shown for line in verbose_lines(item, insight, width(), now_s)]
        more = partial(insight_json, insight=insight)

    def text() -> Iterator[TextPart]:
        if request.csv:
            yield stdout([status_csv(listed, now_s, request.columns)])
        elif result.runs:
            yield table(status_table(listed, now_s, width(), request.columns))
            yield stdout(details)
        elif not lost:
            yield stderr(
                [f"no runs{' in this state' if request.wanted else ''} in {context.store.root}"]
            )
        if lost:
            yield stdout([lost_line(lost)])

    yield Outcome(text, lambda: status_json(result, more))
    yield note(one_line(f"hpcrun: {message}") for message in result.damaged)
    if is_for_person:
        yield note(_hints(result.runs))


def _hints(runs: Sequence[RunStatus]) -> Iterator[str]:
    """Yield what to do about a job that never starts, and about one that is silent."""
    yield from next(filter(None, map(never_starts_lines, runs)), [])
    silent = first_silent(runs)
    if silent:
        yield f"hint: hpcrun explain {silent.label} --stacks shows where its ranks are"
