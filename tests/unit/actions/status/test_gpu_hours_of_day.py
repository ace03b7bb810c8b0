"""The lock for the limit of a day."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.ports import Ports
from hpcrun.actions.status import gpu_hours_of_day
from hpcrun.actions.status.gpu_hours_of_day import alone_in_day
from hpcrun.errors import PlanError
from hpcrun.runs.store import RunStore
from tests.unit import builders


def ports(folder: Path, *lists: Path) -> Ports:
    """A process with a runs folder, and the lists of runs folders that it knows."""
    whole = builders.ports(RunStore(folder), builders.Takes(), 1000.0)
    return replace(whole, run_lists=lambda _: lists)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_hours_of_day, "_LOCK_WAIT_S", 0.0)


def test_one_process_at_a_time_whatever_its_variables_say(tmp_path: Path) -> None:
    first = ports(tmp_path / "a", tmp_path / "moved/list", tmp_path / "home/list")
    second = ports(tmp_path / "b", tmp_path / "home/list")
    refusal = pytest.raises(PlanError, match=f"it holds {tmp_path}/home/list.lock")
    with alone_in_day(first, tmp_path), refusal, alone_in_day(second, tmp_path):
        pass
    with alone_in_day(second, tmp_path):
        pass


def test_the_runs_folder_has_the_lock_where_a_home_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    here = ports(tmp_path / "runs", tmp_path / "home/list")
    refusal = pytest.raises(PlanError, match=f"it holds {tmp_path}/runs/")
    with alone_in_day(here, tmp_path), refusal, alone_in_day(here, tmp_path):
        pass
