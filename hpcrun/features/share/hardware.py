"""The use of the hardware on the page: a row and a curve for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpcrun.features.share.drawings import COLOURS, Curve, line_chart
from hpcrun.job.units import format_rate, format_size
from hpcrun.runs.use import NodeUse, UseSample, mean_over_time

_MOST_ROWS = 32
_GB, _MB = 1024**3, 1e6
Short = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class UseChart:
    """A chart of the use: its name and unit, the value of a sample (None without one), the axis's least end."""

    name: str
    unit: str
    value: Callable[[UseSample], float | None]
    most: float | None = None


_CHARTS = (
    UseChart("GPUs busy", " %", lambda sample: _mean(100 * gpu.busy for gpu in sample.gpus), most=100),
    UseChart("GPU memory", " GB", lambda sample: max((gpu.memory / _GB for gpu in sample.gpus), default=None)),
    UseChart("CPUs busy", "", lambda sample: sample.cpus),
    UseChart("memory", " GB", lambda sample: sample.memory / _GB),
    UseChart("network", " MB/s", lambda sample: sample.network / _MB),
    UseChart("RDMA", " MB/s", lambda sample: None if sample.rdma is None else sample.rdma / _MB),
)


def use_section(uses: Sequence[NodeUse], short: Short) -> dict[str, Any] | None:
    """Return the table and the charts; None if nothing was sampled.

    Args:
        short: makes the names of nodes fit for the page.
    """
    nodes = [use for use in uses if use.samples]
    if not nodes:
        return None
    columns = _columns(nodes)
    rows = [(short(use.node), *(column(use) for _, column in columns)) for use in nodes[:_MOST_ROWS]]
    left_out = len(nodes) - len(rows)
    return {
        "headings": ("node", *(heading for heading, _ in columns)),
        "rows": rows,
        "more": f"{left_out} more nodes are left out." if left_out else "",
        "charts": [drawn for chart in _CHARTS if (drawn := _chart(chart, nodes, short))],
    }


def _columns(nodes: Sequence[NodeUse]) -> list[tuple[str, Callable[[NodeUse], str]]]:
    """Return the columns for which a node has a value."""
    columns: list[tuple[str, Callable[[NodeUse], str]]] = [
        ("GPUs busy, mean", lambda use: _percent(_over_time(use, _CHARTS[0].value))),
        ("GPU memory, highest", _gpu_memory),
        ("power of a GPU, mean", lambda use: _watts(_over_time(use, _power))),
        ("CPUs busy, mean", lambda use: _of(f"{_over_time(use, _CHARTS[2].value) or 0:.1f}", use.cpus)),
        ("memory, highest", _memory),
        ("network, mean", lambda use: _rate(_over_time(use, lambda sample: sample.network))),
        ("RDMA, mean", lambda use: _rate(_over_time(use, lambda sample: sample.rdma))),
    ]
    return [(heading, column) for heading, column in columns if any(column(use) != "-" for use in nodes)]


def _over_time(use: NodeUse, value: Callable[[UseSample], float | None]) -> float | None:
    """Return the mean over time of a value of the samples; None if no sample has it."""
    pairs = [(span, found) for span, sample in zip(use.spans(), use.samples, strict=True)
             if (found := value(sample)) is not None]  # fmt: skip
    return mean_over_time(pairs)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _power(sample: UseSample) -> float | None:
    return _mean(gpu.power for gpu in sample.gpus if gpu.power is not None)


def _gpu_memory(use: NodeUse) -> str:
    gpus = [gpu for sample in use.samples for gpu in sample.gpus]
    if not gpus:
        return "-"
    highest = max(gpus, key=lambda gpu: gpu.memory)
    return _of(format_size(highest.memory), format_size(highest.memory_total) if highest.memory_total else None)


def _memory(use: NodeUse) -> str:
    limit = format_size(use.memory_limit) if use.memory_limit else None
    return _of(format_size(max(sample.memory for sample in use.samples)), limit)


def _of(value: str, total: object) -> str:
    return value if total is None else f"{value} of {total}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _watts(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} W"


def _rate(value: float | None) -> str:
    return "-" if value is None else format_rate(value)


def _chart(chart: UseChart, nodes: Sequence[NodeUse], short: Short) -> dict[str, Any] | None:
    """Return a chart with a curve for each of the first nodes; None with fewer than two values each."""
    start = min(use.started or use.samples[0].time for use in nodes)
    curves = []
    for use in nodes[:COLOURS]:
        points = [((sample.time - start) / 60, found) for sample in use.samples
                  if (found := chart.value(sample)) is not None]  # fmt: skip
        if len(points) > 1:
            curves.append(Curve(short(use.node) if len(nodes) > 1 else "", points))
    if not curves:
        return None
    drawing = line_chart(chart.name, curves, x_name="min", unit=chart.unit, least=0.0, most=chart.most)
    return {
        "name": chart.name,
        "words": chart.unit.strip() + (f", the first {COLOURS} nodes" if len(nodes) > COLOURS else ""),
        "drawing": drawing,
        "legend": [curve.name for curve in curves] if len(curves) > 1 else [],
    }
