"""The stragglers of a run, by what its ranks noted of their steps."""

from __future__ import annotations

from hpcrun.explain.diagnosis.stragglers import Stragglers, find_stragglers, noted_paces
from hpcrun.runs.attempt import Attempt, node_ranks, rank_exits
from hpcrun.runs.metrics import Unreadable, metric_ranks, noted

_ROWS = 64
"""Rows at the end of a rank's metrics that are read."""


def stragglers_of(attempt: Attempt) -> tuple[Stragglers, dict[int, str]] | None:
    """Return the ranks of an attempt that are slower than the others, and the nodes of all ranks; None if none is."""
    node_of = {end.rank: end.node for end in rank_exits(attempt.folder)}
    node_of |= {rank: node for node, mine in node_ranks(attempt.folder).items() for rank in mine}
    rows = {rank: noted(attempt, rank, Unreadable(), _ROWS) for rank in metric_ranks(attempt.folder)}
    paces = {rank: noted_paces([(row.time_s, row.step, row.values) for row in mine]) for rank, mine in rows.items()}
    found = find_stragglers(paces, node_of)
    return None if found is None else (found, node_of)
