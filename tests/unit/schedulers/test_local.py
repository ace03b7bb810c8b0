"""What is read of a local job, in whatever moment its supervisor ends: with real supervisors."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.job.job_states import JobInfo
from hpcrun.schedulers import supervisor
from hpcrun.schedulers.local import LocalScheduler, look_at, this_machine
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


ENDED: dict[str, Any] = {
    "job_id": "L7",
    "pid": 7,
    "start_ticks": 5,
    "boot_id": "another boot",
    "host": "n1",
    "started": 100.0,
    "limit_s": 60,
    "state": "FAILED",
    "ended": 130.5,
    "status": 3,
    "signal": None,
    "reason": None,
}


def recorded(folder: Path, **changes: object) -> JobRef:
    """A job whose supervisor has left this record."""
    record = {name: value for name, value in {**ENDED, **changes}.items() if value != "left out"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "supervisor.json").write_text(json.dumps(record))
    return JobRef(folder, "L7")


def test_the_record_of_an_ended_job_is_read(tmp_path: Path) -> None:
    info = look_at(recorded(tmp_path), 500.0)
    assert info is not None
    assert (info.job_id, info.state, info.exit_status) == ("L7", "FAILED", 3)
    assert (info.elapsed_s, info.limit_s, info.hosts) == (30, 60, "n1")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("pid", 2, 2**31),
        ("start_ticks", 0, 10**18),
        ("limit_s", 0, 10**10),
        ("status", 0, 10**6),
        ("signal", 0, 1000),
    ],
)
def test_a_number_of_a_record_has_its_limits(
    tmp_path: Path, name: str, least: int, most: int
) -> None:
    read = []
    for value in (least - 1, least, most, most + 1):
        read.append(look_at(recorded(tmp_path, **{name: value}), 500.0) is not None)
    assert read == [False, True, True, False]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job_id", "7"),
        ("job_id", "L7_12345678"),
        ("state", "failed"),
        ("started", -1),
        ("host", "left out"),
        ("boot_id", 5),
    ],
)
def test_a_record_with_a_wrong_field_is_none(tmp_path: Path, name: str, value: object) -> None:
    assert look_at(recorded(tmp_path, **{name: value}), 500.0) is None


def test_a_job_of_an_earlier_boot_has_failed_with_its_node(tmp_path: Path) -> None:
    going_on = dict.fromkeys(("state", "ended", "status", "signal", "reason"), "left out")
    info = look_at(recorded(tmp_path, **going_on), 500.0)
    assert info is not None
    assert info.state == "NODE_FAIL"
    assert info.elapsed_s is None
    assert "restarted" in (info.reason or "")


def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    info = look_at(recorded(tmp_path, limit_s=0), 500.0)
    assert info is not None
    assert info.limit_s is None


def element(folder: Path, **changes: object) -> JobRef:
    """An element that has not started, of a sweep whose supervisor has left this record."""
    recorded(folder, **changes)
    (folder / "elements/1").mkdir(parents=True)
    return JobRef(folder / "elements/1", "L7_1")


@pytest.mark.parametrize(("state", "shown"), [("FAILED", "CANCELLED"), ("NODE_FAIL", "NODE_FAIL")])
def test_an_element_that_never_started_ends_with_its_sweep(
    tmp_path: Path, state: str, shown: str
) -> None:
    info = look_at(element(tmp_path, state=state), 500.0)
    assert info is not None
    assert (info.job_id, info.state) == ("L7_1", shown)


def test_an_element_that_was_cancelled_is_cancelled(tmp_path: Path) -> None:
    job = element(tmp_path)
    (job.folder / "cancelled").touch()
    info = look_at(job, 500.0)
    assert info is not None
    assert info.state == "CANCELLED"
    assert look_at(JobRef(job.folder, None), 500.0) is None


def test_jobs_of_this_machine_cannot_be_held() -> None:
    with pytest.raises(SchedulerError, match="they cannot be held"):
        LocalScheduler().change("hold", [])


@pytest.mark.parametrize(("visible", "gpus"), [("0,2", ("0", "2")), ("", ()), (" 1 ,", ("1",))])
def test_the_visible_gpus_are_those_of_the_variable(visible: str, gpus: tuple[str, ...]) -> None:
    machine = this_machine({"CUDA_VISIBLE_DEVICES": visible})
    assert machine.gpu_ids == gpus
    assert machine.cpus == len(os.sched_getaffinity(0))
