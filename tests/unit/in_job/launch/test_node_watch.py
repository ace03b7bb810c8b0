"""What a node makes of signals and of requests to stop, and how the job knows that it lives."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.node_folder import NodeFolder
from hpcrun.in_job.launch.node_watch import StopRequests
from tests.unit.in_job.attempts import Attempt


@pytest.fixture
def folder(attempt: Attempt) -> NodeFolder:
    """The folder of the node, which is removed with the attempt."""
    return node_folder.make()


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """The program of rank 3."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as program:
        yield program
        program.kill()


def watch(folder: NodeFolder, *, hears: bool = False) -> StopRequests:
    """Return what watches a node, without samples."""
    canary = SimpleNamespace(heard=lambda _: hears)
    watch = StopRequests(folder, canary)  # type: ignore[arg-type]
    watch._sampler = SimpleNamespace(tick=lambda: None)  # type: ignore[assignment]
    return watch


def first_signal(program: subprocess.Popen[bytes]) -> int:
    """Return the signal that a program has got; SIGINT if it has none yet."""
    program.send_signal(signal.SIGINT)  # the first of two signals ends a program
    return -program.wait()


@pytest.mark.parametrize(
    ("number", "files", "hears", "answer", "got"),
    [
        pytest.param(signal.SIGTERM, [], False, "TERM", signal.SIGTERM, id="terminated"),
        pytest.param(signal.SIGTERM, ["ended-3"], False, "TERM", signal.SIGINT, id="by its rank"),
        pytest.param(signal.SIGTERM, [], True, "TERM", signal.SIGINT, id="by Slurm"),
        pytest.param(signal.SIGUSR2, ["ended-3"], False, "", signal.SIGUSR2, id="another signal"),
    ],
)
def test_a_signal_of_a_node_reaches_its_program_by_one_way(
    folder: NodeFolder,
    program: subprocess.Popen[bytes],
    number: int,
    files: list[str],
    hears: bool,
    answer: str,
    got: int,
) -> None:
    for name in files:
        folder.claim(name)
    assert watch(folder, hears=hears).on_signal(number, {3: program.pid}) == answer
    assert first_signal(program) == got
    assert folder.has("stop-terminated") == (answer == "TERM")
    assert folder.has("heard-3") == (answer == "TERM")


def test_the_second_sigterm_reaches_a_program_again(
    folder: NodeFolder, program: subprocess.Popen[bytes]
) -> None:
    folder.claim("ended-3")
    node = watch(folder)
    node.on_signal(signal.SIGTERM, {3: program.pid})
    node.on_signal(signal.SIGTERM, {3: program.pid})
    assert first_signal(program) == signal.SIGTERM


@pytest.mark.parametrize(
    ("later_s", "got"), [(24, signal.SIGINT), (26, signal.SIGKILL)], ids=["before", "after"]
)
def test_a_rank_has_25_seconds_after_the_failure_of_another(
    attempt: Attempt,
    folder: NodeFolder,
    program: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    later_s: float,
    got: int,
) -> None:
    failed = '{"rank": 5, "status": 1, "ended": 1.0, "told": ""}'
    (attempt.folder / "rank-5.exit").write_text(failed)
    folder.claim(f"rank-3.{program.pid}")
    node = watch(folder)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    assert node.on_signal(signal.SIGTERM, {}) == "cleared"
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + later_s)
    node.tick()
    assert first_signal(program) == got
    assert folder.has("cleared")
    assert os.listdir(attempt.folder / "stop") == []


@pytest.mark.parametrize(
    ("managed", "beats"), [("1", [True, False, True]), (None, [False, False, False])]
)
def test_a_node_of_a_managed_job_shows_every_ten_seconds_that_it_lives(
    attempt: Attempt,
    folder: NodeFolder,
    monkeypatch: pytest.MonkeyPatch,
    managed: str | None,
    beats: list[bool],
) -> None:
    if managed:
        monkeypatch.setenv("HPCRUN_MANAGED", managed)
    start = attempt.folder / "node-n1.start"
    start.touch()
    node = watch(folder)
    found = []
    for now_s in (100.0, 109.0, 110.5):
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        os.utime(start, (0, 0))
        node.tick()
        found.append(start.stat().st_mtime > 0)
    assert found == beats


@pytest.mark.parametrize("managed", ["1", None])
def test_a_request_to_stop_is_announced_in_a_managed_job(
    attempt: Attempt, folder: NodeFolder, monkeypatch: pytest.MonkeyPatch, managed: str | None
) -> None:
    if managed:
        monkeypatch.setenv("HPCRUN_MANAGED", managed)
    (attempt.folder / "stop/preemption").touch()
    watch(folder).tick()
    assert folder.has("stop-preemption") == bool(managed)
