"""``hpcrun.read_status`` and ``hpcrun.read_metrics``: runs and their numbers as pandas' tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pandas

from hpcrun.actions.runs import run_metrics
from hpcrun.actions.runs.find import find_element, named_elements
from hpcrun.actions.runs.run_metrics import Metrics, read_elements
from hpcrun.actions.status.status_query import chosen_ids, get_status
from hpcrun.cli.context import make_context
from hpcrun.runs.elements import elements_of
from hpcrun.views.status_table import FIELDS, only_elements, status_json, with_element_rows

if TYPE_CHECKING:
    from pandas import DataFrame


_COLUMNS = ("rank", "attempt", "step", "time")


def read_status(*runs: str) -> DataFrame:
    """Return the status of runs as a table, the newest last.

    Args:
        runs: job ids, run ids, names, or ``last``; ``RUN/3`` is element 3 of a sweep. All runs
            where there are none.

    Returns:
        a row for each run and each element that was named; the columns of ``hpcrun status --csv``,
        times in seconds.

    Raises:
        HpcrunError: there is no such run, or its scheduler does not respond: the last known status
            may be old.
    """
    context = make_context(announce=None)
    named = named_elements(find_element(run, context.store) for run in runs)
    result = get_status([*named] or chosen_ids(context.store, everything=True), context.ports)
    if result.away:
        raise result.away
    if named:
        result = with_element_rows(only_elements(result, named))
    rows = []
    for row in status_json(result)["runs"]:
        rows.append({name: row.get(name) for name in FIELDS})
    return pandas.DataFrame(rows, columns=list(FIELDS))


def read_metrics(
    run: str = "last", *, ranks: Sequence[int] | Literal["all"] | None = None
) -> DataFrame:
    """Return the metrics of all attempts of a run as a table.

    Args:
        run: a job id, run id, name, or ``last``; ``RUN/3`` is element 3 of a sweep.
        ranks: by default the first with metrics.

    Returns:
        a row for each step of each rank: ``rank``, ``attempt``, ``step``, ``time`` (seconds since
        the epoch) and a column for each metric, NaN if it was not recorded. The table of a sweep,
        or of several calls of a function, has
        ``element`` and its parameters in front.

    Raises:
        HpcrunError: there is no such run.
    """
    context = make_context(announce=None)
    named = find_element(run, context.store)
    patterns, _ = context.metric_patterns(named.run.profile)
    folder = context.store.folder(named.run.run_id)
    role = named.run.deciding_role
    all_ranks = ranks == "all"
    wanted = None
    if ranks is not None and not all_ranks:
        wanted = [int(rank) for rank in ranks]
    elements = elements_of(named.run)
    if elements is None or named.element is not None:
        metrics = run_metrics.read_metrics(
            folder,
            patterns,
            wanted=wanted,
            all_ranks=all_ranks,
            element=named.element or 0,
            role=role,
        )
        return pandas.DataFrame(_rows(metrics), columns=[*_COLUMNS, *metrics.names])
    by_element = read_elements(
        folder, elements.parameters, patterns, wanted=wanted, all_ranks=all_ranks, role=role
    )
    rows = []
    front_columns: list[str] = []
    metric_columns: list[str] = []
    for index, metrics in by_element.items():
        front = {"element": index, **dict(elements.parameters[index])}
        rows += [{**front, **row} for row in _rows(metrics)]
        front_columns += front
        metric_columns += metrics.names
    columns = dict.fromkeys([*front_columns, *_COLUMNS, *metric_columns])
    return pandas.DataFrame(rows, columns=list(columns))


def _rows(metrics: Metrics) -> Iterator[dict[str, Any]]:
    for row in metrics.rows:
        yield {
            "rank": row.rank,
            "attempt": row.attempt,
            "step": row.step,
            "time": row.time_s,
            **row.values,
        }
