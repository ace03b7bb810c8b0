"""The GPUs of a run: tables, a line, and JSON."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from rich.table import Table

from hpcrun.actions.runs.hardware_use import GpuResult, GpuRow, RecordedUse
from hpcrun.runs.use_samples import UseSummary
from hpcrun.schedulers.job_steps import GpuReading, PortReading
from hpcrun.views.gpu_table import (
    gpu_json,
    gpu_tables,
    gpu_use,
    recorded_json,
    recorded_tables,
    without_lines,
)

GB = 1 << 30
FULL = GpuReading(0, "GPU-0", "A100", 50.4, 10240.0, 40960.0, 250.4, 400.0, 61.0)
UNKNOWN = GpuReading(1, "GPU-1", "A100", None, None, None, None, None, None)
PORT = PortReading("mlx5_0", "400 Gb/s", 1.5e9, 2e6)
RESULT = GpuResult(
    "r1",
    (GpuRow("n1", 3, FULL), GpuRow("n2", None, UNKNOWN)),
    {"n3": "no response", "n4": "no nvidia-smi\x1b", "n5": "no response"},
    {"n1": (PORT, replace(PORT, port="eth0", link=""))},
)
NODE = UseSummary(600, 1, 6.04, 7.5, 8, 40 * GB, 64 * GB, network=2.5e6, rdma=3e9)
GPU = replace(NODE, gpus=1, gpu_busy=0.904, gpu_idle=0.05, gpu_memory=0.5, watts=300.4)


def rows_of(table: Table) -> list[list[str]]:
    """The headings of a table, and its rows."""
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def on_the_right(table: Table) -> set[str]:
    return {str(column.header) for column in table.columns if column.justify == "right"}


def test_the_gpus_of_a_running_job_and_the_traffic_of_its_nodes() -> None:
    gpus, ports = gpu_tables(RESULT)
    assert rows_of(gpus) == [
        ["NODE", "RANK", "GPU", "NAME", "UTIL", "MEMORY", "POWER", "TEMP"],
        ["n1", "3", "0", "A100", "50 %", "10.0/40 GB", "250/400 W", "61 °C"],
        ["n2", "-", "1", "A100", "-", "-", "-", "-"],
    ]
    assert on_the_right(gpus) == {"RANK", "GPU", "UTIL", "MEMORY", "POWER", "TEMP"}
    assert rows_of(ports) == [
        ["NODE", "PORT", "LINK", "IN", "OUT"],
        ["n1", "mlx5_0", "400 Gb/s", "1.50 GB/s", "2.00 MB/s"],
        ["n1", "eth0", "-", "1.50 GB/s", "2.00 MB/s"],
    ]
    assert on_the_right(ports) == {"IN", "OUT"}
    no_total = replace(FULL, memory_total_mb=None, power_limit_w=None)
    (table,) = gpu_tables(replace(RESULT, rows=(GpuRow("n1", 0, no_total),), ports={"n1": ()}))
    assert rows_of(table)[1][5:7] == ["10.0 GB", "250 W"]
    assert gpu_tables(replace(RESULT, rows=(), ports={})) == []


def test_the_recorded_use_of_gpus_and_nodes() -> None:
    gpus, nodes = recorded_tables([RecordedUse("r1", {"n1": NODE}, {("n1", 0): GPU})])
    assert rows_of(gpus) == [
        ["NODE", "GPU", "BUSY", "IDLE", "MEMORY", "POWER"],
        ["n1", "0", "90%", "5%", "50%", "300 W"],
    ]
    assert on_the_right(gpus) == {"GPU", "BUSY", "IDLE", "MEMORY", "POWER"}
    assert rows_of(nodes) == [
        ["NODE", "CPUS", "PEAK", "MEMORY", "NETWORK", "RDMA"],
        ["n1", "6.0/8", "7.5", "40.0 GB/64.0 GB", "2.50 MB/s", "3.00 GB/s"],
    ]
    assert on_the_right(nodes) == {"CPUS", "PEAK", "MEMORY", "NETWORK", "RDMA"}
    unknown = replace(NODE, cpus_asked=None, memory_asked=None, rdma=None)
    of_element = RecordedUse("r1", {"n1": unknown}, {("n1", 1): unknown}, element=2)
    gpus, nodes = recorded_tables([of_element])
    assert rows_of(gpus) == [
        ["ELEMENT", "NODE", "GPU", "BUSY", "IDLE", "MEMORY", "POWER"],
        ["2", "n1", "1", "-", "-", "-", "-"],
    ]
    assert rows_of(nodes)[1] == ["2", "n1", "6.0", "7.5", "40.0 GB", "2.50 MB/s", "-"]
    assert "ELEMENT" in on_the_right(gpus)
    (only,) = recorded_tables([RecordedUse("r1", {"n1": NODE}, {})])
    assert rows_of(only)[0][1] == "CPUS"


@pytest.mark.parametrize(
    ("readings", "text"),
    [
        ([FULL], "1 GPU 50 % busy, memory 25% full"),
        ([replace(FULL, memory_total_mb=0.0)], "1 GPU 50 % busy"),
        ([replace(FULL, memory_used_mb=None)], "1 GPU 50 % busy"),
        ([UNKNOWN], ""),
        ([], ""),
        (
            [
                replace(FULL, busy_percent=20.0),
                replace(FULL, busy_percent=0.0, memory_used_mb=20480.0),
                UNKNOWN,
            ],
            "3 GPUs 10 % busy (0 to 20), memory 50% full at most",
        ),
    ],
)
def test_the_use_of_gpus_in_one_line(readings: list[GpuReading], text: str) -> None:
    rows = tuple(GpuRow("n1", None, reading) for reading in readings)
    assert gpu_use(replace(RESULT, rows=rows)) == text


def test_nodes_without_gpus_stand_together_by_their_reason() -> None:
    assert without_lines(RESULT) == ["n3, n5: no response", "n4: no nvidia-smi?"]


def test_gpus_as_json() -> None:
    assert gpu_json(RESULT) == {
        "kind": "gpu",
        "run_id": "r1",
        "gpus": [
            {"node": "n1", "rank": 3, **asdict(FULL)},
            {"node": "n2", "rank": None, **asdict(UNKNOWN)},
        ],
        "without": RESULT.without,
        "ports": [
            {"node": "n1", **asdict(PORT)},
            {"node": "n1", **asdict(PORT), "port": "eth0", "link": ""},
        ],
    }
    expected: dict[str, Any] = {
        "kind": "gpu",
        "run_id": "r1",
        "recorded": True,
        "gpus": [
            {
                "element": 2,
                "node": "n1",
                "index": 0,
                "busy": 0.904,
                "idle": 0.05,
                "memory": 0.5,
                "power_w": 300.4,
            }
        ],
        "nodes": [{"element": 2, "node": "n1", **asdict(NODE)}],
    }
    use = RecordedUse("r1", {"n1": NODE}, {("n1", 0): GPU}, element=2)
    assert recorded_json([use]) == expected
