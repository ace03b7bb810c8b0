"""The watch over a step: warnings, time limits, dead nodes, idle GPUs, and what a signal ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.in_job.launch import slurm_requests
from hpcrun.in_job.launch.per_job.job_arguments import parse_options
from hpcrun.in_job.launch.per_job.message_events import Messages
from hpcrun.in_job.launch.per_job.step_monitor import StepMonitor
from tests.unit.in_job.attempts import Attempt

LOCAL = "--nodes 1"
MANAGED = "--nodes 1 --grace 60"
PACKED = "--nodes 1 --within n1"


class Watched:
    """A monitor whose step is one process, and how often it recorded why the job ends."""

    def __init__(self, options: str) -> None:
        self.reasons = 0
        self.monitor = StepMonitor(parse_options(options.split()), Messages(), self._record)
        self.child = subprocess.Popen(["sleep", "60"])
        self.monitor.step._children = [self.child.pid]
        self.monitor.step.started_at = time.monotonic()

    def _record(self) -> None:
        self.reasons += 1

    def hear(self, number: int) -> None:
        """Let the job get a signal."""
        self.monitor._on_signal(SimpleNamespace(si_signo=number))

    def tick(self) -> bool:
        return self.monitor._tick()

    def ended_by(self) -> int:
        """Return the signal that has ended the step; 0 if none has."""
        try:
            return -self.child.wait(0.2)
        except subprocess.TimeoutExpired:
            return 0


@pytest.fixture
def watch(attempt: Attempt) -> Iterator[Callable[[str], Watched]]:
    """Watch a step of a job with these options."""
    made: list[Watched] = []

    def begin(options: str) -> Watched:
        made.append(Watched(options))
        return made[-1]

    yield begin
    for each in made:
        each.child.kill()
        each.child.wait()
        each.monitor.end_helpers()


Watch = Callable[[str], Watched]


def test_a_warning_begins_the_grace_time_once(
    attempt: Attempt, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watch(MANAGED)
    assert watched.monitor.left_s() == float("inf")
    watched.hear(signal.SIGUSR1)
    assert watched.monitor.left_s() == pytest.approx(60, abs=5)
    assert os.listdir(attempt.folder / "stop") == ["time_limit"]
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 20)
    watched.hear(signal.SIGUSR1)
    assert watched.monitor.left_s() == pytest.approx(40, abs=5)
    assert not watched.tick()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 70)
    assert watched.tick()
    assert watched.monitor.given_up
    assert watched.ended_by() == signal.SIGTERM


def test_a_job_without_warn_has_no_grace_time(attempt: Attempt, watch: Watch) -> None:
    watched = watch(LOCAL)
    watched.hear(signal.SIGUSR1)
    assert watched.monitor.left_s() == float("inf")
    assert os.listdir(attempt.folder / "stop") == []


def test_the_first_request_to_end_counts(attempt: Attempt, watch: Watch) -> None:
    watched = watch(LOCAL)
    watched.hear(signal.SIGTERM)
    assert watched.monitor.left_s() == 0
    assert attempt.record("exit")["signal"] == "TERM"
    assert watched.ended_by() == signal.SIGTERM
    (attempt.folder / "exit").unlink()
    watched.hear(signal.SIGINT)
    assert not (attempt.folder / "exit").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_another_signal_ends_nothing(attempt: Attempt, watch: Watch, number: int) -> None:
    watched = watch(LOCAL)
    watched.hear(number)
    assert not watched.monitor.signalled
    assert watched.ended_by() == 0


@pytest.mark.parametrize(
    ("options", "ends", "reasons"),
    [
        pytest.param("--grace 60", True, 0, id="Slurm, managed"),
        pytest.param("", False, 1, id="Slurm"),
        pytest.param(LOCAL, False, 0, id="this machine"),
        pytest.param(MANAGED, False, 0, id="this machine, managed"),
        pytest.param(PACKED, False, 1, id="element of a pack"),
        pytest.param(f"{PACKED} --grace 60", False, 1, id="element of a pack, managed"),
    ],
)
def test_the_reason_is_recorded_before_slurm_ends_the_job(
    watch: Watch, options: str, ends: bool, reasons: int
) -> None:
    watched = watch(options)
    assert not watched.tick()
    watched.hear(signal.SIGTERM)
    assert watched.tick() == ends
    assert watched.tick() == ends
    assert watched.reasons == reasons


def test_an_element_whose_pack_is_killed_ends(watch: Watch) -> None:
    watched = watch(PACKED)
    watched.tick()
    assert watched.ended_by() == 0
    watched.monitor._pack_pid += 1  # the parent is another process now
    watched.tick()
    assert watched.ended_by() == signal.SIGKILL


def test_a_job_has_a_heartbeat_twice_a_minute(
    attempt: Attempt, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watch(LOCAL)
    watched.tick()
    assert not (attempt.folder / "heartbeat").exists()
    now_s = time.monotonic()
    for later_s, is_written in ((31, True), (50, False), (62, True)):
        monkeypatch.setattr(time, "monotonic", lambda later_s=later_s: now_s + later_s)
        watched.tick()
        assert (attempt.folder / "heartbeat").exists() == is_written
        (attempt.folder / "heartbeat").unlink(missing_ok=True)


# --- what ends the step --------------------------------------------------------------------------


def test_a_check_has_a_limited_time(attempt: Attempt, watch: Watch) -> None:
    watched = watch(LOCAL)
    watched.child.kill()
    watched.child.wait()
    watched.monitor.step._children = []
    log = str(attempt.folder / "log")
    began = time.monotonic()
    watched.monitor.run_check(["sh", "-c", "echo up; exec sleep 60"], ["local-0"], log, 0.1)
    assert time.monotonic() - began < 20
    assert attempt.text("log") == "up\n"
    assert watched.monitor._limit_s == float("inf")


def dead(*nodes: str) -> Any:
    """Return what stands for heartbeats, of which some are missing."""
    return SimpleNamespace(check=lambda: list(nodes), dead=list(nodes))


def test_a_step_with_a_dead_node_is_ended(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watched = watch("")
    watched.monitor.heartbeats = dead("n2", "n3")
    watched.tick()
    assert capsys.readouterr().err == "hpcrun: no heartbeat from n2,n3: the step is ended\n"
    assert watched.ended_by() == 0
    watched.tick()
    assert watched.ended_by() == signal.SIGTERM


def test_a_step_that_does_not_end_for_srun_is_killed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = watch("")
    watched.monitor.heartbeats = dead("n2")
    watched.tick()
    now_s = time.monotonic()
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: now_s + 3)
        watched.tick()
    assert watched.ended_by() == signal.SIGKILL


def test_dead_nodes_of_one_step_do_not_end_the_next(watch: Watch) -> None:
    watched = watch("")
    watched.monitor.heartbeats = dead("n2")
    watched.tick()
    watched.monitor.forget_dead_nodes()
    watched.monitor.watch_attempt([])
    watched.tick()
    assert watched.ended_by() == 0


def test_after_a_request_to_end_no_node_is_looked_at(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = watch("")
    watched.monitor.heartbeats = dead("n2")
    watched.hear(signal.SIGTERM)
    watched.tick()
    assert "no heartbeat" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "number"), [(LOCAL, signal.SIGTERM), ("", 0)], ids=["this machine", "Slurm"]
)
def test_a_step_with_idle_gpus_is_ended(
    attempt: Attempt,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
    number: int,
) -> None:
    monkeypatch.setattr(slurm_requests, "end_steps", lambda: "Slurm is away")
    watched = watch(options)
    watched.monitor.signalled = False
    message = "cancelled: its GPUs were idle for 10 min"
    idle: Any = SimpleNamespace(check=lambda: True, message=message)
    watched.monitor._idle = idle
    watched.tick()
    log = f"hpcrun: {message}; --cancel-idle or the profile's cancel_idle sets the limit\n"
    if not number:
        log += "hpcrun: Slurm is away\n"
    assert capsys.readouterr().err == log
    record = attempt.record("exit")
    assert (record["status"], record["reason"], record["message"]) == (143, "idle", message)
    assert watched.monitor.idle_message == message
    assert watched.ended_by() == number
    assert watched.monitor.left_s() == pytest.approx(30, abs=5)
