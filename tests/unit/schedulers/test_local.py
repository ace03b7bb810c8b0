"""What is read of a local job, in whatever moment its supervisor ends: with real supervisors."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcrun.schedulers import supervisor
from hpcrun.schedulers.local import LocalScheduler, look_at
from hpcrun.schedulers.protocol import JobRef, Submission
from tests.harness import wait_for

SCRIPT = "while [ ! -e {go} ]; do sleep 0.02; done; exit {status}\n"


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """The jobs of a test wait for this file; they have it in the end, whatever becomes of the test."""
    path = tmp_path / "go"
    yield path
    path.touch()


def start(folder: Path, go: Path, *, status: int = 0, elements: tuple[int, ...] = ()) -> str:
    folder.mkdir()
    (folder / "batch").mkdir()
    (folder / "script.sh").write_text(SCRIPT.format(go=go, status=status))
    submission = Submission(
        script="", folder=folder, name="train", workdir=folder, env=dict(os.environ), walltime_s=None, elements=elements
    )
    return LocalScheduler().submit(submission).job_id


def gone(record: dict[str, Any]) -> bool:
    return bool(supervisor.start_ticks(record["pid"]) != record["start_ticks"])


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (3, "FAILED")])
def test_a_supervisor_that_ends_between_two_looks_is_not_taken_for_killed(
    tmp_path: Path, go: Path, status: int, state: str
) -> None:
    folder = tmp_path / "run"
    job = JobRef(folder, start(folder, go, status=status))

    def alive_after_it_has_ended(record: dict[str, Any]) -> bool:
        """Look for the process when it has written its last record and is gone: the record was read before."""
        assert "state" not in record
        go.touch()
        return not wait_for(lambda: gone(record), 30, "the supervisor to end")

    found = look_at(job, time.time(), alive_after_it_has_ended)
    assert found is not None
    assert (found.state, found.exit_status, found.reason) == (state, status, None)


def test_an_element_that_began_and_ended_between_two_looks_is_not_taken_for_cancelled(tmp_path: Path, go: Path) -> None:
    folder = tmp_path / "run"
    job_id = start(folder, go, elements=(0, 1))
    looked: list[str] = []

    def alive_after_it_has_ended(record: dict[str, Any]) -> bool:
        looked.append(record["job_id"])
        go.touch()
        return not wait_for(lambda: gone(record), 30, "the sweep to end")

    wait_for((folder / "supervisor.json").exists, 30, "the sweep to begin")
    found = look_at(JobRef(folder / "elements" / "1", f"{job_id}_1"), time.time(), alive_after_it_has_ended)
    assert looked == [job_id]
    assert found is not None
    assert (found.job_id, found.state) == (f"{job_id}_1", "COMPLETED")


def test_a_supervisor_that_was_killed_left_no_record_of_its_end(tmp_path: Path, go: Path) -> None:
    folder = tmp_path / "run"
    job = JobRef(folder, start(folder, go))

    def alive_after_it_was_killed(record: dict[str, Any]) -> bool:
        os.kill(record["pid"], signal.SIGKILL)
        return not wait_for(lambda: gone(record), 30, "the supervisor to be gone")

    found = look_at(job, time.time(), alive_after_it_was_killed)
    assert found is not None
    assert (found.state, found.reason) == ("NODE_FAIL", "the job's supervisor was killed")


def test_a_process_that_cannot_be_looked_at_is_not_taken_for_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = supervisor.start_ticks(child.pid)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))  # as many files as may be are open
    try:
        lives = supervisor.lives(child.pid, ticks)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        child.communicate(b"\n")
    assert lives
    assert not supervisor.lives(child.pid, ticks)
