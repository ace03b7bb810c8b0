"""The stragglers of a run, from what its ranks noted and printed of their steps."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hpcrun.diagnosis.stragglers import Paces, Stragglers, find_stragglers, noted_paces, read_paces
from hpcrun.reading import open_regular
from hpcrun.runs.attempt import Attempt, node_ranks, rank_exits, ranks
from hpcrun.runs.logs import rank_log
from hpcrun.runs.metrics import Unreadable, metric_ranks, noted

_ROWS = 64
"""Rows at the end of a rank's metrics that are read."""
_MOST_BYTES, _MOST_EACH, _LEAST_EACH = 8 << 20, 32 << 10, 4 << 10
"""Bytes that are read of the ends of all logs, and of each."""
_LINE_ENDS = re.compile(r"[\r\n]+")
"""A progress bar writes its states between carriage returns."""


def stragglers_of(attempt: Attempt) -> tuple[Stragglers, dict[int, str]] | None:
    """Return the ranks of an attempt that are slower than the others, and the nodes of all ranks; None if none is.

    The metrics of the ranks decide, and the ends of their logs where they have none, or are equally fast by them.
    """
    node_of = {end.rank: end.node for end in rank_exits(attempt.folder)}
    node_of |= {rank: node for node, mine in node_ranks(attempt.folder).items() for rank in mine}
    found = find_stragglers({rank: _noted(attempt, rank) for rank in metric_ranks(attempt.folder)}, node_of)
    if found is None:
        found = find_stragglers(_printed(attempt, ranks(attempt.folder)), node_of)
    return None if found is None else (found, node_of)


def _noted(attempt: Attempt, rank: int) -> Paces:
    rows = noted(attempt, rank, Unreadable(), _ROWS)
    return noted_paces([(row.time_s, row.step, row.values) for row in rows])


def _printed(attempt: Attempt, those: Sequence[int]) -> dict[int, Paces]:
    most = max(_LEAST_EACH, min(_MOST_EACH, _MOST_BYTES // (2 * len(those) or 1)))
    return {
        rank: read_paces(
            line for name in ("out", "err") for line in _last_lines(rank_log(attempt.folder, rank, name).path, most)
        )
        for rank in those
    }


def _last_lines(path: Path, most: int) -> list[str]:
    """Return the lines in the last bytes of a log; none if it cannot be read."""
    with suppress(OSError), open_regular(path, links=False) as file:
        start = max(0, file.seek(0, os.SEEK_END) - most)
        file.seek(start)
        lines = _LINE_ENDS.split(file.read(most).decode("utf-8", "replace"))
        return lines[1:] if start else lines
    return []
