"""The GPUs of a run: table and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.gpu import GpuResult, GpuRow
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from rich.table import Table

_HEADINGS = ("NODE", "RANK", "GPU", "NAME", "BUSY", "MEMORY", "POWER", "TEMP")


def gpu_table(result: GpuResult) -> Table:
    """Return the GPUs for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in _HEADINGS:
        a_name = heading in ("NODE", "NAME")
        table.add_column(heading, overflow="fold", justify="left" if a_name else "right")
    for row in result.rows:
        table.add_row(*(Text(one_line(cell)) for cell in _cells(row)))
    return table


def _cells(row: GpuRow) -> tuple[str, ...]:
    gpu = row.gpu
    return (
        row.node,
        "-" if row.rank is None else str(row.rank),
        str(gpu.index),
        gpu.name,
        _with_unit(gpu.busy_percent, "%"),
        _of(gpu.memory_used_mb, gpu.memory_total_mb, "GB", 1024),
        _of(gpu.power_w, gpu.power_limit_w, "W", 1),
        _with_unit(gpu.temperature_c, "°C"),
    )


def _with_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def _of(value: float | None, most: float | None, unit: str, divisor: int) -> str:
    if value is None:
        return "-"
    digits = 1 if divisor > 1 else 0
    used = f"{value / divisor:.{digits}f}"
    return f"{used} {unit}" if most is None else f"{used}/{most / divisor:.0f} {unit}"


def without_lines(result: GpuResult) -> list[str]:
    """Return the nodes that show no GPU, those of one reason on one line."""
    by_reason: dict[str, list[str]] = {}
    for node, words in result.without.items():
        by_reason.setdefault(words, []).append(node)
    return [one_line(f"{', '.join(nodes)}: {words}") for words, nodes in by_reason.items()]


def gpu_json(result: GpuResult) -> dict[str, Any]:
    """Return the GPUs as a JSON document."""
    return {
        "kind": "gpu",
        "run_id": result.run_id,
        "gpus": [{"node": row.node, "rank": row.rank, **asdict(row.gpu)} for row in result.rows],
        "without": dict(result.without),
    }
