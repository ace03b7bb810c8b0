"""The GPUs of a run: table and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.hardware_use import GpuResult, GpuRow, RecordedUse
from hpcrun.job.text.units import format_rate, format_size
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
    ports = [
        (node, port.port, port.link or "-", format_rate(port.in_per_s), format_rate(port.out_per_s))
        for node, ports in result.ports.items()
        for port in ports
    ]
    return _tables((_HEADINGS, [*map(_cells, result.rows)]), (_PORT_HEADINGS, ports))


def recorded_tables(uses: Sequence[RecordedUse]) -> list[Table]:
    """Return the recorded use of each GPU, and of each node besides GPUs.

    The use is by a run or by the elements of a sweep.
    """
    if uses[0].element is None:
        front: tuple[str, ...] = ("NODE",)
    else:
        front = ("ELEMENT", "NODE")

    def place(use: RecordedUse, node: str) -> tuple[str, ...]:
        return (node,) if use.element is None else (str(use.element), node)

    gpus = [
        (
            *place(use, node),
            str(index),
            *(
                _of(share, "%", divisor=0.01)
                for share in (one.gpu_busy, one.gpu_idle, one.gpu_memory)
            ),
            _of(one.watts, " W"),
        )
        for use in uses
        for (node, index), one in use.gpus.items()
    ]
    nodes = [
        (
            *place(use, node),
            f"{one.cpus:.1f}" + (f"/{one.cpus_asked}" if one.cpus_asked else ""),
            f"{one.cpus_peak:.1f}",
            format_size(one.memory_peak)
            + (f"/{format_size(one.memory_asked)}" if one.memory_asked else ""),
            format_rate(one.network),
            "-" if one.rdma is None else format_rate(one.rdma),
        )
        for use in uses
        for node, one in use.nodes.items()
    ]
    return _tables(((*front, *_RECORDED_GPUS), gpus), ((*front, *_RECORDED_NODES), nodes))


def _tables(*parts: tuple[Sequence[str], Sequence[Sequence[str]]]) -> list[Table]:
    return [
        text_table(headings, rows, right={*headings} - _NO_NUMBERS)
        for headings, rows in parts
        if rows
    ]


def _cells(row: GpuRow) -> tuple[str, ...]:
    gpu = row.gpu
    return (
        row.node,
        "-" if row.rank is None else str(row.rank),
        str(gpu.index),
        gpu.name,
        _of(gpu.busy_percent, " %"),
        _of(gpu.memory_used_mb, " GB", gpu.memory_total_mb, 1024),
        _of(gpu.power_w, " W", gpu.power_limit_w),
        _of(gpu.temperature_c, " °C"),
    )


def _of(value: float | None, unit: str, most: float | None = None, divisor: float = 1) -> str:
    if value is None:
        return "-"
    used = f"{value / divisor:.{1 if divisor > 1 else 0}f}"
    if most is None:
        return f"{used}{unit}"
    return f"{used}/{most / divisor:.0f}{unit}"


def gpu_use(result: GpuResult) -> str:
    """Return the use of a run's GPUs in one line; "" if there is no reading."""
    busy = [row.gpu.busy_percent for row in result.rows if row.gpu.busy_percent is not None]
    if not busy:
        return ""
    used = [(row.gpu.memory_used_mb, row.gpu.memory_total_mb) for row in result.rows]
    memory = max((part / whole for part, whole in used if part is not None and whole), default=None)
    if min(busy) != max(busy):
        span = f" ({min(busy):.0f} to {max(busy):.0f})"
    else:
        span = ""
    if memory is None:
        fullest = ""
    else:
        fullest = f", memory {memory:.0%} full" + (" at most" if len(used) > 1 else "")
    return f"{count(len(result.rows), 'GPU')} {sum(busy) / len(busy):.0f} % busy{span}{fullest}"


def recorded_json(uses: Sequence[RecordedUse]) -> dict[str, Any]:
    """Return what a run, or each element of a sweep, has used as a JSON document."""
    return {
        "kind": "gpu",
        "run_id": uses[0].run_id,
        "recorded": True,
        "gpus": [
            {
                "element": use.element,
                "node": node,
                "index": index,
                "busy": one.gpu_busy,
                "idle": one.gpu_idle,
                "memory": one.gpu_memory,
                "power_w": one.watts,
            }
            for use in uses
            for (node, index), one in use.gpus.items()
        ],
        "nodes": [
            {"element": use.element, "node": node, **asdict(one)}
            for use in uses
            for node, one in use.nodes.items()
        ],
    }


def without_lines(result: GpuResult) -> list[str]:
    """Return the nodes that show no GPU, with one line for each reason."""
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
        "ports": [
            {"node": node, **asdict(port)} for node, ports in result.ports.items() for port in ports
        ],
    }
