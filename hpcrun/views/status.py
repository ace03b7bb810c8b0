"""The status table, and its JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.status import RunStatus, StatusResult
from hpcrun.job import state
from hpcrun.views.text import age_text, one_line, time_text

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


def status_table(result: StatusResult, now_s: float) -> Table:
    """Return the table of runs for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("NAME", no_wrap=True, max_width=24)
    table.add_column("JOB", no_wrap=True)
    table.add_column("PROFILE", no_wrap=True, max_width=12)
    table.add_column("STATE", no_wrap=True)
    table.add_column("SIZE", no_wrap=True)
    table.add_column("ELAPSED", no_wrap=True, justify="right")
    table.add_column("LIMIT", no_wrap=True, justify="right")
    table.add_column("WHY, OR WHERE", overflow="ellipsis", no_wrap=True, ratio=1)
    for item in result.runs:
        run, status = item.run, item.status
        colour = _COLOURS.get(status.state, "red" if status.final else "")
        table.add_row(
            Text(run.name),
            Text(run.job_id or "-"),
            Text(run.profile),
            Text(status.state, style=colour),
            Text(_size(item)),
            Text(time_text(status.elapsed_s)),
            Text(time_text(status.limit_s or run.walltime_s)),
            Text(one_line(_why(item, now_s))),
        )
    return table


def _size(item: RunStatus) -> str:
    run = item.run
    unit = "×" + str(run.gpus_per_node) if run.gpus_per_node else " CPU"
    return f"{run.nodes}{unit}"


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
