"""The status table, and its JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.status import RunStatus, StatusResult
from hpcrun.job import state
from hpcrun.views.text import age_text, clock_text, one_line

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {
    state.COMPLETED: "green",
    state.RUNNING: "cyan",
    state.PENDING: "yellow",
    state.SUBMITTING: "yellow",
    "CONFIGURING": "yellow",
    "COMPLETING": "cyan",
}


_HEADINGS = ("NAME", "JOB", "PROFILE", "STATE", "SIZE", "ELAPSED", "LIMIT", "WHY, OR WHERE")
_NAME_LEAST, _WHY_LEAST = 8, 18
_GAP = 2


def status_table(result: StatusResult, now_s: float, width: int) -> Table:
    """Return the table of runs, at most ``width`` characters wide where that is enough for its numbers.

    Long names are cut, since they stand in ``--json`` and can be typed in part; reasons are wrapped.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [_cells(item, now_s) for item in result.runs]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    needed = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    spare = width - sum(needed[1:-1]) - _GAP * (len(needed) - 1) - _WHY_LEAST
    table.add_column("NAME", no_wrap=True, overflow="ellipsis", width=min(needed[0], max(_NAME_LEAST, spare)))
    for heading, least in zip(_HEADINGS[1:-1], needed[1:-1], strict=True):
        right = heading in ("ELAPSED", "LIMIT")
        table.add_column(heading, no_wrap=True, min_width=least, justify="right" if right else "left")
    table.add_column(_HEADINGS[-1], overflow="fold")
    for item, row in zip(result.runs, rows, strict=True):
        colour = _COLOURS.get(item.status.state, "red" if item.status.final else "")
        table.add_row(*(Text(cell, style=colour if column == 3 else "") for column, cell in enumerate(row)))
    return table


def _cells(item: RunStatus, now_s: float) -> tuple[str, ...]:
    run, status = item.run, item.status
    return (
        run.name,
        run.job_id or "-",
        run.profile,
        status.state,
        f"{run.nodes}×{run.gpus_per_node}",
        clock_text(status.elapsed_s),
        clock_text(status.limit_s or run.walltime_s),
        one_line(_why(item, now_s)),
    )


def _why(item: RunStatus, now_s: float) -> str:
    status = item.status
    parts = []
    if status.state == state.FAILED and status.exit_status:
        parts.append(f"exit status {status.exit_status}")
    if status.reason and status.reason != "NonZeroExitCode":
        parts.append(status.reason)
    elif status.hosts and not parts:
        parts.append(status.hosts)
    if item.stale:
        parts.append(f"as of {age_text(max(0.0, now_s - status.asked_s))}")
    return ", ".join(parts)


def status_json(result: StatusResult) -> dict[str, Any]:
    """Return the statuses as a JSON document."""
    return {
        "kind": "status",
        "runs": [_run_json(item) for item in result.runs],
        "away": result.away.message if result.away else None,
        "damaged": list(result.damaged),
    }


def _run_json(item: RunStatus) -> dict[str, Any]:
    run = item.run
    kept = ("run_id", "name", "scheduler", "cluster", "host", "created_s", "job_id", "profile", "nodes",
            "gpus_per_node", "world_size", "walltime_s")  # fmt: skip
    return {
        **{name: getattr(run, name) for name in kept},
        "folder": str(item.folder),
        "stale": item.stale,
        **asdict(item.status),
    }
