"""Runs and their numbers for programs.

``hpcrun.read_runs`` returns dictionaries; ``hpcrun.read_status`` and ``hpcrun.read_metrics`` return
tables of pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.actions.runs import run_metrics
from hpcrun.actions.runs.find import find_element, named_elements
from hpcrun.actions.runs.run_metrics import Metrics, read_elements
from hpcrun.actions.status.run_status import StatusResult
from hpcrun.actions.status.silent_runs import with_silence
from hpcrun.actions.status.status_query import chosen_ids, get_status
from hpcrun.cli.context import make_context
from hpcrun.errors import PlanError
from hpcrun.explain.first_line import with_first_lines
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.runs.elements import elements_of
from hpcrun.views.status_table import FIELDS, only_elements, status_json, with_element_rows

if TYPE_CHECKING:
    from pandas import DataFrame


_COLUMNS = ("rank", "attempt", "step", "time")


def read_runs(*runs: str) -> list[dict[str, Any]]:
    """Return the status of runs, the newest last.

    Args:
        runs: job ids, run ids, names, or ``last``; ``RUN/3`` is element 3 of a sweep. All runs
            where there are none.

    Returns:
        a dictionary for each run, with the fields of ``runs`` in ``hpcrun status --json``: times in
        seconds, None for what is not known. A sweep has a list, ``elements``.

    Raises:
        HpcrunError: there is no such run, or its scheduler does not respond: the last known status
            may be old.
    """
    result, named = _statuses(runs)
    rows: list[dict[str, Any]] = HIDER.hide_all(status_json(only_elements(result, named))["runs"])
    return rows


def read_status(*runs: str) -> DataFrame:
    """Return the status of runs as a table, the newest last.

    Args:
        runs: as for :func:`read_runs`.

    Returns:
        a row for each run, or for each element of a named sweep; the columns of
        ``hpcrun status --csv``, times in seconds.

    Raises:
        HpcrunError: as for :func:`read_runs`, or pandas is not installed.
    """
    result, named = _statuses(runs)
    if named:
        result = with_element_rows(only_elements(result, named))
    rows = []
    for row in status_json(result)["runs"]:
        rows.append({name: row.get(name) for name in FIELDS})
    return _table(rows, FIELDS)


def _statuses(runs: Sequence[str]) -> tuple[StatusResult, dict[str, set[int] | None]]:
    """Return the statuses of runs, and the elements that were named, by run id.

    Raises:
        HpcrunError: there is no such run, or its scheduler does not respond.
    """
    context = make_context(announce=None)
    named = named_elements(find_element(run, context.store) for run in runs)
    ids = [*named] or chosen_ids(context.store, everything=True)
    result = with_silence(get_status(ids, context.ports), context.now_s())
    if result.away:
        raise result.away
    return with_first_lines(result, context.store, context.rules), named


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
        HpcrunError: there is no such run, or pandas is not installed.
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
        return _table(list(_rows(metrics)), [*_COLUMNS, *metrics.names])
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
    return _table(rows, columns)


def _table(rows: list[dict[str, Any]], columns: Iterable[str]) -> DataFrame:
    try:
        import pandas
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise PlanError(
            "tables need pandas, which is not installed in this Python",
            hint='pip install "hpcrun-slurm[tables]"; hpcrun.read_runs() needs no pandas',
        ) from None
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
