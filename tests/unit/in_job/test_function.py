"""What a task does that calls a Python function: whose call it finds, and what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hpcrun.in_job import hpcrun_function
from tests.unit.in_job.attempts import Attempt


@pytest.fixture
def task(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """The second of two tasks of a job on this machine."""
    for name in ("SLURM_JOB_ID", "RANK", "HPCRUN_STDERR_TO_STDOUT", "SUBMITIT_EXECUTOR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    attempt.env.pop("RANK")
    monkeypatch.setenv("NODE_RANK", "1")
    monkeypatch.setenv("NNODES", "2")
    (attempt.run / "submitit").mkdir()
    return attempt


def test_a_local_task_is_described_to_submitit(task: Attempt) -> None:
    hpcrun_function._describe_job()
    names = ("EXECUTOR", "LOCAL_JOB_ID", "LOCAL_NTASKS", "LOCAL_GLOBALID", "LOCAL_LOCALID")
    described = [os.environ[f"SUBMITIT_{name}"] for name in names]
    assert described == ["local", os.environ["HPCRUN_JOB_ID"], "2", "1", "0"]
    assert os.environ["SUBMITIT_LOCAL_NODEID"] == "1"
    assert os.environ["SUBMITIT_LOCAL_JOB_NUM_NODES"] == "2"


def test_a_task_of_slurm_is_described_by_slurm(
    task: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    hpcrun_function._describe_job()
    assert os.environ["SUBMITIT_EXECUTOR"] == "slurm"
    assert "SUBMITIT_LOCAL_JOB_ID" not in os.environ


class Paths:
    """The names of submitit for the files of a task."""

    def __init__(self, folder: Path) -> None:
        self.result_pickle = folder / "7_1_result.pkl"
        self.submitted_pickle = folder / "7_submitted.pkl"
        self.stdout = folder / "7_1_log.out"
        self.stderr = folder / "7_1_log.err"


def prepare(task: Attempt) -> Paths:
    """Put the files of a task where submitit looks, and return their names."""
    folder = task.run / "submitit"
    with zipfile.ZipFile(folder / "calls.zip", "w") as calls:
        calls.writestr("0", b"call 0")
        calls.writestr("1", b"call 1")
    paths = Paths(folder)
    hpcrun_function._prepare(folder, paths)
    return paths


def test_each_element_has_its_call(task: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_ELEMENT", "1")
    paths = prepare(task)
    assert paths.submitted_pickle.read_bytes() == b"call 1"


def test_a_checkpoint_of_an_attempt_before_stays(task: Attempt) -> None:
    folder = task.run / "submitit"
    (folder / "7_submitted.pkl").write_bytes(b"checkpoint")
    for name in ("7_1_result.pkl", "7_1_result.pkl.save_tmp", "7_submitted.pkl.save_tmp"):
        (folder / name).touch()
    paths = prepare(task)
    assert paths.submitted_pickle.read_bytes() == b"checkpoint"
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["7_1_log.err", "7_1_log.out", "7_submitted.pkl", "calls.zip"]


@pytest.mark.parametrize(
    ("variables", "logs"),
    [
        pytest.param({}, ("rank-1.out", "rank-1.err"), id="once a node"),
        pytest.param({"RANK": "5"}, ("rank-5.out", "rank-5.err"), id="rank"),
        pytest.param({"HPCRUN_STDERR_TO_STDOUT": "1"}, ("rank-1.out", None), id="one log"),
    ],
)
def test_submitit_s_logs_are_links_to_those_of_the_rank(
    task: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    logs: tuple[str, str | None],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    paths = prepare(task)
    links = []
    for path in (paths.stdout, paths.stderr):
        links.append(os.readlink(path) if path.is_symlink() else None)
    folder = "../elements/0/attempts/0"
    assert links == [f"{folder}/{name}" if name else None for name in logs]


def test_a_file_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "result"
    with hpcrun_function._fresh(path) as aside:
        aside.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    with pytest.raises(OSError, match="full"), hpcrun_function._fresh(path) as aside:
        aside.write_text("part")
        raise OSError("full")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_python_without_submitit_says_so(task: Attempt) -> None:
    env = {**task.env, "NODE_RANK": "1", "NNODES": "2"}
    argv = [sys.executable, "-S", hpcrun_function.__file__]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot run a Python function: No module named 'submitit'" in done.stderr
    assert done.stderr.endswith("; pip install submitit\n")
