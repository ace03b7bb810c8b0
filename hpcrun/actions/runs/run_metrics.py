"""metrics: the metrics of all attempts of a run, as its ranks recorded them, or from their logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.errors import HpcrunError, NotFoundError, did_you_mean
from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.patterns import compile_pattern
from hpcrun.profiles.folders import Source
from hpcrun.runs.attempt import Attempt, attempts, ranks
from hpcrun.runs.metric_files import (
    LogMetrics,
    MetricsRow,
    Unreadable,
    count_steps,
    join,
    metric_ranks,
    noted,
)

PROGRESS = ("epoch", "iter", "iteration", "global_step")
"""Names of numbers that count the work of a run."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The numbers of a run."""

    # the names of the metrics in the order of their first appearance, ``epoch`` last
    names: tuple[str, ...]
    rows: tuple[MetricsRow, ...]  # ordered by rank and step
    unreadable: int = 0  # the number of recorded lines that are not metrics

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks with metrics."""
        return tuple(sorted({row.rank for row in self.rows}))


def metric_patterns(
    profile: str,
    folders: Sequence[Source],
    configured: Mapping[str, str],
    *,
    reads_paths: bool = True,
) -> tuple[dict[str, str], str | None]:
    """Return the patterns for a run's logs, and a remark if its profile cannot be read.

    Args:
        profile: the name or the path of the profile.
        folders: the folders in which profiles are found.
        configured: those of config.yaml, which have priority over the profile's.
        reads_paths: whether to read a profile that is named by its path.
    """
    # reading one takes longer than all the rest
    from hpcrun.profiles.load import is_path, load_profile

    if is_path(profile) and not reads_paths:
        return dict(configured), None
    try:
        return {**load_profile(profile, folders).profile.metrics, **configured}, None
    except HpcrunError as error:
        return dict(configured), f"the metrics of profile {profile} are left out: {error.message}"


def read_metrics(
    folder: Path,
    patterns: Mapping[str, str] | None,
    *,
    wanted: Sequence[int] | None = None,
    all_ranks: bool = False,
    element: int = 0,
    role: RoleRanks | None = None,
) -> Metrics:
    """Read the metrics of a run.

    Args:
        folder: the folder of the run.
        patterns: metric → regular expression to find it in the logs; one that was noted too is not
            looked for. Without patterns, a rank that noted nothing has the usual metrics of its
            log; None for noted metrics only.
        wanted: the ranks; None for the first that said something.
        all_ranks: read every rank, and ignore ``wanted``.
        element: of a sweep, else 0.
        role: the role whose ranks these are, by its own numbers; None without roles.
    """
    begun = list(reversed(list(attempts(folder, element, role))))
    if all_ranks:
        chosen: Sequence[int] = _all_ranks(begun)
    elif wanted is not None:
        chosen = wanted
    else:
        chosen = [_first_rank(begun)]
    bad = Unreadable()
    rows: list[MetricsRow] = []
    for rank in chosen:
        rows += _rows_of_rank(begun, rank, patterns, bad)
    names = _names_in(rows)
    # a metric of progress, not of quality, comes last
    ordered = sorted(names, key=lambda name: name.lower() in PROGRESS)
    return Metrics(tuple(ordered), tuple(rows), bad.lines)


def _all_ranks(begun: Sequence[Attempt]) -> list[int]:
    """Return the ranks that have metrics or a log in any attempt."""
    numbers: set[int] = set()
    for attempt in begun:
        numbers.update(metric_ranks(attempt.folder))
        numbers.update(ranks(attempt.folder))
    return sorted(numbers)


def _first_rank(begun: Sequence[Attempt]) -> int:
    """Return the first rank that recorded metrics; 0 if none did."""
    numbers: set[int] = set()
    for attempt in begun:
        numbers.update(metric_ranks(attempt.folder))
    return min(numbers, default=0)


def _names_in(rows: Iterable[MetricsRow]) -> list[str]:
    """Return the names of metrics in the order of their first appearance."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.values)
    return list(names)


def _rows_of_rank(
    begun: Sequence[Attempt], rank: int, patterns: Mapping[str, str] | None, bad: Unreadable
) -> list[MetricsRow]:
    """Return the metrics of a rank in all attempts; ``bad`` counts the lines that are none."""
    recorded: list[MetricsRow] = []
    for attempt in begun:
        recorded += noted(attempt, rank, bad)
    names = _names_in(recorded)
    missing = {}
    for name, text in (patterns or {}).items():
        if name not in names:
            missing[name] = compile_pattern(text)
    has_no_patterns = patterns is not None and not patterns
    finder = LogMetrics(missing, usual=has_no_patterns and not recorded)
    logged: list[MetricsRow] = []
    if missing or finder.usual:
        for attempt in begun:
            logged += finder.rows(attempt, rank)
    return join([*count_steps(logged), *recorded])


def read_elements(
    folder: Path,
    elements: Iterable[int],
    patterns: Mapping[str, str],
    *,
    wanted: Sequence[int] | None = None,
    all_ranks: bool = False,
    names: Sequence[str] = (),
    role: RoleRanks | None = None,
) -> dict[int, Metrics]:
    """Read the metrics of the elements of a sweep.

    Args:
        folder: the folder of the run.
        elements: the numbers of the elements.
        patterns: metric → regular expression to find it in the logs.
        wanted: the ranks; None for the first that said something.
        all_ranks: read every rank, and ignore ``wanted``.
        names: only these metrics; all where there are none.
        role: the role whose ranks these are; None without roles.

    Returns:
        The number of an element → its metrics, empty if the element has none.
    """
    by_element = {}
    for index in elements:
        by_element[index] = read_metrics(
            folder, patterns, wanted=wanted, all_ranks=all_ranks, element=index, role=role
        )
    if not names:
        return by_element
    known: dict[str, None] = {}
    for metrics in by_element.values():
        known |= dict.fromkeys(metrics.names)
    choose_metrics(Metrics(tuple(known), ()), names)  # refuses a name that no element has
    chosen: dict[int, Metrics] = {}
    for index, metrics in by_element.items():
        present = [name for name in names if name in metrics.names]
        if present or not metrics.names:
            chosen[index] = choose_metrics(metrics, present)
    return chosen


def choose_metrics(metrics: Metrics, names: Sequence[str]) -> Metrics:
    """Return some of the metrics, all where none is named.

    Raises:
        NotFoundError: there is no metric of a name.
    """
    if not names:
        return metrics
    for name in names:
        if name not in metrics.names:
            hint = did_you_mean(name, metrics.names, f"there are: {', '.join(metrics.names)}")
            raise NotFoundError(f"there is no metric {name!r}", hint=hint)
    rows = []
    for row in metrics.rows:
        values = {name: row.values[name] for name in names if name in row.values}
        if values:
            rows.append(replace(row, values=values))
    return replace(metrics, names=tuple(names), rows=tuple(rows))


def last_rows(metrics: Metrics, number: int | None) -> Metrics:
    """Return the last rows, all for None."""
    if number is None:
        return metrics
    if number <= 0:
        return replace(metrics, rows=())
    return replace(metrics, rows=metrics.rows[-number:])
