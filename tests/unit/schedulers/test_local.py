"""What is read of a local job, in whatever moment its supervisor ends: with real supervisors."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.job_states import JobInfo
from hpcrun.schedulers import supervisor
from hpcrun.schedulers.local import LocalScheduler
from hpcrun.schedulers.protocol import JobRef, Submission
from tests.harness import wait_for

SCRIPT = "grep SigIgn /proc/self/status; while [ ! -e {go} ]; do sleep 0.02; done; exit {status}\n"


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """The jobs of a test wait for this file; they have it in the end, whatever becomes of the
    test.
    """
    path = tmp_path / "go"
    yield path
    path.touch()


def start(folder: Path, go: Path, *, status: int = 0, elements: tuple[int, ...] = ()) -> str:
    folder.mkdir()
    (folder / "batch").mkdir()
    (folder / "submit.ready").touch()
    (folder / "script.sh").write_text(SCRIPT.format(go=go, status=status))
    submission = Submission(
        script="",
        folder=folder,
        workdir=folder,
        env=dict(os.environ),
        walltime_s=None,
        elements=elements,
    )
    return LocalScheduler().submit(submission).job_id


def gone(record: dict[str, Any]) -> bool:
    return bool(supervisor.start_ticks(record["pid"]) != record["start_ticks"])


def look_while(job: JobRef, happens: Callable[[dict[str, Any]], None]) -> JobInfo:
    """What is read of a job whose supervisor ends just before it is checked: its record was read
    before.
    """

    def alive(record: dict[str, Any]) -> bool:
        assert "state" not in record
        happens(record)
        return not wait_for(lambda: gone(record), 30, "the supervisor to end")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpcrun.schedulers.local._alive", alive)
        return LocalScheduler().poll([job])[job.folder]


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (3, "FAILED")])
def test_a_supervisor_that_ends_between_two_looks_is_not_taken_for_killed(
    tmp_path: Path, go: Path, status: int, state: str
) -> None:
    job = JobRef(tmp_path / "run", start(tmp_path / "run", go, status=status))
    info = look_while(job, lambda _: go.touch())
    assert (info.state, info.exit_status, info.reason) == (state, status, None)
    ignored = int((job.folder / "batch.log").read_text().split()[1], 16)
    assert not ignored & (1 << signal.SIGINT - 1 | 1 << signal.SIGQUIT - 1)


def test_an_element_that_began_and_ended_between_two_looks_is_not_taken_for_cancelled(
    tmp_path: Path, go: Path
) -> None:
    folder, looked = tmp_path / "run", list[str]()
    job_id = start(folder, go, elements=(0, 1))

    def happens(record: dict[str, Any]) -> None:
        looked.append(record["job_id"])
        go.touch()

    wait_for((folder / "supervisor.json").exists, 30, "the sweep to begin")
    info = look_while(JobRef(folder / "elements" / "1", f"{job_id}_1"), happens)
    assert looked == [job_id]
    assert info.job_id == f"{job_id}_1"
    assert info.state == "COMPLETED"


def test_a_supervisor_without_a_record_of_its_end_is_not_called_killed(
    tmp_path: Path, go: Path
) -> None:
    job = JobRef(tmp_path / "run", start(tmp_path / "run", go))
    info = look_while(job, lambda record: os.kill(record["pid"], signal.SIGKILL))
    assert info.state == "NODE_FAIL"
    assert info.reason == "the job's supervisor left no record of its end"


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


def test_the_status_of_a_script_that_a_signal_ended_is_128_and_the_signal() -> None:
    end = supervisor._end_of(-9, [], 60)
    assert end["status"] == 137
    assert end["signal"] == 9
    assert end["state"] == "FAILED"


def test_the_newest_attempt_is_the_largest_number_of_up_to_seven_digits(tmp_path: Path) -> None:
    for name in ("0", "11", "2", "12345678", "x3"):
        (tmp_path / "elements/4/attempts" / name).mkdir(parents=True)
    assert supervisor._newest(tmp_path, 4) == 11
