"""Runs and metrics as Python's lists and as tables of pandas."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hpcrun
from hpcrun.errors import NotFoundError
from tests.harness import REPO

RUNS = REPO / "tests/data/runs"
COPIED = ("20260130-032352-train-5943", "20260130-032404-grid-db87")


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(RUNS / name, tmp_path / "runs" / name)


def test_all_runs_are_read_the_newest_last() -> None:
    assert [row["name"] for row in hpcrun.read_runs()] == ["train", "grid"]


def test_a_named_run_has_the_fields_of_status_json() -> None:
    (row,) = hpcrun.read_runs("train")
    assert row["state"] == "COMPLETED"
    assert row["job_id"] == "1"
    assert "elements" not in row


def test_a_named_element_is_alone_in_its_sweep() -> None:
    (row,) = hpcrun.read_runs("grid/1")
    assert [element["element"] for element in row["elements"]] == [1]


def test_a_run_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFoundError, match="there is no run 'nobody'"):
        hpcrun.read_runs("nobody")


def test_the_elements_of_a_named_sweep_are_rows() -> None:
    assert list(hpcrun.read_status("grid")["name"]) == ["grid/0", "grid/1", "grid/2"]
    assert list(hpcrun.read_status()["name"]) == ["train", "grid"]


def test_the_metrics_of_a_run_are_a_row_for_each_step() -> None:
    table = hpcrun.read_metrics("train")
    assert list(table.columns[:4]) == ["rank", "attempt", "step", "time"]
    assert list(table["step"]) == list(range(12))
    assert set(table["rank"]) == {0}
    assert table["loss"].iloc[0] == 1.0


def test_only_the_wanted_ranks_have_rows() -> None:
    assert hpcrun.read_metrics("train", ranks=[1]).empty
    assert set(hpcrun.read_metrics("train", ranks="all")["rank"]) == {0}


def test_the_metrics_of_a_sweep_begin_with_element_and_parameters() -> None:
    table = hpcrun.read_metrics("grid")
    assert list(table.columns[:3]) == ["element", "lr", "rank"]
    assert sorted(set(table["element"])) == [0, 1, 2]
    assert set(table[table["element"] == 2]["lr"]) == {"0.4"}


def test_the_metrics_of_an_element_are_its_own() -> None:
    table = hpcrun.read_metrics("grid/2")
    assert "element" not in table.columns
    assert round(table["loss"].iloc[-1], 4) == 0.1852
