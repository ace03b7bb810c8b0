"""Which runs clean removes, and what it removes of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.ports import Caller
from hpcrun.actions.runs.clean_runs import (
    CleanChoice,
    CleanPlan,
    plan_clean,
    remove_runs,
    still_going,
)
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import get_status
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.local import LocalScheduler
from tests.unit import builders
from tests.unit.builders import run, write

NOW_S = 1_800_000_000.0
DAY_S = 86400
OLD = "20270101-000000-old-0001"
NEW = "20270102-000000-new-0002"
ACTIVE = "20270103-000000-next-0003"
ANY = CleanChoice()


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path / "runs")
    ended(store, OLD, "COMPLETED", days=40)
    ended(store, NEW, "FAILED", days=2)
    return store


def ended(store: RunStore, run_id: str, state: str, *, days: float) -> None:
    """A run of this machine that ended so many days ago."""
    end_s = NOW_S - days * DAY_S
    made = run(run_id, scheduler="local", cluster=None, host="here", created_s=end_s)
    store.create(made, "")
    store.save_status(run_id, LastStatus(state, end_s, final=True))


def items(store: RunStore) -> tuple[RunStatus, ...]:
    return get_status(store.run_ids(), builders.ports(store, LocalScheduler(), NOW_S)).runs


def planned(store: RunStore, choice: CleanChoice = ANY) -> CleanPlan:
    return plan_clean(items(store), choice, store=store, now_s=NOW_S)


def going(store: RunStore, choice: CleanChoice = ANY) -> list[str]:
    return [candidate.item.run.run_id for candidate in planned(store, choice).going]


def kept(store: RunStore, choice: CleanChoice = ANY) -> dict[str, str | None]:
    """Run → why it stays."""
    return {each.item.run.run_id: each.kept for each in planned(store, choice).staying}


@pytest.mark.parametrize(
    ("choice", "run_ids"),
    [
        pytest.param(ANY, [OLD, NEW], id="any"),
        pytest.param(CleanChoice(keep=1), [OLD], id="keep the newest"),
        pytest.param(CleanChoice(keep=2), [], id="keep both"),
        pytest.param(CleanChoice(states=frozenset({"FAILED"})), [NEW], id="state"),
        pytest.param(CleanChoice(older_than_s=2 * DAY_S), [OLD, NEW], id="as old as both"),
        pytest.param(CleanChoice(older_than_s=2 * DAY_S + 1), [OLD], id="older than one"),
    ],
)
def test_the_chosen_runs_go(store: RunStore, choice: CleanChoice, run_ids: list[str]) -> None:
    assert going(store, choice) == run_ids


def test_a_run_with_checkpoints_stays_unless_they_are_named(store: RunStore) -> None:
    write(store.folder(OLD) / "elements/0/checkpoints/last.pt", "x" * 5000)
    assert kept(store) == {OLD: "it has checkpoints"}
    assert going(store, CleanChoice(checkpoints=True)) == [OLD, NEW]


@pytest.mark.parametrize("link", ["code", "elements/0/checkpoints"])
def test_a_run_that_another_run_needs_stays(store: RunStore, link: str) -> None:
    user = run(ACTIVE, scheduler="local", cluster=None, host="here", created_s=NOW_S)
    place = store.create(user, "") / link
    write(store.folder(OLD) / link / "file", "")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(store.folder(OLD) / link)
    reasons = kept(store, CleanChoice(checkpoints=True))
    reason = f"{ACTIVE}, which has not ended, uses its checkpoints or its code"
    assert reasons[OLD] == reason


def test_a_folder_behind_a_link_stays(store: RunStore, tmp_path: Path) -> None:
    store.folder(OLD).rename(tmp_path / "elsewhere")
    store.folder(OLD).symlink_to(tmp_path / "elsewhere")
    assert kept(store) == {OLD: "its folder is a symbolic link to a folder outside this run"}


def test_the_size_of_a_plan_is_that_of_what_goes(store: RunStore) -> None:
    write(store.folder(OLD) / "elements/0/checkpoints/last.pt", "x" * 50_000)
    plan = planned(store, CleanChoice(checkpoints=True))
    sizes = [candidate.size for candidate in plan.going]
    assert plan.total == sum(size.total for size in sizes)
    assert plan.checkpoints == sizes[0].checkpoints > 0


def interrupted(store: RunStore, *, ago_s: float) -> Path:
    """A folder that an interrupted submission left."""
    folder = store.root / ".20270104-000000-half-0004"
    RunFolder(folder).marker.parent.mkdir()
    RunFolder(folder).marker.touch()
    write(folder / "script.sh", "x" * 5000)
    os.utime(folder, (NOW_S - ago_s, NOW_S - ago_s))
    return folder


def test_a_leftover_of_more_than_a_day_goes(store: RunStore) -> None:
    folder = interrupted(store, ago_s=DAY_S)
    assert planned(store).leftovers == ()
    os.utime(folder, (NOW_S - DAY_S - 1, NOW_S - DAY_S - 1))
    (item,) = planned(store).going_leftovers
    assert item.leftover.path == folder
    assert item.total > 0
    assert planned(store, CleanChoice(named=True)).leftovers == ()


def test_removed_runs_are_gone_and_noted(store: RunStore) -> None:
    ports = builders.ports(store, LocalScheduler(), NOW_S)
    caller = Caller({"terminal": True, "agent": None}, ["hpcrun", "clean"], print)
    gone, errors = remove_runs(planned(store), replace(ports, caller=caller))
    assert [candidate.item.run.run_id for candidate in gone] == [OLD, NEW]
    assert errors == []
    assert store.run_ids() == []
    lines = [json.loads(line) for line in store.actions.read_text().splitlines()]
    assert [line["run_ids"] for line in lines] == [[OLD], [NEW]]
    assert {line["action"] for line in lines} == {"clean"}


def test_a_run_that_is_active_again_stays(store: RunStore) -> None:
    plan = planned(store)
    store.save_status(OLD, LastStatus("PENDING", NOW_S))
    ports = builders.ports(store, LocalScheduler(), NOW_S)
    again = still_going(plan, ANY, ports)
    assert [candidate.item.run.run_id for candidate in again.going] == [NEW]
