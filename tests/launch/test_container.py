"""Ranks in a container, by a stand-in for apptainer that isolates nothing: tests/launch/runtime.py
says what it has.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launch.jobs import HOW, LAUNCH, job, python, wait_for_ends

RUNTIME = Path(__file__).with_name("runtime.py")
HANDLER = """
import signal, sys, time
def save(number, frame):
    print("handler", flush=True)
    time.sleep(0.8)  # what comes twice comes now
    print("saved", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""
TASK = {
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "LOCAL_RANK": "0",
    "SLURM_NTASKS": "1",
    "SLURM_NTASKS_PER_NODE": "1",
    "HPCRUN_NODE": "local-0",
}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image that has Python; the runtime is on PATH."""
    (tmp_path / "image/bin").mkdir(parents=True)
    (tmp_path / "image/bin/python3").symlink_to(sys.executable)
    (tmp_path / "bin").mkdir()
    runtime = tmp_path / "bin/apptainer"
    program = shlex.join([sys.executable, str(RUNTIME)])
    runtime.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    runtime.chmod(0o755)
    return tmp_path / "image"


def chain(image: Path, launcher: str) -> list[str]:
    """What starts a program in the image, once per node or as a task of srun."""
    inside = ["python3", *LAUNCH[1:]]
    container = [
        *LAUNCH,
        "container",
        str(image),
        "--",
        "apptainer",
        "exec",
        "--nv",
        f"--bind={image}",
        str(image),
    ]
    if launcher == "srun":
        return [*container, *inside, "rank", "--task", "--"]
    return [*LAUNCH, "node", "--", *container, *inside, "rank", "--once", "--"]


def environ(image: Path, launcher: str) -> dict[str, str]:
    return {
        "PATH": f"{image.parent}/bin:{os.environ['PATH']}",
        **(TASK if launcher == "srun" else {}),
    }


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("launcher", ["python", "srun"])
def test_a_handler_runs_once(tmp_path: Path, image: Path, launcher: str, how: str) -> None:
    env = environ(image, launcher)
    with job(tmp_path, python(tmp_path, HANDLER), chain=chain(image, launcher), env=env) as running:
        running.until("ready")
        below = running.processes()[1:]
        getattr(running, how)(signal.SIGTERM)
        assert running.end() == 3
        assert running.out().split() == ["ready", "handler", "saved"]
        assert running.rank(0)["told"] == "TERM"
        wait_for_ends(below, timeout=5)


@pytest.mark.parametrize("launcher", ["python", "srun"])
def test_a_program_that_does_not_listen_leaves_nothing(
    tmp_path: Path, image: Path, launcher: str
) -> None:
    text = "import subprocess\nprint('ready', flush=True)\nsubprocess.run(['sleep', '600'])\n"
    with job(
        tmp_path, python(tmp_path, text), chain=chain(image, launcher), env=environ(image, launcher)
    ) as running:
        running.until("ready")
        below = running.processes()[1:]
        running.signal_every(signal.SIGTERM)
        assert running.end() == 143
        wait_for_ends(below, timeout=5)


@pytest.mark.parametrize("launcher", ["python", "srun"])
def test_status_and_environment_pass_through(tmp_path: Path, image: Path, launcher: str) -> None:
    program = python(
        tmp_path, "import os, sys\nprint(os.environ['A'], os.environ['PATH'])\nsys.exit(7)\n"
    )
    env = {**environ(image, launcher), "A": "as the script exports it"}
    with job(tmp_path, ["python3", *program[1:]], chain=chain(image, launcher), env=env) as running:
        assert running.end() == 7
        assert running.out() == f"as the script exports it {image}/bin:/usr/bin:/bin\n"
        assert running.rank(0)["status"] == 7


def test_torchruns_agent_is_deaf_although_the_runtime_empties_its_mask(
    tmp_path: Path, image: Path
) -> None:
    container = [
        "apptainer",
        "exec",
        str(image),
        "python3",
        *LAUNCH[1:],
        "container",
        "--deaf",
        "--",
    ]
    done = subprocess.run(
        [*LAUNCH, "container", str(image), "--", *container, "grep", "SigBlk", "/proc/self/status"],
        env={**os.environ, **environ(image, "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    mask = int(done.stdout.split()[1], 16)
    assert all(
        mask >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    )


@pytest.mark.parametrize(
    ("lacks", "message"),
    [("runtime", "has no apptainer on its PATH; load its module"), ("image", "has no image ")],
)
def test_a_node_that_lacks_something_says_so(
    tmp_path: Path, image: Path, lacks: str, message: str
) -> None:
    env: dict[str, Any] = {**os.environ, **environ(image, "python"), "HPCRUN_NODE": "gpu-7"}
    if lacks == "runtime":
        env["PATH"] = "/usr/bin:/bin"
    asked = str(image) if lacks == "runtime" else f"{image}.sif"
    argv = [*LAUNCH, "container", asked, "--", "apptainer", "exec", asked, "true"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 127
    assert done.stderr.startswith(f"hpcrun: gpu-7 {message}")
    assert "--exclude" in done.stderr
