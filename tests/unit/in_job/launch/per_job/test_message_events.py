"""Which senders of messages a job starts, and when; and senders that do not end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job.message_events import (
    FAILED,
    FINISHED,
    FIRST_STEP,
    FOLDER,
    IDLE,
    SENDER,
    STARTED,
    Messages,
)
from hpcrun.in_job.launch.processes import send


@pytest.fixture
def senders() -> Iterator[list[int]]:
    """Senders that a test asked to kill; SIGKILL reaches them when the test is over."""
    pids: list[int] = []
    yield pids
    for pid in set(pids):
        send(pid, signal.SIGKILL, group=True)
        os.waitpid(pid, 0)


class Job:
    """A job with messages; its sender writes down when it begins and ends, and the event that it
    was started for.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._set = folder, monkeypatch.setenv
        self.sender = folder / "python"
        event, log = "${9:-end}", folder / "log"
        self.sender.write_text(
            f'#!/bin/sh\necho "begins {event}" >>{log}\nsleep 0.1\necho "ends {event}" >>{log}\n',
            encoding="utf-8",
        )
        self.sender.chmod(0o700)
        self._set("HPCRUN_RUN_DIR", str(folder))
        self._set("HPCRUN_ATTEMPT_DIR", str(folder))
        self._set("HPCRUN_ATTEMPT", "0")
        monkeypatch.setattr("hpcrun.in_job.launch.per_job.message_events.LOOK_S", 0.0)

    def messages(self, *events: str, elements: int = 0) -> Messages:
        record = {
            "python": str(self.sender),
            "package": str(self.folder),
            "elements": elements,
            "events": events,
        }
        (self.folder / FOLDER).mkdir(exist_ok=True)
        (self.folder / FOLDER / SENDER).write_text(json.dumps(record), encoding="utf-8")
        return Messages()

    def end(self, element: int, *events: str, failed: bool, elements: int) -> list[str]:
        """The events that were sent by the end of an element of a sweep."""
        self._set("HPCRUN_ELEMENT", str(element))
        self.messages(*events, elements=elements).tell_end(failed=failed)
        return self.sent()

    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text("utf-8").splitlines() if file.exists() else []

    def sent(self) -> list[str]:
        return [line.removeprefix("ends ") for line in self.log() if line.startswith("ends ")]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_a_sweep_tells_of_its_first_failure_and_of_its_end_also_if_its_last_element_is_good(
    job: Job,
) -> None:
    assert job.end(0, FAILED, failed=True, elements=4) == ["end"]
    assert job.end(1, FAILED, failed=True, elements=4) == ["end"]
    assert job.end(2, FAILED, failed=False, elements=4) == ["end"]
    assert job.end(3, FAILED, failed=False, elements=4) == ["end", "end"]


def test_a_good_end_alone_needs_a_message_about_ends(job: Job) -> None:
    job.messages(FAILED).tell_end(failed=False)
    assert job.sent() == []
    job.messages(FINISHED).tell_end(failed=False)
    assert job.sent() == ["end"]


def test_one_sender_runs_at_a_time_in_the_order_of_the_events(job: Job) -> None:
    messages = job.messages(STARTED, FIRST_STEP, IDLE)
    for name in ("rank-0.metrics", "idle"):
        (job.folder / name).write_text("{}", encoding="utf-8")
    messages.tell_start()
    until = time.monotonic() + 20
    while len(job.sent()) < 3 and time.monotonic() < until:
        messages.tick()
        time.sleep(0.01)
    events = (STARTED, FIRST_STEP, IDLE)
    assert job.log() == [f"{does} {event}" for event in events for does in ("begins", "ends")]
    while messages._children:
        messages.tick()


def test_the_job_ends_also_if_its_sender_does_not_respond_to_sigkill(
    job: Job, monkeypatch: pytest.MonkeyPatch, senders: list[int]
) -> None:
    """As in a system call of a dead file system."""
    job.sender.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    monkeypatch.setattr(
        "hpcrun.in_job.launch.per_job.message_events.send",
        lambda pid, number, group: senders.append(pid),
    )
    monkeypatch.setattr("hpcrun.in_job.launch.per_job.message_events.KILL_S", 0.2)
    messages = job.messages(FINISHED)

    began = time.monotonic()
    messages.tell_end(failed=False, wait_s=0.1)

    assert senders
    assert time.monotonic() - began < 10


def test_a_later_attempt_tells_of_the_one_before(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT", "1")
    for events, sent in (((STARTED, FIRST_STEP), []), ((FAILED,), [STARTED])):
        messages = job.messages(*events)
        messages.tell_start()
        messages.tick()
        until = time.monotonic() + 20
        while messages._children and time.monotonic() < until:
            messages.tick()
            time.sleep(0.01)
        assert job.sent() == sent


@pytest.mark.parametrize(
    ("elements", "sent"), [(0, [STARTED, STARTED]), (2, [STARTED])], ids=["jobs", "sweep"]
)
def test_one_element_of_a_sweep_tells_of_the_start(
    job: Job, elements: int, sent: list[str]
) -> None:
    for _ in range(2):
        messages = job.messages(STARTED, elements=elements)
        messages.tell_start()
        while messages._children:
            messages.tick()
            time.sleep(0.01)
    assert job.sent() == sent


def test_a_failed_attempt_before_another_is_no_end(job: Job) -> None:
    job.messages(FINISHED).tell_end(failed=True, over=False)
    assert job.sent() == []
    job.messages(FAILED).tell_end(failed=True, over=False)
    assert job.sent() == ["end"]
    job.messages(FINISHED).tell_end(failed=True)
    assert job.sent() == ["end", "end"]


@pytest.mark.parametrize("name", ["rank-0.out", "rank-0.err"])
def test_output_for_a_minute_counts_as_the_first_step(job: Job, name: str) -> None:
    messages = job.messages(FIRST_STEP)
    assert not messages._has_come(FIRST_STEP, 100.0)
    (job.folder / name).write_text("loss", encoding="utf-8")
    assert not messages._has_come(FIRST_STEP, 200.0)
    assert not messages._has_come(FIRST_STEP, 259.0)
    assert messages._has_come(FIRST_STEP, 261.0)


def test_without_its_python_a_job_sends_nothing(job: Job) -> None:
    messages = job.messages(FINISHED)
    job.sender.unlink()
    messages.tell_end(failed=False)
    assert job.sent() == []


def test_a_sender_that_takes_too_long_is_killed(job: Job) -> None:
    job.sender.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    messages = job.messages(FINISHED)
    began = time.monotonic()
    messages.tell_end(failed=False, wait_s=0.1)
    assert messages._children == {}
    assert time.monotonic() - began < 30
