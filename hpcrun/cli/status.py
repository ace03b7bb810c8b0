"""hpcrun status."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.find import FoundRun, named_elements
from hpcrun.actions.status.run_filter import filter_words, matches
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
from hpcrun.cli.context import Context
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
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import InterruptedByUser, NotFoundError, SchedulerError, UsageError
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
    with_arguments,
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
    words: str | None = option(
        "--filter WORDS",
        "Show only runs with all these words in their name, command, --env, note, state or "
        "nodes, and none behind a !.",
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
    folder: str | None = RUNS,
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
        "filter": words,
        "all": everything,
        "verbose": verbose,
        "runs": folder,
    }
    for name, value in not_of_gpus.items():
        check_one_of(**{"gpus": gpus, name: value})
    check_least("--interval", interval, MIN_INTERVAL_S)
    request = _Request(
        context_of(folder),
        runs or [],
        wanted,
        filter_words(words or ""),
        everything,
        shown_columns,
        as_csv,
        as_json,
        verbose,
        watch,
    )
    show = _gpus if gpus else _statuses
    if not watch:
        yield from show(request)
        return
    changes = Changes(request.context.store, interval)
    with interrupted_as(InterruptedByUser("stopped watching; the jobs are not affected")):
        while True:
            yield Outcome(lambda: [verbatim(_CLEAR if sys.stdout.isatty() else "")])
            now = time.strftime("%H:%M:%S")
            yield note([f"every {interval} s, {now}; Ctrl-C to stop; jobs are not affected"])
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
    filter: list[str]  # words
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

    def has(self, item: RunStatus) -> bool:
        """Whether a run is in the requested states, and has the requested words."""
        is_wanted = not self.wanted or is_in(item, self.wanted)
        return is_wanted and matches(item, self.filter)

    @property
    def is_for_person(self) -> bool:
        return not self.json and not self.csv


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
    whole = one_status(named.run.run_id, request.ports).runs[0]
    item, remark = one_element(whole, named.element)
    yield note([remark])
    if item.status.final and not request.watch:
        most = None if request.json else MOST_ELEMENTS + 1
        uses = list(islice(recorded_uses(item), most))
        yield Outcome(lambda: _recorded_text(uses), lambda: gpu_table.recorded_json(uses))
        return
    result = read_gpus(item, request.context.env)
    use = record_instead(item, result)
    recorded = [use] if use else []

    def text() -> Iterator[TextPart]:
        if recorded:
            yield from _recorded_text(recorded)
        yield stdout(gpu_table.without_lines(result))
        yield from map(table, gpu_table.gpu_tables(result))

    def document() -> dict[str, Any]:
        shown = gpu_table.gpu_json(result)
        if recorded:
            shown |= gpu_table.recorded_json(recorded)
        return shown

    yield Outcome(text, document)


def _recorded_text(uses: Sequence[RecordedUse]) -> Iterator[TextPart]:
    from hpcrun.views.gpu_table import recorded_tables

    shown = uses[:MOST_ELEMENTS]
    yield from map(table, recorded_tables(shown))
    if len(shown) < len(uses):
        yield stderr([f"the first {len(shown)} elements; RUN/N shows one, --json has all"])
    spans_s: list[float] = []
    for use in shown:
        spans_s += [node.seconds for node in use.nodes.values()]
    longest = format_span(max(spans_s))
    yield stderr([f"recorded over {longest}; PEAK and MEMORY: highest, other columns: mean"])


def _statuses(request: _Request) -> Outcomes:
    """Show the statuses of the runs; the last known ones first if Slurm is slow."""
    context = request.context
    existing, missing = yield from _named(request)
    named = named_elements(existing)
    everything = request.everything or bool(request.wanted or request.filter)
    ids = [*named] or chosen_ids(context.store, everything=everything)

    def ask() -> StatusResult:
        result = with_silence(get_status(ids, request.ports), context.now_s())
        result = with_first_lines(result, context.store, context.rules)
        runs = [_with_elements(item, named, context) for item in result.runs]
        return replace(result, runs=tuple(runs))

    answers: Iterable[StatusResult | None]
    if request.is_for_person and sys.stdout.isatty():
        answers = answers_of(ask, PATIENCE_S)
    else:
        answers = [ask()]
    was_late = False
    away = None
    for result in answers:
        if result is None:
            was_late = True
            known = last_known(ids, store=context.store, now_s=context.now_s())
            yield from _outcomes(request, known, named, known_only=True)
            remark = f"hpcrun: no response for {PATIENCE_S:g} s; showing the last known state"
            yield note([f"{remark}; still waiting ..."])
            continue
        away = result.away
        if not (was_late and away):  # else it is on the screen already
            yield from _outcomes(request, result, named)
    if away:
        raise away
    if missing:
        raise missing


def _named(
    request: _Request,
) -> Generator[Outcome, None, tuple[list[FoundRun], NotFoundError | None]]:
    """Find the named runs, and print the notes on their names.

    Returns:
        The runs that exist, and the error for those that do not.

    Raises:
        NotFoundError: none of them exists.
    """
    existing: list[FoundRun] = []
    missing: list[NotFoundError] = []
    for named_run in request.words:
        try:
            existing += yield from request.context.named([named_run], tells_newest=False)
        except NotFoundError as error:
            missing.append(error)
    if not missing:
        return existing, None
    first = missing[0]
    first.message = "; ".join(error.message for error in missing)
    if not existing:
        raise first
    return existing, first


def _with_elements(
    item: RunStatus, named: Mapping[str, set[int] | None], context: Context
) -> RunStatus:
    """Return a run; for a sweep whose elements have rows, also why elements failed."""
    if not item.elements or item.run.run_id not in named:
        return item
    indices = named[item.run.run_id] or [element.index for element in item.elements]
    return with_element_lines(item, indices, context.store, context.rules)


def _outcomes(
    request: _Request,
    result: StatusResult,
    named: Mapping[str, set[int] | None],
    *,
    known_only: bool = False,
) -> Outcomes:
    """Show statuses, each element of ``named`` sweeps in a row.

    With ``known_only`` no scheduler is queried.
    """
    context = request.context
    now_s = context.now_s()
    listing = _listing(request, result, named)
    details: list[str] = []
    more = None
    if request.verbose and not request.csv:
        from hpcrun.actions.status.status_details import Insight, look_closer
        from hpcrun.views.details_text import insight_json, verbose_lines

        of_elements = [run_id for run_id, indices in named.items() if indices]
        closer = with_element_rows(listing.result, of_elements).runs
        # these queries are not shared: --watch would repeat them
        if known_only or result.away or request.watch or context.foreign:
            insight = Insight()
        else:
            insight = look_closer(closer, context.queue(), context.env, inside=bool(named))
        if not request.json:
            for item in closer:
                details += verbose_lines(item, insight, width(), now_s)
        more = partial(insight_json, insight=insight)

    yield Outcome(
        lambda: _text(request, listing, details, now_s), lambda: status_json(listing.result, more)
    )
    yield note(one_line(f"hpcrun: {message}") for message in result.damaged)
    if request.is_for_person and context.foreign is None:
        yield note(_hints(listing.result.runs))


@dataclass(frozen=True, slots=True)
class _Listing:
    """The statuses to show."""

    result: StatusResult  # each sweep is one run
    rows: StatusResult  # each element of a named sweep is a run
    lost: int = 0  # how many lost runs are left out


def _listing(
    request: _Request, result: StatusResult, named: Mapping[str, set[int] | None]
) -> _Listing:
    """Choose the runs and elements to show: the named ones, and those in the wanted states."""
    result = only_elements(result, named)
    rows = with_element_rows(result) if named else result
    if request.wanted or request.filter:
        rows_kept = tuple(item for item in rows.runs if request.has(item))
        kept = named_elements(rows_kept)
        runs_kept = tuple(item for item in result.runs if item.run.run_id in kept)
        result = only_elements(replace(result, runs=runs_kept), kept)
        return _Listing(result, replace(rows, runs=rows_kept))
    if request.is_for_person and not request.everything and not named:
        result, lost = without_lost(result)
        return _Listing(result, result, lost)
    return _Listing(result, rows)


def _text(
    request: _Request, listing: _Listing, details: Sequence[str], now_s: float
) -> Iterator[TextPart]:
    if request.csv:
        yield stdout([status_csv(listing.rows, now_s, request.columns)])
    elif listing.result.runs:
        rows = with_arguments(listing.rows, alone=bool(request.words))
        yield table(status_table(rows, now_s, width(), request.columns))
        yield stdout(details)
    elif not listing.lost:
        which = " in this state" if request.wanted else ""
        if request.filter:
            which += " with these words"
        yield stderr([f"no runs{which} in {request.context.store.root}"])
    if listing.lost:
        yield stdout([lost_line(listing.lost)])


def _hints(runs: Sequence[RunStatus]) -> Iterator[str]:
    """Yield what to do about a job that never starts, and about one that is silent."""
    for item in runs:
        lines = never_starts_lines(item)
        if lines:
            yield from lines
            break
    silent = first_silent(runs)
    if silent:
        yield f"hint: hpcrun explain {silent.label} --stacks shows where its ranks are"
