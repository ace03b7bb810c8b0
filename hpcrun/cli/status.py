"""hpcrun status."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcrun.actions.background import answers_of
from hpcrun.actions.runs.allocation import one_element
from hpcrun.actions.runs.find import find_element
from hpcrun.actions.status.run_status import RunStatus, StatusResult, is_in, without_lost
from hpcrun.actions.status.silent_runs import first_silent, with_silence
from hpcrun.actions.status.status import chosen_ids, get_status, last_known, one_status
from hpcrun.actions.status.wait import Changes
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.options import argument, flag, option
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, TextPart, cleared, note, stderr, stdout, table, width
from hpcrun.errors import InterruptedByUser, SchedulerError, UsageError
from hpcrun.explain.first_line import with_element_lines, with_first_lines
from hpcrun.job.state import parse_states
from hpcrun.views.status import (
    check_columns,
    closer_rows,
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
    from hpcrun.actions.status.details import Insight

MIN_INTERVAL_S = 10
PATIENCE_S = 3.0
"""A person at a terminal who waits longer for Slurm sees what was last known."""


def status(
    runs: list[str] | None = argument(
        "RUN",
        "Job ids, run ids, names, or 'last'. RUN/3 is element 3 of a sweep. Default: the newest.",
        complete=run_name,
    ),
    everything: bool = flag("--all -a", "Show all runs. Default: the newest and those that have not ended."),
    states: list[str] | None = option("--state STATE", "Show only runs in these states: failed,pending."),
    verbose: bool = flag(
        "--verbose -v", "Show details: place in the queue, last line of the log, resources used, folder."
    ),
    gpus: bool = flag("--gpus", "Show the load of each GPU of one running job; what it recorded, if it has ended."),
    watch: bool = flag("--watch -w", "Refresh until Ctrl-C."),
    interval: int = option(
        "--interval SECONDS",
        f"Seconds between two refreshes, at least {MIN_INTERVAL_S}; after a minute, at least 30.",
        default=15,
    ),
    columns: list[str] | None = option("--columns NAMES", "Columns to show, such as name,job,state,reason."),
    as_csv: bool = flag("--csv", "Print CSV."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the newest runs and all that have not ended, newest last."""
    wanted = parse_states(states or [])
    layout = _layout(columns or [], as_csv=as_csv, as_json=as_json, verbose=verbose, watch=watch, everything=everything)
    if interval < MIN_INTERVAL_S:
        raise UsageError(f"--interval {interval}: the shortest interval is {MIN_INTERVAL_S} s")
    context = make_context()

    def show() -> Outcomes:
        if gpus:
            yield from _gpus(runs or ["last"], context, watch=watch, as_json=as_json)
        else:
            yield from _show(context, runs or [], wanted, everything=everything, layout=layout)

    if not watch:
        yield from show()
        return

    changes = Changes(context.store, interval)
    with interrupted_as(InterruptedByUser("stopped watching; the jobs are not affected")):
        while True:
            yield Outcome(lambda: [cleared()])
            yield note([f"every {interval} s, {time.strftime('%H:%M:%S')}; Ctrl-C to stop; jobs are not affected"])
            try:
                yield from show()
            except SchedulerError as error:  # a controller that is away may come back
                yield note([f"hpcrun: {error.message}"])
            changes.wait()


