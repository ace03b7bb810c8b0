"""The GPUs of a run: table and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.use import GpuResult, GpuRow, RecordedUse
from hpcrun.job.units import format_rate, format_size
from hpcrun.views.text import count, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

_HEADINGS = ("NODE", "RANK", "GPU", "NAME", "UTIL", "MEMORY", "POWER", "TEMP")
_RECORDED_HEADINGS = ("NODE", "CPUS", "PEAK", "MEMORY", "NETWORK", "RDMA")
_PORT_HEADINGS = ("NODE", "PORT", "LINK", "IN", "OUT")
_NUMBERS = ("RANK", "GPU", "UTIL", "MEMORY", "POWER", "TEMP", "IN", "OUT")


def gpu_table(result: GpuResult) -> Table:
    """Return the GPUs for a terminal."""
    return text_table(_HEADINGS, map(_cells, result.rows), right=_NUMBERS)


def ports_table(result: GpuResult) -> Table:
    """Return the network traffic of each node, for a terminal."""
    rows = (
        (node, port.port, port.link or "-", format_rate(port.in_per_s), format_rate(port.out_per_s))
        for node, ports in result.ports.items()
        for port in ports
    )
    return text_table(_PORT_HEADINGS, rows, right=_NUMBERS)


def gpu_use(result: GpuResult) -> str:
    """Return the use of a run's GPUs in one line; "" if there is no reading."""
    busy = [row.gpu.busy_percent for row in result.rows if row.gpu.busy_percent is not None]
    if not busy:
        return ""
    used = [(row.gpu.memory_used_mb, row.gpu.memory_total_mb) for row in result.rows]
    memory = max((part / whole for part, whole in used if part is not None and whole), default=None)
    span = f" ({min(busy):.0f} to {max(busy):.0f})" if min(busy) != max(busy) else ""
    fullest = "" if memory is None else f", memory {memory:.0%} full" + (" at most" if len(used) > 1 else "")
    return f"{count(len(result.rows), 'GPU')} {sum(busy) / len(busy):.0f} % busy{span}{fullest}"


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


def recorded_gpus_table(uses: Sequence[RecordedUse]) -> Table:
    """Return what each GPU of a run has done, or of the elements of a sweep, for a terminal."""
    front = _front(uses)
    rows = (
        (
            *_element(use),
            node,
            str(index),
            _share(one.gpu_busy),
            _share(one.gpu_idle),
            _share(one.gpu_memory),
            "-" if one.watts is None else f"{one.watts:.0f} W",
        )
        for use in uses
        for (node, index), one in use.gpus.items()
    )
    numbers = ("GPU", "BUSY", "IDLE", "MEMORY", "POWER")
    return text_table((*front, "NODE", *numbers), rows, right=(*front, *numbers))


def recorded_nodes_table(uses: Sequence[RecordedUse]) -> Table:
    """Return what a run, or each element of a sweep, has used of its nodes besides GPUs, for a terminal."""
    front = _front(uses)
    rows = (
        (
            *_element(use),
            node,
            f"{one.cpus:.1f}" + (f"/{one.cpus_asked}" if one.cpus_asked else ""),
            f"{one.cpus_peak:.1f}",
            format_size(one.memory_peak) + (f"/{format_size(one.memory_asked)}" if one.memory_asked else ""),
            format_rate(one.network),
            "-" if one.rdma is None else format_rate(one.rdma),
        )
        for use in uses
        for node, one in use.nodes.items()
    )
    return text_table((*front, *_RECORDED_HEADINGS), rows, right=(*front, *_RECORDED_HEADINGS[1:]))


def _front(uses: Sequence[RecordedUse]) -> tuple[str, ...]:
    return ("ELEMENT",) if any(map(_element, uses)) else ()


def _element(use: RecordedUse) -> tuple[str, ...]:
    return () if use.element is None else (str(use.element),)


def recorded_json(uses: Sequence[RecordedUse]) -> dict[str, Any]:
    """Return what a run, or each element of a sweep, has used as a JSON document."""
    return {
        "kind": "gpu",
        "run_id": uses[0].run_id,
        "recorded": True,
        "gpus": [
            {"element": use.element, "node": node, "index": index, "busy": one.gpu_busy, "idle": one.gpu_idle,
             "memory": one.gpu_memory, "power_w": one.watts}
            for use in uses
            for (node, index), one in use.gpus.items()
        ],
        "nodes": [
            {"element": use.element, "node": node, **asdict(one)} for use in uses for node, one in use.nodes.items()
        ],
    }  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


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
        "ports": [{"node": node, **asdict(port)} for node, ports in result.ports.items() for port in ports],
    }
