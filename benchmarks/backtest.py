"""How good the forecasts of `hpcrun scale plan` are: published trainings, from one to three sizes.

Prints a table for docs/scaling-plan.md: measured, forecast and range of each point that the model
was not given. Nothing runs. The tables with their sources are in tests/data/scaling_tables.yaml;
tests/data/mlperf_training.csv has the results of MLPerf Training, from the logs in
github.com/mlcommons/training_results_vN.N: the median of the rates that a run logged.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ruamel.yaml import YAML

from hpcrun.features.scaling.step_model import StepModel, StepSize, TimedStep, fixed_share

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
TABLES = DATA / "scaling_tables.yaml"
MLPERF = DATA / "mlperf_training.csv"
_OF_ONE_NODE = {"Fujitsu", "xFusion", "H3C"}
"""Submitters whose systems differ in the GPUs of a node; those of others in the nodes."""


@dataclass(frozen=True)
class HeldOut:
    """A point that was forecast; speed-ups over the table's first point.

    Attributes:
        given: of how many numbers of GPUs the model was given the points.
    """

    table: str
    given: int
    size: StepSize
    measured: float
    forecast: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The relative error of the forecast."""
        return abs(self.forecast / self.measured - 1)

    @property
    def inside(self) -> bool:
        """Whether the measured value lies in the range."""
        return self.low <= self.measured <= self.high


def load_tables() -> list[dict[str, Any]]:
    """Return the tables as they are written."""
    tables: list[dict[str, Any]] = YAML(typ="safe").load(TABLES)
    return tables


def load_mlperf() -> list[dict[str, Any]]:
    """Return the results of MLPerf Training as such tables, one for each training and machine."""
    tables: dict[tuple[str, ...], dict[str, Any]] = {}
    with MLPERF.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            gpus = int(row["gpus"])
            nodes = int(row["nodes"])
            key = (row["round"], row["submitter"], row["accelerator"], row["benchmark"])
            machine = "" if row["submitter"] in _OF_ONE_NODE else str(gpus // nodes)
            table = tables.setdefault((*key, machine), {"name": " ".join(key), "points": []})
            batch = int(row["batch_size"]) / gpus
            table["points"].append([gpus, nodes, batch, float(row["samples_per_s"])])
    return list(tables.values())


def steps_of(table: dict[str, Any]) -> list[TimedStep]:
    """Return the points of a table as times of a step."""
    timed = []
    for gpus, nodes, batch, value in table["points"]:
        rate = value  # samples per second
        if "samples" in table:
            rate = table["samples"] / value
        elif "step_s" in table:
            rate = value * table["points"][0][2] / table["step_s"]
        timed.append(TimedStep(StepSize(gpus, nodes, batch), gpus * batch / rate))
    return timed


def backtest(table: dict[str, Any], given: int) -> Iterator[HeldOut]:
    """Forecast the points of a table that have more GPUs than the first few numbers of GPUs."""
    timed = steps_of(table)
    sizes = sorted({step.size.gpus for step in timed})[:given]
    known = [step for step in timed if step.size.gpus in sizes]
    model = StepModel(
        tuple(known), fixed_share(known, table.get("rows", 0) / table.get("tokens", 1))
    )
    first = timed[0]

    def speedup(size: StepSize, step_s: float) -> float:
        return (size.gpus * size.batch_per_gpu / step_s) / (
            first.size.gpus * first.size.batch_per_gpu / first.step_s
        )

    for point in timed:
        if point.size.gpus in sizes:
            continue
        fastest_s, slowest_s = model.range_s(point.size)
        yield HeldOut(
            table["name"],
            given,
            point.size,
            speedup(point.size, point.step_s),
            speedup(point.size, model.step_s(point.size)),
            speedup(point.size, slowest_s),
            speedup(point.size, fastest_s),
        )


def all_points(given: int) -> list[HeldOut]:
    """Return the forecasts of all tables that have further points."""
    points: list[HeldOut] = []
    for table in (*load_tables(), *load_mlperf()):
        points += backtest(table, given)
    return points


def summary(points: Sequence[HeldOut]) -> str:
    """Return how far off the forecasts are, and how many measured values lie in their range."""
    inside = sum(point.inside for point in points)
    off = sorted(point.error for point in points)
    return (
        (
            f"median error {median(off):.1%}, nine of ten under "
            f"{off[math.ceil(0.9 * len(off)) - 1]:.0%}; "
            f"{inside} of {len(points)} measured values in their range"
        )
        .replace("%", " %")
        .replace("  %", " %")
    )


def line(point: HeldOut) -> str:
    """Return a forecast as a line of a Markdown table."""
    size, mark = point.size, "" if point.inside else " (outside)"
    cells = (
        point.table,
        f"{size.gpus} × {size.batch_per_gpu:g}",
        f"{point.measured:.2f}",
        f"{point.forecast:.2f}",
        f"{point.low:.2f} to {point.high:.2f}{mark}",
        f"{point.error:.0%}".replace("%", " %"),
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print the tables."""
    for given, words in ((1, "one size"), (2, "two sizes"), (3, "three sizes")):
        points = all_points(given)
        print(f"\nFrom {words}: {summary(points)}.\n")
        print(
            "| table | GPUs × batch | measured | forecast | range | error "
            "|\n|---|--:|--:|--:|--:|--:|"
        )
        print(*map(line, points), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