def _gpus(words: list[str], context: Context, *, watch: bool, as_json: bool) -> Outcomes:
    from hpcrun.cli.gpu import gpu_load

    if len(words) > 1:
        raise UsageError(f"--gpus shows one run; unexpected: {words[1]!r}")
    named = find_element(words[0], context.store)
    yield note([named.note])
    ports = context.ports.for_polling() if watch else context.ports
    item, remark = one_element(one_status(named.run.run_id, ports).runs[0], named.element)
    yield note([remark])
    yield from gpu_load(item, context, watched=watch, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the result is to look.

    Attributes:
        folds: lost runs are one line, where none is named: for people who do not ask for all.
    """

    columns: tuple[str, ...]
    csv: bool
    json: bool
    verbose: bool
    watch: bool
    folds: bool


def _layout(
    columns: list[str], *, as_csv: bool, as_json: bool, verbose: bool, watch: bool, everything: bool
) -> _Layout:
    """Return how the result is to look.

    Raises:
        UsageError: that cannot be, or there is no such column.
    """
    if watch and (as_json or as_csv):
        raise UsageError(f"--watch and {'--json' if as_json else '--csv'} cannot be combined")
    if as_json and (as_csv or columns):
        raise UsageError(f"--json and {'--csv' if as_csv else '--columns'} cannot be combined")
    folds = not (everything or as_csv or as_json)
    return _Layout(check_columns(columns), as_csv, as_json, verbose, watch, folds)


def _show(context: Context, words: list[str], wanted: set[str], *, everything: bool, layout: _Layout) -> Outcomes:
    named_runs = [find_element(name, context.store) for name in words]
    yield note(item.note for item in named_runs)
    ids = [item.run.run_id for item in named_runs] or chosen_ids(context.store, everything=everything or bool(wanted))
    named = [(item.run.run_id, item.element) for item in named_runs]
    now_s = context.now_s()
    ports = context.ports.for_polling() if layout.watch else context.ports

    def shown(result: StatusResult, *, known_only: bool = False) -> Outcomes:
        return _shown(context, only_elements(result, named), wanted, now_s, named, layout=layout, known_only=known_only)

    def ask() -> StatusResult:
        result = with_silence(get_status(ids, ports), context.now_s())
        result = with_first_lines(result, context.store, context.rules)
        shown = (_with_elements(item, named, context) for item in result.runs)
        return replace(result, runs=tuple(shown))

    is_for_program = layout.json or layout.csv or not sys.stdout.isatty()
    was_late, away = False, None
    for result in [ask()] if is_for_program else answers_of(ask, PATIENCE_S):
        if result is None:
            was_late = True
            yield from shown(last_known(ids, store=context.store, now_s=now_s), known_only=True)
            yield note([f"hpcrun: no response for {PATIENCE_S:g} s; showing the last known state; still waiting ..."])
            continue
        away = result.away
        if not (was_late and away):  # else it is on the screen already
            yield from shown(result)
    if away:
        raise away


def _with_elements(item: RunStatus, named: list[tuple[str, int | None]], context: Context) -> RunStatus:
    """Return a run; a sweep whose elements have a row each with what happened to those that failed."""
    words = [index for run_id, index in named if run_id == item.run.run_id]
    if not (item.elements and words):
        return item
    all_of_it = [element.index for element in item.elements]
    indices = all_of_it if None in words else [index for index in words if index is not None]
    return with_element_lines(item, indices, context.store, context.rules)


def _shown(
    context: Context,
    result: StatusResult,
    wanted: set[str],
    now_s: float,
    named: list[tuple[str, int | None]],
    *,
    layout: _Layout,
    known_only: bool,
) -> Outcomes:
    """Show statuses: of ``named`` sweeps each element in a row of its own. With ``known_only`` ask nobody."""
    result, lost = _chosen(result, wanted, folds=layout.folds and not named)
    closer = closer_rows(result, named)
    insight = None
    if layout.verbose and not layout.csv:
        from hpcrun.actions.status.details import Insight, look_closer

        # these questions are not shared: --watch would ask them again and again
        asks = not (known_only or result.away or layout.watch)
        insight = look_closer(closer, context.queue(), context.env, inside=bool(named)) if asks else Insight()
    none = f"no runs{' in this state' if wanted else ''} in {context.store.root}"
    yield Outcome(
        lambda: _text(result, closer, insight, now_s, layout, named=bool(named), lost=lost, none=none),
        lambda: status_json(result, insight),
    )
    yield note(one_line(f"hpcrun: {message}") for message in result.damaged)
    for_person = not (layout.json or layout.csv)
    if for_person and (never := next(filter(None, map(never_starts_lines, result.runs)), None)):
        yield note(never)
    if for_person and (silent := first_silent(result.runs)) is not None:
        yield note(
            [f"hint: hpcrun explain {silent.run.job_id or silent.run.run_id} --stacks shows where its ranks are"]
        )


def _text(
    result: StatusResult,
    closer: Sequence[RunStatus],
    insight: Insight | None,
    now_s: float,
    layout: _Layout,
    *,
    named: bool,
    lost: int,
    none: str,
) -> Iterator[TextPart]:
    """Return a table of the runs, then more of each where that was asked for.

    Args:
        closer: the runs of which more is shown.
        lost: how many are left out of the table.
        none: what to say where there are no runs.
    """
    listed = with_element_rows(result) if named else result
    if layout.csv:
        yield stdout([status_csv(listed, now_s, layout.columns)])
    elif result.runs:
        yield table(status_table(listed, now_s, width(), layout.columns))
        if insight:
            from hpcrun.views.details import detail_lines
            from hpcrun.views.insight import insight_rows

            for item in closer:
                yield stdout(["", *detail_lines(item, width(), insight_rows(item, insight, now_s))])
    elif not lost:
        yield stderr([none])
    if lost:
        yield stdout([lost_line(lost)])


def _chosen(result: StatusResult, wanted: set[str], *, folds: bool) -> tuple[StatusResult, int]:
    """Return the runs to show, and how many lost ones are left out."""
    if wanted:
        return replace(result, runs=tuple(item for item in result.runs if is_in(item, wanted))), 0
    return without_lost(result) if folds else (result, 0)
