"""What a training script may ask while it runs: ``hpcrun_runtime``, as the run folder carries it."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, current_thread
from types import ModuleType, SimpleNamespace

import pytest

from hpcrun import hpcrun_runtime, runtime


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
    """The surroundings of rank 3 in an attempt."""
    folder = tmp_path / "attempts" / "0"
    (folder / "stop").mkdir(parents=True)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(folder))
    monkeypatch.setenv("HPCRUN_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("HPCRUN_ATTEMPT", "2")
    monkeypatch.setenv("RANK", "3")
    return folder


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No job."""
    for name in ("HPCRUN_ATTEMPT_DIR", "HPCRUN_CHECKPOINT_DIR", "HPCRUN_ATTEMPT", "RANK", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def wait(own: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass, for the module alone."""
    now = time.monotonic()

    def pass_(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(time=time.time, sleep=time.sleep, monotonic=lambda: now)
    monkeypatch.setattr(own, "time", clock)
    return pass_


def test_outside_of_a_job_it_does_nothing(own: ModuleType, outside: Path) -> None:
    assert own.should_stop() is False
    assert own.attempt() == 0
    own.log_metrics(step=1, loss=0.5)
    own.on_stop(lambda: pytest.fail("there is nothing to stop"))
    assert list(outside.iterdir()) == []
    assert own.checkpoint_dir() == Path("checkpoints")
    assert (outside / "checkpoints").is_dir()


def test_in_a_job_it_knows_the_attempt_and_the_folder_of_all_attempts(own: ModuleType, attempt_dir: Path) -> None:
    assert own.attempt() == 2
    assert own.checkpoint_dir() == attempt_dir.parents[1] / "checkpoints"
    assert own.checkpoint_dir().is_dir()


@pytest.mark.parametrize("flag", ["time_limit", "terminated"])
def test_a_flag_is_heard_and_said_to_be(own: ModuleType, attempt_dir: Path, flag: str) -> None:
    (attempt_dir / "stop" / flag).touch()
    assert own.should_stop() is True
    assert (attempt_dir / "heard-3").exists()


def test_no_flag_is_not_heard(own: ModuleType, attempt_dir: Path) -> None:
    assert own.should_stop() is False
    assert not (attempt_dir / "heard-3").exists()


def test_the_folder_is_looked_at_once_in_a_second(
    own: ModuleType, attempt_dir: Path, wait: Callable[[float], None]
) -> None:
    assert own.should_stop() is False
    (attempt_dir / "stop/time_limit").touch()
    wait(0.9)
    assert own.should_stop() is False
    wait(0.2)
    assert own.should_stop() is True


def test_once_true_it_stays_true(own: ModuleType, attempt_dir: Path, wait: Callable[[float], None]) -> None:
    (attempt_dir / "stop/time_limit").touch()
    assert own.should_stop() is True
    (attempt_dir / "stop/time_limit").unlink()
    wait(5)
    assert own.should_stop() is True


def test_on_stop_is_called_once_and_from_another_thread(
    own: ModuleType, attempt_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "LOOK_EVERY_S", 0.01)
    called, callers = Event(), []

    def callback() -> None:
        callers.append(current_thread())
        called.set()

    own.on_stop(callback)
    assert not called.wait(0.1)
    (attempt_dir / "stop/terminated").touch()
    assert called.wait(10)
    time.sleep(0.1)
    assert len(callers) == 1
    assert callers[0] is not current_thread()


class OneElement:
    """What a tensor of one element is to it."""

    def item(self) -> float:
        return 0.25


def test_metrics_are_lines_of_json(own: ModuleType, attempt_dir: Path) -> None:
    before = time.time()
    own.log_metrics(step=1, loss=OneElement(), lr=1e-3, tokens=5)
    own.log_metrics(accuracy=0.5, phase="test")
    first, second = map(json.loads, (attempt_dir / "rank-3.metrics").read_text().splitlines())
    assert before <= first.pop("time") <= second.pop("time") <= time.time()
    assert first == {"step": 1, "loss": 0.25, "lr": 1e-3, "tokens": 5}
    assert second == {"step": None, "accuracy": 0.5, "phase": "test"}


def test_a_folder_that_is_gone_is_complained_of_once_and_stops_nothing(
    own: ModuleType,
    attempt_dir: Path,
    wait: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt_dir / "gone"))
    assert own.should_stop() is False
    wait(2)
    assert own.should_stop() is False
    own.log_metrics(step=1, loss=0.5)
    complaints = capfd.readouterr().err.splitlines()
    assert len(complaints) == 1
    assert "gone" in complaints[0]
    assert "training goes on without it" in complaints[0]


def test_the_package_has_the_same_names() -> None:
    public = {
        name
        for name, value in vars(hpcrun_runtime).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == hpcrun_runtime.__name__
    }
    assert public == set(runtime.__all__)
