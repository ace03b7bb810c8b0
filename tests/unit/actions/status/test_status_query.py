"""Statuses from run folders, with this machine as the scheduler."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status import status_query
from hpcrun.actions.status.run_status import RunStatus, StatusResult, element_row
from hpcrun.actions.status.silent_runs import first_silent, with_silence
from hpcrun.actions.status.status_query import (
    active_ids,
    chosen_ids,
    damage_words,
    failures_of,
    get_status,
    last_known,
)
from hpcrun.job.job_states import JobInfo
from hpcrun.job.run_paths import WITHIN, AttemptFolder, RunFolder
from hpcrun.runs.attempt import Attempt, ExitRecord
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import DamagedRunError, RunStore
from hpcrun.schedulers.local import LocalScheduler
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.slurm import SlurmScheduler
from hpcrun.schedulers.submit_claim import Sending, claim_text
from tests.unit import builders
from tests.unit.builders import Takes, ports, run, write

RUN_ID = "20260102-030405-train-0a1b"


def a_run(folder: Path, job_id: str | None = None) -> RunStore:
    store = RunStore(folder)
    store.create(run(RUN_ID, scheduler="local", host="here", cluster=None, job_id=job_id), "")
    return store


def status(store: RunStore, now_s: float) -> RunStatus:
    (only,) = get_status([RUN_ID], ports(store, LocalScheduler(), now_s)).runs
    return only


def test_a_run_of_which_no_job_came_says_what_sbatch_said(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    write(store.folder(RUN_ID) / "sbatch.err", "sbatch: error: first\nsbatch: error: Invalid qos\n")
    found = status(store, 5000.0).status
    assert found.state == "NOT_SUBMITTED"
    assert found.final is True
    assert "sbatch said: sbatch: error: Invalid qos" in (found.reason or "")
    assert store.active_ids() == []


def test_a_marker_of_a_run_that_is_over_goes(tmp_path: Path) -> None:
    store = a_run(tmp_path, "L1")
    store.save_status(RUN_ID, LastStatus("COMPLETED", 1.0, final=True))
    (tmp_path / "active" / RUN_ID).touch()
    assert status(store, 2.0).status.state == "COMPLETED"
    assert store.active_ids() == []


def test_what_was_last_known_is_said_without_asking(tmp_path: Path) -> None:
    store = a_run(tmp_path, "4711")
    (only,) = last_known([RUN_ID, "nosuch"], store=store, now_s=2000.0).runs
    assert only.status.state == "PENDING"
    assert only.stale is True
    store.save_status(RUN_ID, LastStatus("RUNNING", 1500.0))
    (only,) = last_known([RUN_ID], store=store, now_s=2000.0).runs
    assert only.status.state == "RUNNING"
    assert only.status.asked_s == 1500.0
    assert only.stale is True


def test_a_local_run_of_another_host_is_not_asked_about_here(tmp_path: Path) -> None:
    """A home that two machines share: the supervisor's process id means nothing on the other
    one.
    """
    store = RunStore(tmp_path)
    store.create(run(RUN_ID, scheduler="local", host="there", cluster=None, job_id="L1"), "")
    record = {
        "job_id": "L1",
        "pid": 4194305,
        "start_ticks": 1,
        "boot_id": "of there",
        "host": "there",
        "started": 1.0,
        "limit_s": 0,
    }
    write(store.folder(RUN_ID) / "supervisor.json", json.dumps(record))
    found = status(store, 5000.0)
    assert found.status.state == "UNKNOWN"
    assert found.status.reason == "ask on host there"
    assert found.stale is True
    assert not found.status.final
    assert store.last_status(RUN_ID) is None
    (there,) = get_status([RUN_ID], ports(store, LocalScheduler(), 5000.0, "there")).runs
    assert there.status.state == "NODE_FAIL"
    assert there.status.final is True


@pytest.mark.parametrize(("later_s", "written"), [(59.0, False), (60.0, True)])
def test_a_status_that_says_nothing_new_is_written_once_a_minute(
    tmp_path: Path, later_s: float, written: bool
) -> None:
    """Its time tells how old the last answer is where nobody can be asked; more often it would only
    be disk writes.
    """
    squeue = tmp_path / "bin/squeue"
    script = f"/r/{RUN_ID}/.submission_file_ab.sh"
    answer = "\x1f".join(
        ("4711", "PENDING", "Priority", "0:00", "1:00:00", "", script, "2027-01-02T03:04:05")
    )
    write(squeue, f"#!/bin/sh\necho '{answer}'\n")
    squeue.chmod(0o755)
    store = RunStore(tmp_path / "runs")
    store.create(run(RUN_ID), "")
    scheduler = SlurmScheduler({"PATH": str(squeue.parent)})
    for now_s in (5000.0, 5000.0 + later_s):
        (found,) = get_status([RUN_ID], ports(store, scheduler, now_s)).runs
        assert found.status.state == "PENDING"
        assert found.status.asked_s == now_s
        assert found.status.start_s
        # Slurm's estimate changes all the time
        squeue.write_text(squeue.read_text().replace("04:05", "05:00"))
    last = store.last_status(RUN_ID)
    assert last is not None
    assert last.asked_s == (5000.0 + later_s if written else 5000.0)


@pytest.mark.parametrize("ended", [True, False])
def test_accounting_is_asked_for_the_job_of_a_submission_that_ended_without_word(
    tmp_path: Path, ended: bool
) -> None:
    """While its sbatch goes on, squeue knows best."""
    line = (
        "4711 COMPLETED 0:0 90 60 node1 None 2026-01-01T00:00:00 "
        f"sbatch_/r/{RUN_ID}/.submission_file_9.sh"
    )
    answer = line.replace(" ", "\x1f").replace("_/", " /")
    for name, says in (
        ("squeue", "true"),
        ("sacct", f"echo asked >>{tmp_path}/asked; echo '{answer}'"),
    ):
        write(tmp_path / "bin" / name, f"#!/bin/sh\n{says}\n").chmod(0o755)
    store = RunStore(tmp_path / "runs")
    store.create(
        run(RUN_ID, job_id=None),
        "",
        files={} if ended else {str(WITHIN.submit_claim()): claim_text()},
    )
    scheduler = SlurmScheduler({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    (found,) = get_status([RUN_ID], ports(store, scheduler, 5000.0)).runs
    assert (found.run.job_id, found.status.state) == (
        ("4711", "COMPLETED") if ended else (None, "SUBMITTING")
    )
    assert (tmp_path / "asked").exists() == ended


def test_a_submission_that_ends_after_its_record_was_read_costs_no_query_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    record = run(RUN_ID, job_id=None)
    store.create(record, "")

    def ends(folder: Path, created_s: float, now_s: float) -> Sending:
        store.change(record, job_id="4711")
        return Sending.ENDED

    monkeypatch.setattr(status_query, "settle_submission", ends)
    asked: list[JobRef] = []

    class Queue(Takes):
        def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
            asked.extend(jobs)
            return {job.folder: JobInfo("4711", "PENDING", asked_s=5000.0) for job in jobs}

    [item] = get_status([RUN_ID], ports(store, Queue(), 5000.0)).runs
    assert [(job.job_id, job.since_s) for job in asked] == [("4711", None)]
    assert item.run.job_id == "4711"


def test_a_run_that_is_not_over_is_shown_however_old_it_is(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    ids = [f"20260102-0304{second:02}-train-0a1b" for second in range(13)]
    for run_id in ids:
        store.create(run(run_id), "")
    for run_id in (*ids[1:3], *ids[5:]):  # the oldest and two others are not over
        store.save_status(run_id, LastStatus("COMPLETED", 1.0, final=True))
        store.leave_active(run_id)
    assert chosen_ids(store, everything=False) == [ids[0], *ids[3:]]
    assert active_ids(store) == [ids[0], *ids[3:5]]
    assert chosen_ids(store, everything=True) == ids


RUN = run(gpus_per_node=2)


def words(store: RunStore, record: str) -> tuple[str, str]:
    """What is wrong, and what is known all the same, of a run with this ``run.json``."""
    folder = store.folder(RUN.run_id)
    (folder / "run.json").write_text(record)
    with pytest.raises(DamagedRunError) as damaged:
        store.load(RUN.run_id)
    wrong, known = damage_words(RUN.run_id, damaged.value, store).split("; what can be read: ")
    assert known.endswith(f"; its logs are in {folder}")
    return wrong, known.removesuffix(f"; its logs are in {folder}")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "runs")
    made.create(RUN, "")
    return made


def test_what_the_script_the_last_status_and_the_index_of_jobs_say_is_put_together(
    store: RunStore,
) -> None:
    assert words(store, "")[1] == "run train"
    store.save_status(RUN.run_id, LastStatus("RUNNING", 1000.0))
    wrong, known = words(store, "{")
    assert wrong.startswith(f"{RUN.run_id} is damaged: ")
    assert known == "run train, last known RUNNING"
    attempt = store.folder(RUN.run_id) / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "4712", "host": "node1", "started": 1.0}))
    assert words(store, "{")[1] == "run train, job 4712, last known RUNNING"
    write(attempt / "exit", json.dumps({"status": 3, "signal": "", "ended": 2.0}))
    assert words(store, "{")[1] == "run train, job 4712, last known RUNNING, exit status 3"
    store.note_job(RUN)
    wrong, known = words(store, json.dumps({"schema": 99}))
    assert wrong.startswith(f"{RUN.run_id} needs a newer hpcrun: ")
    assert known == f"run train, job {RUN.job_id}, last known RUNNING, exit status 3"


def attempt(number: int, exit_: ExitRecord | None = None) -> Attempt:
    return Attempt(
        AttemptFolder(Path("/runs/r")), number, "4711", f"head-{number}", 100.0, exit_, 150.0
    )


def test_the_failed_nodes_are_those_of_a_node_failure_and_those_that_slurm_saw_dead(
    tmp_path: Path,
) -> None:
    dead = ExitRecord(
        137, "", 200.0, reason="node_failure", again=True, how="restart", nodes=("a-1", "a-2")
    )
    wrong = ExitRecord(3, "", 300.0, reason="failure", again=True, how="restart", nodes=("a-3",))
    run = builders.run(cluster="big")
    failed = failures_of(run, [attempt(2), attempt(1, wrong), attempt(0, dead)])
    assert [(one.node, one.cluster, one.failed_s) for one in failed] == [
        ("a-1", "big", 200.0),
        ("a-2", "big", 200.0),
    ]
    assert list(failures_of(run, [attempt(0)])) == []
    assert list(failures_of(run, [attempt(1), attempt(0)])) == []
    write(tmp_path / "dead-nodes", '{"nodes": ["n2"], "asked": 200.0}')
    silent = replace(attempt(0), folder=AttemptFolder(tmp_path))
    assert [one.node for one in failures_of(run, [attempt(1), silent])] == ["n2"]
    assert list(failures_of(run, [silent])) == []


NOW_S = 1_800_000_000.0
STARTED_S = NOW_S - 36_000


def silence(path: Path, state: str = "RUNNING", elapsed_s: int = 36_000) -> float | None:
    item = RunStatus(run(), path, LastStatus(state, NOW_S, elapsed_s=elapsed_s), live=True)
    (found,) = with_silence(StatusResult((item,)), NOW_S).runs
    return found.silent_s


def wrote(path: Path, rank: int, text: str, ago_s: float, kind: str = "out") -> None:
    folder = RunFolder(path).element(0).attempt(0)
    write(folder.start, json.dumps({"job_id": "4711", "host": "n0", "started": STARTED_S}))
    file = write(
        folder.rank_metrics(rank) if kind == "metrics" else folder.rank_log(rank, kind), text
    )
    os.utime(file, (NOW_S - ago_s,) * 2)


def metrics(pause_s: float, ago_s: float) -> str:
    times = (NOW_S - ago_s - number * pause_s for number in reversed(range(20)))
    return "".join(json.dumps({"time": at_s, "step": 1, "loss": 1.0}) + "\n" for at_s in times)


@pytest.mark.parametrize(
    ("pause_s", "ago_s", "expected"),
    [
        (1, 590, None),
        (1, 720, 720),
        (600, 1700, None),
        (600, 1900, 1900),
        (None, 1700, None),
        (None, 1900, 1900),
    ],
)
def test_a_silence_is_long_by_the_usual_pause_of_the_run(
    tmp_path: Path, pause_s: float | None, ago_s: float, expected: float | None
) -> None:
    if pause_s is None:
        wrote(tmp_path, 0, "begins\n", ago_s)
    else:
        wrote(tmp_path, 0, metrics(pause_s, ago_s), ago_s, "metrics")
    assert silence(tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "ago_s", "expected"),
    [
        ("".join(f"[{int(NOW_S) - 9000 + 900 * n}] epoch {n}\n" for n in range(9)), 1800, None),
        # lines without times have a mean pace, that of all lines and not of the last ones
        ("epoch\n" * 10, 6000, None),  # 3000 s each
        ("step\n" * 64, 6000, 6000),
        ("step\n" * 35_000, 720, 720),  # one each second
    ],
    ids=["with times", "few lines", "lines", "many lines"],
)
def test_the_lines_of_any_rank_show_the_pace(
    text: str, ago_s: float, expected: float | None, tmp_path: Path
) -> None:
    wrote(tmp_path, 0, text, ago_s)
    assert silence(tmp_path) == expected
    wrote(tmp_path, 3, "step\n" * 9, 30, "err")
    assert silence(tmp_path) is None


def test_a_run_that_prints_nothing_has_just_started_or_does_not_run_is_not_silent(
    tmp_path: Path,
) -> None:
    assert silence(tmp_path) is None
    wrote(tmp_path, 0, "", 7200)
    assert silence(tmp_path) is None
    wrote(tmp_path, 0, "step\n" * 9, 20_000)
    assert silence(tmp_path) == 20_000
    assert silence(tmp_path, elapsed_s=300) is None  # requeued: a new attempt that has not begun
    assert silence(tmp_path, "PENDING") is None
    end = {"status": 0, "signal": "", "ended": NOW_S}
    write(RunFolder(tmp_path).element(0).attempt(0).exit, json.dumps(end))
    assert silence(tmp_path) is None


def test_a_run_that_is_being_cancelled_is_not_silent(tmp_path: Path) -> None:
    wrote(tmp_path, 0, "step\n" * 9, 20_000)
    write(RunFolder(tmp_path).cancelled, "")
    assert silence(tmp_path) is None


@pytest.mark.parametrize(("ago_s", "expected"), [(30, None), (900, 900)])
def test_the_end_of_a_rank_is_newer_than_its_last_line(
    tmp_path: Path, ago_s: float, expected: float | None
) -> None:
    wrote(tmp_path, 0, "step\n" * 9, 20_000)
    end = {"rank": 0, "node": "n0", "status": 1, "ended": NOW_S - ago_s, "told": ""}
    write(RunFolder(tmp_path).element(0).attempt(0).rank_exit(0), json.dumps(end))
    assert silence(tmp_path) == expected


def test_the_hint_is_for_the_run_that_has_been_silent_for_the_longest_time() -> None:
    items = [
        RunStatus(run(), Path(), LastStatus("RUNNING", NOW_S), silent_s=age)
        for age in (None, 700.0, 900.0)
    ]
    assert first_silent(items) is items[2]
    assert first_silent(items[:1]) is None


class RunningTask:
    """A cluster on which the task of every element runs."""

    def cluster(self) -> str:
        return "alpha"

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        return {job.folder: JobInfo(str(job.job_id), "RUNNING", asked_s=4000.0) for job in jobs}


def test_an_element_of_a_pack_may_end_before_its_task(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    plan, request = (
        {"sweep": {"indices": "0-4", "first": 0, "pack": 5}},
        {"sweep": [[["n", "1"]]] * 5},
    )
    folder = store.create(run(RUN_ID, plan=plan, request=request), "")
    again = {"again": True, "how": "requeue"}
    ends: list[dict[str, Any] | None] = [{"status": 0}, {"status": 7}, {"status": 7, **again}, None]
    for number, end in enumerate(ends):
        attempt = RunFolder(folder).element(number).attempt(0)
        write(attempt.start, json.dumps({"job_id": "4711_0", "host": "n1", "started": 2000}))
        if end:
            write(attempt.exit, json.dumps({"signal": "", "ended": 3000, **end}))
    write(RunFolder(folder).element(4).cancelled, "")
    (item,) = get_status([RUN_ID], ports(store, RunningTask(), 5000.0)).runs
    assert [each.status.state for each in item.elements] == [
        "COMPLETED",
        "FAILED",
        "PENDING",
        "RUNNING",
        "CANCELLED",
    ]
    assert [each.job_id for each in item.elements] == ["4711_0"] * 5
    assert element_row(item, item.elements[3]).label == "4711/3"
