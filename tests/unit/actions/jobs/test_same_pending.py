"""The remark on a pending run of the same command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.new_run import run_record
from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.jobs.same_pending import same_remark
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.slurm import SlurmScheduler
from tests.unit.builders import ports, request, surroundings, write

FIRST = "20260102-030405-train-0a1b"
SECOND = "20260102-030406-train-0a1b"
JOBS = {FIRST: "4711", SECOND: "4712"}
REMARK = "the same command is pending as job 4711: hpcrun cancel 4711, if one is enough"


class Queue:
    """Runs in a store, and what squeue lists of their jobs."""

    def __init__(self, folder: Path) -> None:
        write(folder / "train.py", "")
        self.folder = folder
        self.around: Surroundings = surroundings(folder, {"PATH": f"{folder}/bin:/usr/bin:/bin"})
        self.store = RunStore(folder / "runs")
        scheduler = SlurmScheduler(self.around.env)
        self.ports: Ports = ports(self.store, scheduler, 5000.0)
        self.lines: list[str] = []

    def prepared(self, **asked: Any) -> Prepared:
        values = {"gpus": "1", "walltime_s": "1h", **asked}
        return prepare(request(**values), "a100", self.around, lambda: Machine(cpus=1))

    def add(self, run_id: str, state: str = "PENDING", **asked: Any) -> None:
        """Add a run and its job."""
        record = run_record(self.prepared(**asked), self.ports, self.around)
        job_id = JOBS[run_id]
        self.store.create(replace(record, run_id=run_id, job_id=job_id), "")
        script = f"/r/{run_id}/.submission_file_ab.sh"
        fields = (job_id, state, "Priority", "0:00", "1:00:00", "", script, "")
        self.lines.append("\x1f".join(fields))

    def remark(self, *run_ids: str) -> str:
        text = "\n".join(["#!/bin/sh", *(f"echo '{line}'" for line in self.lines), ""])
        write(self.folder / "bin/squeue", text).chmod(0o755)
        return same_remark(self.prepared(), run_ids, self.ports, self.around)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path)


def test_a_pending_run_of_the_same_command_is_named(queue: Queue) -> None:
    queue.add(FIRST)
    assert queue.remark(FIRST) == REMARK


def test_the_newest_of_several_pending_runs_is_named(queue: Queue) -> None:
    queue.add(FIRST)
    queue.add(SECOND)
    assert "pending as job 4712" in queue.remark(FIRST, SECOND)


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        pytest.param("RUNNING", {}, id="running"),
        pytest.param("PENDING", {"gpus": "2"}, id="other size"),
        pytest.param("PENDING", {"args": ["--lr", "1"]}, id="other arguments"),
    ],
)
def test_another_run_is_not_remarked(state: str, asked: dict[str, Any], queue: Queue) -> None:
    queue.add(FIRST, state, **asked)
    assert queue.remark(FIRST) == ""


def test_a_run_that_has_started_once_is_not_the_same(queue: Queue) -> None:
    queue.add(FIRST)
    attempt = RunFolder(queue.store.folder(FIRST)).element(0).attempt(0)
    start = {"job_id": JOBS[FIRST], "host": "n1", "started": 1.0}
    write(attempt.path / "start", json.dumps(start))
    assert queue.remark(FIRST) == ""


def test_a_run_that_was_removed_hides_no_other(queue: Queue) -> None:
    queue.add(FIRST)
    assert queue.remark(FIRST, SECOND) == REMARK


def test_only_the_newest_twenty_runs_are_read(queue: Queue) -> None:
    queue.add(FIRST)
    removed = [f"20260102-030405-train-{number:04d}" for number in range(20)]
    assert queue.remark(FIRST, *removed[:19]) == REMARK
    assert queue.remark(FIRST, *removed) == ""
