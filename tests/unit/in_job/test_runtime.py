"""What a training script may ask while it runs: ``hpcrun_runtime``, as the run folder carries
it.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread, current_thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hpcrun import runtime
from hpcrun.in_job import hpcrun_runtime

Wait = Callable[[float], None]


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No job, and what a test does with SIGTERM is undone."""
    for name in ("ATTEMPT_DIR", "CHECKPOINT_DIR", "ATTEMPT", "NODE_DIR", "RANK"):
        monkeypatch.delenv(f"HPCRUN_{name}", raising=False)
    for name in ("RANK", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def own() -> ModuleType:
    """A copy of its own for each test, since the module remembers that it has been told to stop."""
    spec = importlib.util.spec_from_file_location("hpcrun_runtime", hpcrun_runtime.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def attempt_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an attempt, as rank 3 of it finds it."""
    folder = tmp_path / "attempts/0"
    folder.mkdir(parents=True)
    values = {
        "ATTEMPT_DIR": str(folder),
        "CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "ATTEMPT": "2",
        "RANK": "3",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"HPCRUN_{name}", value)
    monkeypatch.setenv("RANK", "3")
    return folder


@pytest.fixture
def node_dir(attempt_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the ranks of one node share."""
    folder = tmp_path / "node"
    folder.mkdir()
    monkeypatch.setenv("HPCRUN_NODE_DIR", str(folder))
    return folder


@pytest.fixture
def wait(own: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Let time pass, for the module alone."""
    now = time.monotonic()

    def pass_(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(time=time.time, sleep=time.sleep, monotonic=lambda: now)
    monkeypatch.setattr(own, "time", clock)
    return pass_


def test_outside_of_a_job_it_does_nothing(own: ModuleType, tmp_path: Path) -> None:
    assert own.should_stop() is False
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert own.attempt() == 0
    own.register_stacks()
    assert own._open_files == []
    own.log_metrics(step=1, loss=0.5)
    own.on_stop(lambda: pytest.fail("there is nothing to stop"))
    assert list(tmp_path.iterdir()) == []
    assert own.checkpoint_dir() == Path("checkpoints")
    assert (tmp_path / "checkpoints").is_dir()


def test_in_a_job_it_knows_the_attempt_and_the_folder_of_all_attempts(
    own: ModuleType, attempt_dir: Path
) -> None:
    assert own.attempt() == 2
    assert own.checkpoint_dir() == attempt_dir.parents[1] / "checkpoints"
    assert own.checkpoint_dir().is_dir()


@pytest.mark.parametrize("reason", ["time_limit", "terminated"])
def test_a_request_to_stop_is_heard_once_a_second_said_to_be_and_stays(
    own: ModuleType, node_dir: Path, wait: Wait, reason: str
) -> None:
    (node_dir / "rank-3").write_text("4711")
    assert own.should_stop() is False
    (node_dir / f"stop-{reason}").touch()
    wait(0.9)
    assert own.should_stop() is False
    assert not (node_dir / "heard-3").exists()
    wait(0.2)
    assert own.should_stop() is True
    assert (node_dir / "heard-3").exists()
    (node_dir / f"stop-{reason}").unlink()
    wait(5)
    assert own.should_stop() is True


def test_the_shared_file_system_is_not_looked_at(
    own: ModuleType, attempt_dir: Path, node_dir: Path
) -> None:
    """One process of each node does that for its ranks."""
    (attempt_dir / "stop").mkdir()
    (attempt_dir / "stop/time_limit").touch()
    assert own.should_stop() is False


def test_on_stop_is_called_once_and_from_another_thread(
    own: ModuleType, node_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "LOOK_EVERY_S", 0.01)
    called, callers = Event(), []

    def callback() -> None:
        callers.append(current_thread())
        called.set()

    own.on_stop(callback)
    assert not called.wait(0.1)
    (node_dir / "stop-terminated").touch()
    assert called.wait(10)
    time.sleep(0.1)
    assert len(callers) == 1
    assert callers[0] is not current_thread()


def test_sigterm_is_a_request_to_stop_to_a_program_that_asks(
    own: ModuleType, node_dir: Path
) -> None:
    assert own.should_stop() is False
    os.kill(os.getpid(), signal.SIGTERM)  # would end the tests if it were not taken
    assert own.should_stop() is True
    assert (node_dir / "heard-3").exists()


def test_on_stop_alone_makes_sigterm_a_request_to_stop(
    own: ModuleType, node_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "LOOK_EVERY_S", 0.01)
    called = Event()
    own.on_stop(called.set)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)
    assert called.wait(10)


@pytest.mark.parametrize(
    "disposition", [signal.SIG_IGN, signal.default_int_handler, lambda *_: None]
)
def test_sigterm_is_taken_only_where_it_would_be_fatal(
    own: ModuleType, node_dir: Path, disposition: Any
) -> None:
    signal.signal(signal.SIGTERM, disposition)
    assert own.should_stop() is False
    assert signal.getsignal(signal.SIGTERM) is disposition


def test_a_thread_that_asks_takes_no_signal_and_the_main_thread_does_so_later(
    own: ModuleType, node_dir: Path
) -> None:
    thread = Thread(target=own.should_stop)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert own.should_stop() is False
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_what_a_program_starts_still_ends_by_sigterm(node_dir: Path, how: str) -> None:
    """A pool's workers, a sidecar: their parent ends them with terminate(), and waits for that."""
    start = {
        "fork": "pid = os.fork() or time.sleep(60)",
        "exec": "pid = subprocess.Popen(['sleep', '60']).pid",
    }[how]
    program = f"""
import os, signal, subprocess, time, hpcrun_runtime
assert not hpcrun_runtime.should_stop()
{start}
os.kill(pid, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
assert not hpcrun_runtime._is_asked_to_stop() and not hpcrun_runtime._signalled
print("ended")
"""
    env = {**os.environ, "PYTHONPATH": str(Path(hpcrun_runtime.__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_metrics_are_lines_of_json_in_the_file_of_the_job_s_rank(
    own: ModuleType, attempt_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_RANK_BASE", "4")  # of a role whose first rank is the job's rank 4
    before = time.time()
    own.log_metrics(step=1, loss=SimpleNamespace(item=lambda: 0.25), lr=1e-3, tokens=5)
    own.log_metrics(accuracy=0.5, phase="test")
    first, second = map(json.loads, (attempt_dir / "rank-7.metrics").read_text().splitlines())
    assert before <= first.pop("time") <= second.pop("time") <= time.time()
    assert first == {"step": 1, "loss": 0.25, "lr": 1e-3, "tokens": 5}
    assert second == {"step": None, "accuracy": 0.5, "phase": "test"}


def test_a_folder_that_is_gone_is_complained_of_once_and_stops_nothing(
    own: ModuleType,
    attempt_dir: Path,
    wait: Wait,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("HPCRUN_ATTEMPT_DIR", "HPCRUN_NODE_DIR"):
        monkeypatch.setenv(name, str(attempt_dir / "gone"))
    assert own.should_stop() is False
    wait(2)
    assert own.should_stop() is False
    own.log_metrics(step=1, loss=0.5)
    (complaint,) = capfd.readouterr().err.splitlines()
    assert "gone" in complaint
    assert "training goes on without it" in complaint


def test_the_package_has_the_same_names() -> None:
    own = [
        item
        for item in vars(hpcrun_runtime).values()
        if getattr(item, "__module__", "") == hpcrun_runtime.__name__
    ]
    assert {item.__name__ for item in own if not item.__name__.startswith("_")} == set(
        runtime.__all__
    )


def test_a_rank_that_registers_names_the_process_and_the_signal_for_its_stacks(
    own: ModuleType, node_dir: Path
) -> None:
    own.register_stacks()
    (file,) = node_dir.glob("stacks-*")
    pid, number = file.name.removeprefix("stacks-").split(".")
    assert int(pid) == os.getpid()
    os.kill(os.getpid(), int(number))
    assert "in test_a_rank_that_registers" in file.read_text()
    faulthandler.unregister(int(number))
    own._open_files.pop().close()
