"""The versions with which an attempt ran: as the job writes them, and as hpcrun reads them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch import program_versions
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.job_versions import versions_of
from tests.harness import wait_for
from tests.launch.jobs import ONCE, job
from tests.unit.builders import write

PYTHON = platform.python_version()
FILE = program_versions.__file__
TORCH = "__version__ = '2.9.1+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\nhip = None\n"
NCCL = "nvidia_nccl_cu12-2.27.5.dist-info"
CUDNN = "nvidia_cudnn_cu12-9.10.2.21.dist-info"


def recorded(folder: Path, **env: str) -> dict[str, str]:
    """What hpcrun reads after a program's Python has written its versions."""
    argv = [sys.executable, "-S", FILE, str(folder)]
    subprocess.run(argv, env={**os.environ, **env}, check=True)
    return versions_of(AttemptFolder(folder))


def packages(folder: Path, torch: str, *names: str) -> Path:
    """A folder of packages with a torch that nobody can import."""
    write(folder / "packages/torch/version.py", torch)
    write(folder / "packages/torch/__init__.py", "raise SystemExit('imported')")
    for name in names:
        (folder / "packages" / name).mkdir()
    return folder / "packages"


def test_the_versions_are_those_of_the_packages_that_the_program_would_import(
    tmp_path: Path,
) -> None:
    other = "nvidia_nccl_cu11-2.14.3.dist-info"
    path = packages(tmp_path, TORCH, NCCL, CUDNN, other)
    assert recorded(tmp_path, PYTHONPATH=str(path)) == {
        "python": PYTHON,
        "torch": "2.9.1+cu128",
        "cuda": "12.8",
        "cudnn": "9.10.2.21",
        "nccl": "2.27.5",
    }


@pytest.mark.parametrize(
    ("torch", "names", "more"),
    [
        pytest.param("", (NCCL,), {}, id="no torch"),
        pytest.param(
            "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n",
            (NCCL,),
            {"torch": "2.13.0+cpu"},
            id="a build for CPUs",
        ),
        pytest.param(
            TORCH,
            (NCCL, "nvidia_nccl_cu12-2.21.5.dist-info"),
            {"torch": "2.9.1+cu128", "cuda": "12.8"},
            id="two versions of NCCL",
        ),
        pytest.param('__version__ = "$(id)"\ncuda = 12\n', (NCCL,), {}, id="no versions"),
    ],
)
def test_a_version_that_cannot_be_read_is_left_out(
    tmp_path: Path, torch: str, names: tuple[str, ...], more: dict[str, str]
) -> None:
    path = packages(tmp_path, torch, *names)
    assert recorded(tmp_path, PYTHONPATH=str(path)) == {"python": PYTHON, **more}


@pytest.mark.parametrize(
    "kind",
    [
        "Kernel Module  550.54.15  Tue Mar  5 22:23:56",
        "Open Kernel Module for x86_64  550.54.15  R",
    ],
)
def test_the_version_of_the_driver_is_that_of_its_kernel_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    driver = write(
        tmp_path / "version", f"NVRM version: NVIDIA UNIX x86_64 {kind}\nGCC version: 12\n"
    )
    monkeypatch.setattr(program_versions, "DRIVER", str(driver))
    monkeypatch.setattr(sys, "argv", [FILE, str(tmp_path)])
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(os, "nice", lambda _: 0)
    program_versions.main()
    assert versions_of(AttemptFolder(tmp_path))["driver"] == "550.54.15"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"torch": 2}', '{"torch": "\\u001b[31m2"}', '{"torch": "2 3"}', "x" * 5000],
)
def test_a_damaged_record_has_no_versions(tmp_path: Path, text: str) -> None:
    write(tmp_path / "versions", text)
    assert versions_of(AttemptFolder(tmp_path)) == {}


def test_a_link_is_no_record(tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere", '{"torch": "2.9.1"}')
    (tmp_path / "versions").symlink_to(secret)
    assert versions_of(AttemptFolder(tmp_path)) == {}


def test_an_element_of_a_sweep_has_the_versions_in_its_exit_record(tmp_path: Path) -> None:
    write(tmp_path / "exit", json.dumps({"files": {"versions": '{"torch": "2.9.1"}'}}))
    assert versions_of(AttemptFolder(tmp_path)) == {"torch": "2.9.1"}


def test_the_first_rank_alone_records_the_versions(tmp_path: Path) -> None:
    with job(tmp_path, ["sleep", "20"], nodes=2) as running:
        wait_for(lambda: (running.attempt / "rank-1.out").exists(), 20, "rank 1")
        assert not versions_of(AttemptFolder(running.attempt))  # sleep is of no environment
    shell = ["bash", "-c", "while [ ! -e enough ]; do sleep 0.1; done"]
    with job(tmp_path / "second", shell, nodes=2, chain=ONCE) as running:
        folder = AttemptFolder(running.attempt)
        wait_for(lambda: versions_of(folder).get("python") == PYTHON, 20, "the versions")
        (tmp_path / "second/enough").touch()
        assert running.end() == 0
        assert not [*running.attempt.glob(".versions*")]
