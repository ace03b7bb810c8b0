"""The launch of a script: what it takes from the job, and which lines of the ranks it copies."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hpcrun.in_job.launch.batch import ask
from hpcrun.in_job.launch.batch.ask import _Step


class Job:
    """The side of the job, which tells the launch line by line."""

    def __init__(self, job: socket.socket, launch: socket.socket) -> None:
        self.job = job
        self.launch = launch
        self.step = _Step(launch)

    def tell(self, text: str) -> int | None:
        """Send some text, and return what the launch makes of it."""
        self.job.sendall(text.encode("utf-8", "surrogateescape"))
        return self.step.wait()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(ask, "WAIT_S", 0.01)
    one, other = socket.socketpair()
    with closing(one), closing(other):
        yield Job(one, other)


@pytest.mark.parametrize("status", [0, 3, 137])
def test_the_launch_ends_with_the_status_of_the_step(job: Job, status: int) -> None:
    assert job.tell(f"status {status}\n") == status


def test_a_step_that_the_job_does_not_run_is_run_alone(job: Job) -> None:
    assert job.tell("alone\n") == -1


def test_a_line_may_come_in_pieces(job: Job) -> None:
    assert job.tell("copy 1 2\nsta") is None
    assert job.tell("tus 1") is None
    assert job.tell("37\n") == 137


@pytest.mark.parametrize("unread", [b"", b"the launch"])
def test_a_job_that_ends_first_is_a_failure(
    job: Job, unread: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    job.launch.sendall(unread)
    job.job.close()
    assert job.step.wait() == 1
    assert capsys.readouterr().err == "hpcrun: the job has ended, and so its launch ends\n"


def test_a_launch_that_copies_looks_for_lines_again(job: Job) -> None:
    job.tell("copy 1\n")
    too_late = threading.Timer(10, job.job.shutdown, [socket.SHUT_RDWR])
    too_late.start()
    assert job.step.wait() is None  # without a line of the job
    too_late.cancel()


def test_whole_lines_of_the_ranks_are_copied_once(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rank-0.out"
    log.write_text("one\ntw")
    job.tell(f"copy 1 2\nattempt {tmp_path}\n")
    job.step.copy()
    assert capfd.readouterr().out == "one\n"
    log.write_text("one\ntwo\nthr")
    job.step.copy()
    assert capfd.readouterr().out == "two\n"
    job.step.copy(whole=True)
    assert capfd.readouterr().out == "thr"


def test_each_stream_is_copied_to_its_own(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank-0.out").write_text("out\n")
    (tmp_path / "rank-0.err").write_text("err\n")
    (tmp_path / "node-n1.out").write_text("not a rank\n")
    job.tell(f"copy 1 2\nattempt {tmp_path}\n")
    job.step.copy()
    assert tuple(capfd.readouterr()) == ("out\n", "err\n")


@pytest.mark.parametrize(("copied", "shown"), [("1", ("out\n", "")), ("2", ("", "err\n"))])
def test_only_a_stream_that_goes_elsewhere_is_copied(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str], copied: str, shown: tuple[str, str]
) -> None:
    (tmp_path / "rank-0.out").write_text("out\n")
    (tmp_path / "rank-0.err").write_text("err\n")
    job.tell(f"copy {copied}\nattempt {tmp_path}\n")
    job.step.copy()
    assert tuple(capfd.readouterr()) == shown


def test_a_stream_without_a_reader_is_copied_no_more(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank-0.out").write_text("out\n")
    (tmp_path / "rank-0.err").write_text("err\n")
    job.tell(f"copy 1 2\nattempt {tmp_path}\n")
    read, write = os.pipe()
    os.close(read)
    stdout = os.dup(1)
    os.dup2(write, 1)
    try:
        job.step.copy()
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(write)
    (tmp_path / "rank-0.out").write_text("out\nlater\n")
    (tmp_path / "rank-0.err").write_text("err\nlater\n")
    job.step.copy()
    assert tuple(capfd.readouterr()) == ("", "err\nlater\n")


def test_the_rest_of_an_attempt_is_copied_before_the_next(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, text in enumerate(("first", "second\n")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "rank-0.out").write_text(text)
    job.tell(f"copy 1\nattempt {tmp_path}/0\n")
    job.tell(f"attempt {tmp_path}/1\n")
    assert capfd.readouterr().out == "first"
    job.step.copy()
    assert capfd.readouterr().out == "second\n"
