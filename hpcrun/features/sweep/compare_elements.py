"""sweep: the elements of a sweep with their parameters, states and metrics, the best first.

The module also makes the command of the best element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcrun.actions.runs.find import find_run, is_last, newest_line
from hpcrun.actions.runs.run_metrics import (
    Metrics,
    choose_metrics,
    read_elements,
)
from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.actions.status.status_query import get_status
from hpcrun.cli.context import Context
from hpcrun.errors import NotFoundError, UsageError, did_you_mean
from hpcrun.job.request.parameters import Parameters
from hpcrun.job.text.quoting import bash_line, quote_bash
from hpcrun.runs.elements import elements_of
from hpcrun.runs.metric_direction import is_more_better
from hpcrun.runs.metric_files import MetricsRow, Value
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore

Item = tuple[RunStatus, Mapping[int, Metrics]]
"""A run, and the metrics of its elements by their numbers."""
_DIRECTIONS = ("min", "max")
_VALIDATION = re.compile(r"(^|[^a-z])(val|valid|validation|dev|eval)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The metric by which elements are compared, and whether its largest value is the best."""

    metric: str
    largest: bool

    @property
    def words(self) -> str:
        """The ranking in words: ``loss, smallest first``."""
        first = "largest" if self.largest else "smallest"
        return f"{self.metric}, {first} first"


@dataclass(frozen=True, slots=True)
class SweepRow:
    """An element of a sweep."""

    run: Run
    index: int
    job_id: str | None
    parameters: Parameters
    status: LastStatus
    step: float | None  # the step of the values, None if they have none
    values: Mapping[str, Value]  # metric → its value there, or the last one before
    metrics: Metrics  # all its rows, for a plot

    @property
    def ended(self) -> str:
        """Its state, with the exit status of one that failed."""
        if self.status.exit_status:
            return f"{self.status.state} ({self.status.exit_status})"
        return self.status.state

    def number(self, metric: str) -> float | None:
        """Return the value of a metric if it is a finite number."""
        return _finite(self.values.get(metric))


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The elements of a sweep, best first; those without a finite value come last."""

    rows: tuple[SweepRow, ...]
    ranking: Ranking | None  # None if no element has a metric
    parameters: tuple[str, ...]  # the names of all parameters
    names: tuple[str, ...]  # the names of the metrics that are shown

    @property
    def scored(self) -> list[SweepRow]:
        """The elements with a finite value of the metric by which they are compared."""
        if self.ranking is None:
            return []
        metric = self.ranking.metric
        return [row for row in self.rows if row.number(metric) is not None]


def sweeps_of(
    label: str, store: RunStore, named: Sequence[str] = ()
) -> tuple[list[Run], list[str | None]]:
    """Return the sweep that a label means with those that it repeats, oldest first, and remarks.

    Args:
        label: the name of the sweep.
        store: the runs.
        named: the names of all runs that the user named together.

    Raises:
        UsageError: the run has no elements, and so is no sweep.
    """
    match = find_run(label, store)
    run = match.run
    if elements_of(run) is None:
        hint = f"hpcrun metrics {run.job_id or run.run_id} shows its metrics"
        if len(named) > 1:
            hint = f"hpcrun compare {bash_line(named)} compares runs"
        raise UsageError(
            f"{run.run_id} is no sweep: it has no elements",
            hint=hint,
        )
    repeated = repeated_runs(run, store)
    names = ", ".join(earlier.run_id for earlier in repeated[:-1])
    if names:
        repeats = f"{run.run_id} repeats elements of {names}: the newest of each is shown"
    else:
        repeats = None
    remarks = [repeats, match.note]
    if is_last(label):
        remarks.append(newest_line(run))
    return repeated, remarks


def read_items(run_ids: Sequence[str], context: Context) -> tuple[list[Item], list[str | None]]:
    """Return some runs with the metrics of their elements, and remarks.

    The remarks say what hpcrun could not read.
    """
    result = get_status(run_ids, context.ports)
    items: list[Item] = []
    remarks: list[str | None] = []
    for item in result.runs:
        patterns, remark = context.metric_patterns(item.run.profile)
        remarks.append(remark)
        indices = [one.index for one in item.elements]
        role = item.run.deciding_role
        items.append((item, read_elements(item.folder, indices, patterns, role=role)))
    if result.away:
        remarks.append(f"hpcrun: {result.away.message}; the states are the last known")
    return items, remarks


def shown_part(table: SweepTable, names: Sequence[str], lines: int | None) -> SweepTable:
    """Return the best elements of a table with some of its metrics."""
    if names:
        choose_metrics(Metrics(table.names, ()), names)
    return replace(table, names=tuple(names) or table.names, rows=table.rows[:lines])


def repeated_runs(run: Run, store: RunStore) -> list[Run]:
    """Return a sweep and the runs that it repeats with the same program, the oldest first.

    A sweep of ``resubmit --failed`` repeats another run.
    """
    runs = [run]
    known = {run.run_id}
    while True:
        earlier = runs[0].resubmitted_from
        if not earlier or earlier in known:
            return runs
        try:
            before = store.load(earlier)
        except NotFoundError:
            return runs
        if elements_of(before) is None or _program(before) != _program(run):
            return runs
        runs.insert(0, before)
        known.add(before.run_id)


def _program(run: Run) -> object:
    return [run.request.get(name) for name in ("script", "module", "args", "sweep")]


def parse_ranking(text: str, names: Sequence[str]) -> Ranking:
    """Read the order of elements: ``loss``, ``loss:min`` or ``accuracy:max``.

    Without a direction, the metric's name decides.

    Raises:
        UsageError: the direction is neither ``min`` nor ``max``.
        NotFoundError: no element has a metric of this name.
    """
    metric, colon, direction = text.rpartition(":")
    if text in names or not colon:
        metric = text
        direction = ""
    elif direction not in _DIRECTIONS:
        raise UsageError(
            f"{text!r} is no order: {direction!r} is neither min nor max",
            hint=f"write {metric}:max",
        )
    if metric not in names:
        if names:
            listed = f"there are: {', '.join(names)}"
        else:
            listed = "no element has reported a metric yet"
        raise NotFoundError(
            f"there is no metric {metric!r}", hint=did_you_mean(metric, names, listed)
        )
    if direction:
        return Ranking(metric, largest=direction == "max")
    return Ranking(metric, largest=is_more_better(metric))


def default_ranking(names: Sequence[str]) -> Ranking | None:
    """Return the ranking that applies if the user named none.

    The ranking is by a metric of the validation if there is one, else by the first metric.
    """
    if not names:
        return None
    chosen = next((name for name in names if _VALIDATION.search(name)), names[0])
    return parse_ranking(chosen, names)


def sweep_table(
    items: Sequence[Item], order: str | None = None, *, best_step: bool = False
) -> SweepTable:
    """Return the elements of runs, the best first.

    The runs are given with the oldest first. If several runs have the same element, the newest one
    counts.

    ``order`` is a text that ``parse_ranking`` reads. With ``best_step`` the best value of each
    element counts, not the last value.
    """
    newest: dict[tuple[int, Parameters], _MeasuredElement] = {}
    for item, metrics_of in items:
        for one in item.elements:
            metrics = metrics_of.get(one.index, Metrics((), ()))
            newest[one.index, one.parameters] = _MeasuredElement(item.run, one, metrics)
    names = _numeric_names(each.metrics for each in newest.values())
    if order is None:
        ranking = default_ranking(names)
    else:
        ranking = parse_ranking(order, names)
    best = ranking if best_step else None
    rows = [_row(each, best) for each in newest.values()]
    rows.sort(key=lambda row: _place(row, ranking))
    parameters = tuple(dict.fromkeys(name for row in rows for name, _ in row.parameters))
    return SweepTable(tuple(rows), ranking, parameters, names)


@dataclass(frozen=True, slots=True)
class _MeasuredElement:
    """An element of a run with its metrics."""

    run: Run
    element: ElementStatus
    metrics: Metrics


def _numeric_names(all_metrics: Iterable[Metrics]) -> tuple[str, ...]:
    """Return the names of the metrics that are a number in some row of an element, each once."""
    names: dict[str, None] = {}
    for metrics in all_metrics:
        for name in metrics.names:
            values = [row.values.get(name) for row in metrics.rows]
            if any(isinstance(value, float | int) for value in values):
                names[name] = None
    return tuple(names)


def _row(measured: _MeasuredElement, best: Ranking | None) -> SweepRow:
    """Return the row of an element; with a ranking, the row shows the ranking's best step."""
    element = measured.element
    rows = _rows_to_best(measured.metrics.rows, best) if best else measured.metrics.rows
    values: dict[str, Value] = {}
    for row in rows:
        values |= row.values
    steps = [row.step for row in rows if row.step is not None]
    return SweepRow(
        run=measured.run,
        index=element.index,
        job_id=element.job_id,
        parameters=element.parameters,
        status=element.status,
        step=steps[-1] if steps else None,
        values=values,
        metrics=measured.metrics,
    )


