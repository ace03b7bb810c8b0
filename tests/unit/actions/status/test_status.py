"""Statuses from run folders, with this machine as the scheduler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status import NEWEST, active_ids, chosen_ids, get_status, last_known
from hpcrun.job.layout import WITHIN
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.local import LocalScheduler
from hpcrun.schedulers.slurm import SlurmScheduler
from hpcrun.schedulers.submit_claim import claim_text
from tests.unit.given import ports, run, write

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
    assert (found.state, found.final) == ("NOT_SUBMITTED", True)
    assert "sbatch said: sbatch: error: Invalid qos" in (found.reason or "")
    assert store.active_ids() == []


def test_a_run_without_a_job_that_starts_after_all_is_known_again(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    assert status(store, 5000.0).status.state == "NOT_SUBMITTED"
    record = json.dumps({"job_id": "4711", "host": "node1", "started": 6000.0})
    write(store.folder(RUN_ID) / "elements/0/attempts/0/start", record)
    found = status(store, 6001.0)
    assert (found.status.state, found.run.job_id) == ("RUNNING", "4711")
    assert store.load(RUN_ID).job_id == "4711"
    assert store.active_ids() == [RUN_ID]


def test_a_marker_of_a_run_that_is_over_goes(tmp_path: Path) -> None:
    store = a_run(tmp_path, "L1")
    store.save_status(RUN_ID, LastStatus("COMPLETED", 1.0, final=True))
    (tmp_path / "active" / RUN_ID).touch()
    assert status(store, 2.0).status.state == "COMPLETED"
    assert store.active_ids() == []


def test_what_was_last_known_is_said_without_asking(tmp_path: Path) -> None:
    store = a_run(tmp_path, "4711")
    (only,) = last_known([RUN_ID, "nosuch"], store=store, now_s=2000.0).runs
    assert (only.status.state, only.stale) == ("PENDING", True)
    store.save_status(RUN_ID, LastStatus("RUNNING", 1500.0))
    (only,) = last_known([RUN_ID], store=store, now_s=2000.0).runs
    assert (only.status.state, only.status.asked_s, only.stale) == ("RUNNING", 1500.0, True)


def test_a_local_run_of_another_host_is_not_asked_about_here(tmp_path: Path) -> None:
    """A home that two machines share: the supervisor's process id means nothing on the other one."""
    store = RunStore(tmp_path)
    store.create(run(RUN_ID, scheduler="local", host="there", cluster=None, job_id="L1"), "")
    record = {"job_id": "L1", "pid": 4194305, "start_ticks": 1, "boot_id": "of there", "host": "there", "started": 1.0,
              "limit_s": 0}  # fmt: skip
    write(store.folder(RUN_ID) / "supervisor.json", json.dumps(record))
    found = status(store, 5000.0)
    assert (found.status.state, found.status.reason, found.stale) == ("UNKNOWN", "ask on host there", True)
    assert not found.status.final
    assert store.last_status(RUN_ID) is None
    (there,) = get_status([RUN_ID], ports(store, LocalScheduler(), 5000.0, "there")).runs
    assert (there.status.state, there.status.final) == ("NODE_FAIL", True)


@pytest.mark.parametrize(("later_s", "written"), [(59.0, False), (60.0, True)])
def test_a_status_that_says_nothing_new_is_written_once_a_minute(tmp_path: Path, later_s: float, written: bool) -> None:
    """Its time tells how old the last answer is where nobody can be asked; more often it would only be disk writes."""
    squeue = tmp_path / "bin/squeue"
    script = f"/r/{RUN_ID}/.submission_file_ab.sh"
    answer = "\x1f".join(("4711", "PENDING", "Priority", "0:00", "1:00:00", "", script, "2027-01-02T03:04:05"))
    write(squeue, f"#!/bin/sh\necho '{answer}'\n")
    squeue.chmod(0o755)
    store = RunStore(tmp_path / "runs")
    store.create(run(RUN_ID), "")
    scheduler = SlurmScheduler({"PATH": str(squeue.parent)})
    for now_s in (5000.0, 5000.0 + later_s):
        (found,) = get_status([RUN_ID], ports(store, scheduler, now_s)).runs
        assert (found.status.state, found.status.asked_s) == ("PENDING", now_s)
        assert found.status.start_s
        squeue.write_text(squeue.read_text().replace("04:05", "05:00"))  # Slurm's estimate changes all the time
    last = store.last_status(RUN_ID)
    assert last is not None
    assert last.asked_s == (5000.0 + later_s if written else 5000.0)


@pytest.mark.parametrize("ended", [True, False])
def test_accounting_is_asked_for_the_job_of_a_submission_that_ended_without_word(tmp_path: Path, ended: bool) -> None:
    """While its sbatch goes on, squeue knows best."""
    answer = "\x1f".join(
        (
            "4711",
            "COMPLETED",
            "0:0",
            "90",
            "60",
            "node1",
            "None",
            "2026-01-01T00:00:00",
            f"sbatch /r/{RUN_ID}/.submission_file_9.sh",
        )
    )
    for name, says in (("squeue", "true"), ("sacct", f"echo asked >>{tmp_path}/asked; echo '{answer}'")):
        write(tmp_path / "bin" / name, f"#!/bin/sh\n{says}\n").chmod(0o755)
    store = RunStore(tmp_path / "runs")
    store.create(run(RUN_ID, job_id=None), "", files={} if ended else {str(WITHIN.submit_claim()): claim_text()})
    scheduler = SlurmScheduler({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    (found,) = get_status([RUN_ID], ports(store, scheduler, 5000.0)).runs
    assert (found.run.job_id, found.status.state) == (("4711", "COMPLETED") if ended else (None, "SUBMITTING"))
    assert (tmp_path / "asked").exists() == ended


def test_a_run_that_is_not_over_is_shown_however_old_it_is(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    ids = [f"20260102-0304{second:02}-train-0a1b" for second in range(NEWEST + 3)]
    for run_id in ids:
        store.create(run(run_id), "")
    for run_id in (*ids[1:3], *ids[5:]):  # the oldest and two others are not over
        store.save_status(run_id, LastStatus("COMPLETED", 1.0, final=True))
        store.leave_active(run_id)
    assert chosen_ids(store, everything=False) == [ids[0], *ids[3:]]
    assert active_ids(store) == [ids[0], *ids[3:5]]
    assert chosen_ids(store, everything=True) == ids
