"""The columns of status: those of the table, and every plain field of the JSON by its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcrun.errors import UsageError, nearest
from hpcrun.views.text import csv_text

TABLE = ("name", "job", "profile", "state", "size", "elapsed", "limit", "why")
"""What the table shows where nothing else was asked for; also names for --columns."""
FIELDS = (
    "run_id", "name", "job_id", "state", "final", "reason", "exit_status", "signal", "attempt", "elapsed_s", "limit_s",
    "hosts", "scheduler", "cluster", "host", "profile", "nodes", "gpus_per_node", "world_size", "walltime_s",
    "created_s", "asked_s", "stale", "folder",
)  # fmt: skip
"""Fields of the JSON that are one value each, and the columns of --csv: names are only ever added, at the end."""

# On a narrow terminal the first of these goes first.
_DROPPED = ("size", "profile", "limit", "elapsed", "why", "job")


def check_columns(given: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that were asked for, each once; nothing for none.

    Raises:
        UsageError: there is no such column.
    """
    known = (*TABLE, *(name for name in FIELDS if name not in TABLE))
    wanted = tuple(dict.fromkeys(word.strip() for item in given for word in item.split(",") if word.strip()))
    for word in wanted:
        if word not in known:
            close = nearest(word, list(known))
            hint = f"did you mean {close}?" if close else ", ".join(known)
            raise UsageError(f"--columns {word}: no such column", hint=hint)
    return wanted


def fitting(needed: Mapping[str, int], width: int, gap: int, dropped: Sequence[str] = _DROPPED) -> tuple[str, ...]:
    """Return the columns of a table that a terminal has room for; by default of that of status.

    Args:
        needed: column → the least that it needs.
        dropped: those that can be done without, what is missed least first.
    """
    left = list(needed)
    for name in dropped:
        if sum(needed[column] + gap for column in left) - gap <= width:
            break
        left.remove(name)
    return tuple(left)


def rows_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV of some columns, without the last line end."""
    return csv_text(columns, ([row.get(name) for name in columns] for row in rows)).removesuffix("\n")
