"""The GPUs of a run: table and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.hardware_use import GpuResult, GpuRow, RecordedUse
from hpcrun.job.text.units import format_rate, format_size
from hpcrun.runs.use_samples import UseSummary
from hpcrun.views.text import count, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

_HEADINGS = ("NODE", "RANK", "GPU", "NAME", "UTIL", "MEMORY", "POWER", "TEMP")
_PORT_HEADINGS = ("NODE", "PORT", "LINK", "IN", "OUT")
_RECORDED_GPUS = ("GPU", "BUSY", "IDLE", "MEMORY", "POWER")
_RECORDED_NODES = ("CPUS", "PEAK", "MEMORY", "NETWORK", "RDMA")
_NO_NUMBERS = frozenset(("NODE", "NAME", "PORT", "LINK"))


def gpu_tables(result: GpuResult) -> list[Table]:
    """Return the GPUs of a running job and the network traffic of its nodes.

    A table that has no row is left out.
    """
    gpus = [_gpu_cells(row) for row in result.rows]
    ports = []
    for node, readings in result.ports.items():
        for port in readings:
            rates = [format_rate(port.in_per_s), format_rate(port.out_per_s)]
            ports.append([node, port.port, port.link or "-", *rates])
    return _with_rows(_table(_HEADINGS, gpus), _table(_PORT_HEADINGS, ports))


def recorded_tables(uses: Sequence[RecordedUse]) -> list[Table]:
    """Return the recorded use of each GPU, and of each node besides GPUs.

    The use is by a run or by the elements of a sweep.
    """
    front = ["NODE"] if uses[0].element is None else ["ELEMENT", "NODE"]
    gpus = []
    nodes = []
    for use in uses:
        element = [] if use.element is None else [str(use.element)]
        for (node, index), summary in use.gpus.items():
            gpus.append([*element, node, str(index), *_recorded_gpu_cells(summary)])
        for node, summary in use.nodes.items():
            nodes.append([*element, node, *_recorded_node_cells(summary)])
    return _with_rows(
        _table([*front, *_RECORDED_GPUS], gpus), _table([*front, *_RECORDED_NODES], nodes)
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return text_table(headings, rows, right={*headings} - _NO_NUMBERS)


def _with_rows(*tables: Table) -> list[Table]:
    return [table for table in tables if table.row_count]


def _gpu_cells(row: GpuRow) -> list[str]:
    gpu = row.gpu
    return [
        row.node,
        "-" if row.rank is None else str(row.rank),
        str(gpu.index),
        gpu.name,
        _amount(gpu.busy_percent, " %"),
        _gigabytes(gpu.memory_used_mb, gpu.memory_total_mb),
        _amount(gpu.power_w, " W", gpu.power_limit_w),
        _amount(gpu.temperature_c, " °C"),
    ]


def _recorded_gpu_cells(summary: UseSummary) -> list[str]:
    return [
        _percent(summary.gpu_busy),
        _percent(summary.gpu_idle),
        _percent(summary.gpu_memory),
        _amount(summary.watts, " W"),
    ]


def _recorded_node_cells(summary: UseSummary) -> list[str]:
    cpus = f"{summary.cpus:.1f}"
    if summary.cpus_asked:
        cpus += f"/{summary.cpus_asked}"
    memory = format_size(summary.memory_peak)
    if summary.memory_asked:
        memory += f"/{format_size(summary.memory_asked)}"
    rdma = "-" if summary.rdma is None else format_rate(summary.rdma)
    return [cpus, f"{summary.cpus_peak:.1f}", memory, format_rate(summary.network), rdma]


def _amount(value: float | None, unit: str, most: float | None = None) -> str:
    """Return a number and the most that it can be, in a unit; ``-`` for an unknown number."""
    if value is None:
        return "-"
    if most is None:
        return f"{value:.0f}{unit}"
    return f"{value:.0f}/{most:.0f}{unit}"


def _gigabytes(used_mb: float | None, total_mb: float | None) -> str:
    if used_mb is None:
        return "-"
    used = f"{used_mb / 1024:.1f}"
    if total_mb is None:
        return f"{used} GB"
    return f"{used}/{total_mb / 1024:.0f} GB"


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share / 0.01:.0f}%"


def gpu_use(result: GpuResult) -> str:
    """Return the use of a run's GPUs in one line; "" if there is no reading."""
    gpus = [row.gpu for row in result.rows]
    busy = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    if not busy:
        return ""
    text = f"{count(len(gpus), 'GPU')} {sum(busy) / len(busy):.0f} % busy"
    if min(busy) != max(busy):
        text += f" ({min(busy):.0f} to {max(busy):.0f})"
    full = []
    for gpu in gpus:
        if gpu.memory_used_mb is not None and gpu.memory_total_mb:
            full.append(gpu.memory_used_mb / gpu.memory_total_mb)
    if full:
        text += f", memory {max(full):.0%} full"
        if len(gpus) > 1:
            text += " at most"
    return text


def recorded_json(uses: Sequence[RecordedUse]) -> dict[str, Any]:
    """Return what a run, or each element of a sweep, has used as a JSON document."""
    gpus = []
    nodes = []
    for use in uses:
        for (node, index), summary in use.gpus.items():
            gpu = {
                "element": use.element,
                "node": node,
                "index": index,
                "busy": summary.gpu_busy,
                "idle": summary.gpu_idle,
                "memory": summary.gpu_memory,
                "power_w": summary.watts,
            }
            gpus.append(gpu)
        for node, summary in use.nodes.items():
            nodes.append({"element": use.element, "node": node, **asdict(summary)})
    return {
        "kind": "gpu",
        "run_id": uses[0].run_id,
        "recorded": True,
        "gpus": gpus,
        "nodes": nodes,
    }


def without_lines(result: GpuResult) -> list[str]:
    """Return the nodes that show no GPU, with one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for node, reason in result.without.items():
        by_reason.setdefault(reason, []).append(node)
    lines = []
    for reason, nodes in by_reason.items():
        lines.append(one_line(f"{', '.join(nodes)}: {reason}"))
    return lines


def gpu_json(result: GpuResult) -> dict[str, Any]:
    """Return the GPUs as a JSON document."""
    gpus = []
    for row in result.rows:
        gpus.append({"node": row.node, "rank": row.rank, **asdict(row.gpu)})
    ports = []
    for node, readings in result.ports.items():
        ports += [{"node": node, **asdict(port)} for port in readings]
    return {
        "kind": "gpu",
        "run_id": result.run_id,
        "gpus": gpus,
        "without": dict(result.without),
        "ports": ports,
    }