def _rows_to_best(rows: Sequence[MetricsRow], best: Ranking) -> Sequence[MetricsRow]:
    """Return the rows up to the first with the best finite value; all rows without such a value."""
    sign = -1 if best.largest else 1
    best_value = None
    best_end = len(rows)
    for place, row in enumerate(rows):
        value = _finite(row.values.get(best.metric))
        if value is None:
            continue
        if best_value is None or sign * value < sign * best_value:
            best_value = value
            best_end = place + 1
    return rows[:best_end]


def _finite(value: Value | None) -> float | None:
    if isinstance(value, float | int) and math.isfinite(value):
        return float(value)
    return None


def _place(row: SweepRow, ranking: Ranking | None) -> tuple[bool, bool, float, int]:
    """Return the sorting key of an element.

    Elements with a finite value come first, then diverged elements, then elements without a value.
    """
    last = row.values.get(ranking.metric) if ranking else None
    value = _finite(last)
    sign = -1 if ranking and ranking.largest else 1
    return last is None, value is None, sign * (value or 0.0), row.index


def best_row(table: SweepTable) -> SweepRow:
    """Return the best element.

    Raises:
        NotFoundError: no element has a value of the metric.
    """
    if table.scored:
        return table.scored[0]
    what = table.ranking.metric if table.ranking else "metric"
    raise NotFoundError(f"no element has a value of {what}", hint=states_hint(table))


def states_hint(table: SweepTable) -> str:
    """Return the command that shows the states of the elements."""
    if table.rows:
        return f"hpcrun sweep {table.rows[0].run.run_id} shows their states"
    return "hpcrun status"


def submit_command(row: SweepRow, cwd: str) -> str:
    """Return the line that submits one element as a plain job, quoted for a shell.

    The line is for a person who types in the folder ``cwd``.
    """
    from hpcrun.job.plan.sweep import one_element
    from hpcrun.job.request.request_line import option_groups, program_words, with_named_secrets

    run = row.run
    request = with_named_secrets(one_element(run.request, row.index, row.parameters))
    arguments = ["hpcrun", "submit"]
    for group in option_groups(request, run.profile_file or run.profile):
        arguments += group
    arguments += program_words(request)
    line = " ".join(quote_bash(text) for text in arguments)
    if run.cwd in (None, cwd):
        return line
    return f"cd {quote_bash(str(run.cwd))} && {line}"
