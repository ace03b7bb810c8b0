"""What is left on the nodes when a process of hpcrun is killed (SIGKILL), as far as only srun shows
it: nothing. tests/launch/test_killed_helpers.py has the others.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import SMALL, Lab, Scenarios, begun, parent_of, processes, words_of

pytestmark = pytest.mark.slurm

ON_CPU = (*SMALL, "-p", "cpu", "--launcher", "srun", "--nproc-per-node", "1")
ON_THREE = (*SMALL, "-p", "gpu", "--nodes", "2", "--restarts", "1", "--spares", "1")
SCRIPTS = {
    # its child processes leave its process group, its session and its parent
    "leaves.py": """
import subprocess, time
subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
time.sleep(600)
""",
}


def part(folder: Path, name: str, *, canary: bool = False) -> int:
    """The process of a part of launch, or its canary; 0 if there is none."""
    parts = [pid for pid in processes(folder) if words_of(pid)[1:4:2] == ["-ISB", name]]
    return next((pid for pid in parts if (words_of(parent_of(pid)) == words_of(pid)) is canary), 0)


def srun(folder: Path, *, of_guard: bool) -> int:
    """The client of a step that waits for it, not its helper process."""
    for pid, name in processes(folder).items():
        if name == "srun" and words_of(parent_of(pid)) != words_of(pid):
            if ("--job-name=guard" in words_of(pid)) is of_guard:
                return pid
    return 0


def replaced(find: Callable[[], int], what: str) -> None:
    """Kill a process, and wait for another one in its place."""
    before = wait_for(find, 20, what)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: find() not in (0, before), 40, f"another {what}")


def left(lab: Lab, folder: Path) -> dict[int, list[str]]:
    """The processes that a run has left some seconds after its end."""
    lab.ended(folder)
    try:
        wait_for(lambda: not processes(folder), 15, "all processes to end")
    except AssertionError:
        return {pid: words_of(pid) for pid in processes(folder)}
    return {}


def wrapper(lab: Lab) -> dict[int, list[str]]:
    """The wrapper of a rank without its first canary."""
    folder = lab.submit("wrapper", *ON_CPU, "leaves.py", requeue=0)
    begun(folder)
    replaced(lambda: part(folder, "rank", canary=True), "canary of a rank")
    os.kill(part(folder, "rank"), signal.SIGKILL)
    return left(lab, folder)


def client(lab: Lab) -> dict[int, list[str]]:
    folder = lab.submit("client", *ON_CPU, "leaves.py", requeue=0)
    begun(folder)
    os.kill(srun(folder, of_guard=False), signal.SIGKILL)
    return left(lab, folder)


def job(lab: Lab) -> dict[int, list[str]]:
    """The process of a job without its first canary, its first guard and that one's srun."""
    folder = lab.submit("job", *ON_THREE, "--launcher", "srun", "leaves.py", requeue=0)
    begun(folder, ranks=2)
    replaced(lambda: part(folder, "job", canary=True), "canary of the job")
    replaced(lambda: part(folder, "guard"), "guard")
    replaced(lambda: srun(folder, of_guard=True), "srun of the guard")
    os.kill(part(folder, "job"), signal.SIGKILL)
    return left(lab, folder)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {"wrapper": wrapper, "client": client, "job": job}


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_left(scenarios: Scenarios, name: str) -> None:
    assert scenarios[name].result() == {}
