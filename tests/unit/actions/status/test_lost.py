"""When a run is lost: nobody knows its end, and nothing was heard of it for a day."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.runs.clean_runs import CleanChoice, plan_clean
from hpcrun.actions.status.decide_status import is_lost, keep_since, last_sign_s
from hpcrun.actions.status.run_status import RunStatus, StatusResult, combine, is_in, without_lost
from hpcrun.actions.status.status_query import get_status, last_known
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.local import LocalScheduler
from tests.unit.builders import ports, run, write

DAY = 86400.0
NOW = 1_800_000_000.0
RUN_ID = "20260102-030405-train-0a1b"


def a_run(
    folder: Path, *, age_d: float, last: LastStatus | None, alive_d: float | None = None
) -> RunStore:
    """A run that was made so many days ago, and whose script gave its last sign of life then."""
    store = RunStore(folder)
    store.create(
        run(RUN_ID, scheduler="local", cluster=None, host="here", created_s=NOW - age_d * DAY), ""
    )
    if last:
        store.save_status(RUN_ID, last)
    if alive_d is not None:
        attempt = store.folder(RUN_ID) / "elements/0/attempts/0"
        record = {"job_id": "4711", "host": "node1", "started": NOW - age_d * DAY}
        write(attempt / "start", json.dumps(record))
        write(attempt / "heartbeat", str(NOW - alive_d * DAY))
    return store


def result_on(host: str, store: RunStore, now_s: float = NOW) -> StatusResult:
    return get_status([RUN_ID], ports(store, LocalScheduler(), now_s, host))


def status(store: RunStore, now_s: float = NOW, host: str = "here") -> RunStatus:
    (item,) = result_on(host, store, now_s).runs
    return item


def test_a_run_that_is_found_unknown_is_shown_for_a_day_and_lost_until_it_is_heard_of_again(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    store = a_run(
        tmp_path,
        age_d=9,
        last=LastStatus("RUNNING", NOW - 5 * DAY, missed_s=NOW - 5 * DAY),
        alive_d=5,
    )
    for days, lost in ((0.0, False), (0.5, False), (0.99, False), (1.01, True), (30.0, True)):
        with subtests.test(days=days):
            item = status(store, NOW + days * DAY)
            assert item.status.state == "UNKNOWN"
            assert item.lost == lost
            assert item.stale is False
            assert item.status.asked_s == NOW  # since then
    write(store.folder(RUN_ID) / "elements/0/attempts/0/heartbeat", str(NOW + 30 * DAY))
    again = status(store, NOW + 30 * DAY)
    assert again.status.state == "RUNNING"
    assert again.lost is False


@pytest.mark.parametrize(
    ("last", "alive_d", "lost"),
    [
        (LastStatus("RUNNING", NOW - 2 * DAY), 2.0, True),
        (LastStatus("RUNNING", NOW - 2 * DAY), 0.5, False),
        (LastStatus("RUNNING", NOW - 0.5 * DAY), 2.0, False),
        (LastStatus("PENDING", NOW - 2 * DAY), None, True),
        (None, None, True),
        (LastStatus("COMPLETED", NOW - 9 * DAY, final=True), 9.0, False),
    ],
)
def test_a_run_of_another_cluster_is_lost_when_nothing_was_heard_of_it(
    last: LastStatus | None, alive_d: float | None, lost: bool, tmp_path: Path
) -> None:
    store = a_run(tmp_path, age_d=9, last=last, alive_d=alive_d)
    item = status(store, host="there")
    assert item.lost == lost
    assert item.elsewhere == (not (last and last.final))
    assert item.status.state == (last.state if last else "UNKNOWN")


def test_where_nobody_answers_a_run_that_ran_is_not_lost(tmp_path: Path) -> None:
    store = a_run(tmp_path, age_d=9, last=LastStatus("RUNNING", NOW - 3 * DAY), alive_d=3)
    for state, lost in (("RUNNING", False), ("UNKNOWN", True)):
        store.save_status(RUN_ID, LastStatus(state, NOW - 3 * DAY))
        (known,) = last_known([RUN_ID], store=store, now_s=NOW).runs
        assert known.status.state == state
        assert known.lost == lost


def test_lost_runs_count_as_unknown_and_can_be_left_out(tmp_path: Path) -> None:
    store = a_run(tmp_path, age_d=9, last=LastStatus("RUNNING", NOW - 2 * DAY), alive_d=2)
    result = result_on("there", store)
    (item,) = result.runs
    assert is_in(item, {"UNKNOWN"}) is True
    assert is_in(item, {"RUNNING"}) is True
    assert is_in(item, {"FAILED"}) is False
    assert without_lost(result)[1] == 1
    assert without_lost(result)[0].runs == ()


def test_a_sweep_of_which_the_rest_is_unknown_is_unknown() -> None:
    done, gone = LastStatus("COMPLETED", 1.0, final=True), LastStatus("UNKNOWN", 1.0)
    assert combine([done, gone], 60).state == "UNKNOWN"
    assert combine([done, gone, LastStatus("PENDING", 1.0)], 60).state == "RUNNING"
    assert not combine([done, gone], 60).final


def test_the_last_sign_of_a_sweep_is_that_of_any_element(tmp_path: Path) -> None:
    store = a_run(tmp_path, age_d=9, last=None, alive_d=8)
    folder, unknown = store.folder(RUN_ID), LastStatus("UNKNOWN", NOW - 8 * DAY)
    assert is_lost(run(), folder, unknown, elsewhere=False, now_s=NOW)
    record = {"job_id": "4711_7", "host": "node1", "started": NOW - 0.5 * DAY}
    write(folder / "elements/7/attempts/0/start", json.dumps(record))
    assert last_sign_s(run(), folder, unknown) == NOW - 0.5 * DAY
    assert not is_lost(run(), folder, unknown, elsewhere=False, now_s=NOW)


def test_unknown_since_is_kept_and_nothing_else_is() -> None:
    since = LastStatus("UNKNOWN", 5.0)
    assert keep_since(LastStatus("UNKNOWN", 9.0), since).asked_s == 5.0
    assert keep_since(LastStatus("UNKNOWN", 9.0, final=True), since).asked_s == 9.0
    assert keep_since(LastStatus("RUNNING", 9.0), since).asked_s == 9.0
    assert keep_since(LastStatus("UNKNOWN", 9.0), LastStatus("RUNNING", 5.0)).asked_s == 9.0


CLEAN, OLDER = CleanChoice(states=frozenset({"UNKNOWN"})), CleanChoice(older_than_s=30 * 86400)


@pytest.mark.parametrize(
    ("host", "last", "alive_d", "choice", "goes"),
    [
        ("here", "UNKNOWN", 2.0, CLEAN, True),
        ("here", "UNKNOWN", 0.5, CLEAN, False),
        ("here", "UNKNOWN", 31.0, OLDER, True),  # what clean does by itself
        ("here", "UNKNOWN", 29.0, OLDER, False),
        ("there", "RUNNING", 31.0, OLDER, True),
        ("there", "RUNNING", 29.0, CLEAN, False),
        ("there", "PENDING", None, CLEAN, False),  # it may wait that long
        ("there", "PENDING", None, OLDER, False),
        # of a cluster without a name, it may live on another one
        ("nameless", "UNKNOWN", 30.0, CLEAN, False),
        ("nameless", "UNKNOWN", 30.0 + 1 / DAY, CLEAN, True),
    ],
)
def test_clean_offers_a_lost_run_unless_it_may_live(
    host: str, last: str, alive_d: float | None, choice: CleanChoice, goes: bool, tmp_path: Path
) -> None:
    heard = NOW - (40.0 if alive_d is None else alive_d) * DAY
    store = a_run(tmp_path, age_d=40, last=LastStatus(last, heard), alive_d=alive_d)
    item = status(store, host="there" if host == "there" else "here")
    if host == "nameless":
        item = replace(item, run=replace(item.run, scheduler="slurm", cluster=None))
    plan = plan_clean([item], choice, store=store, now_s=NOW)
    assert len(plan.going) == goes
    if choice.states and not goes:
        (stays,) = plan.staying
        assert stays.kept


def test_a_run_without_an_attempt_counts_from_the_end_of_the_time_that_it_ran(
    tmp_path: Path,
) -> None:
    store = a_run(tmp_path, age_d=2, last=None)
    status = LastStatus("UNKNOWN", NOW, elapsed_s=3600)
    assert last_sign_s(store.load(RUN_ID), store.folder(RUN_ID), status) == NOW - 2 * DAY + 3600


@pytest.mark.parametrize(
    ("asked_ago_s", "alive_ago_s", "lost"),
    [(86401, 86401, True), (86400, 86401, False), (86401, 86400, False)],
    ids=["neither", "asked", "alive"],
)
def test_a_run_is_lost_after_a_day_without_a_sign(
    tmp_path: Path, asked_ago_s: int, alive_ago_s: int, lost: bool
) -> None:
    store = a_run(tmp_path, age_d=9, last=None, alive_d=alive_ago_s / DAY)
    unknown = LastStatus("UNKNOWN", NOW - asked_ago_s)
    assert is_lost(run(), store.folder(RUN_ID), unknown, elsewhere=False, now_s=NOW) is lost
