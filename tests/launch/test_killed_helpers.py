"""What is left when a process of hpcrun, or of a launcher, is killed (SIGKILL): nothing.

Each job has a program whose child processes leave its process group, its session and its parent.
Ray is a stand-in, with a daemon of its own session.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import REPO, wait_for
from tests.launch.jobs import LAUNCH, ONCE, Running, command, job, parent, send
from tests.launch.test_ends import agent
from tests.launch.test_node_folder import tasks
from tests.launch.test_roles import block

LEAVES = "echo $HPCRUN_NODE_DIR; (setsid sh -c 'sleep 901 & sleep 902') & sleep 903 & wait"
PROGRAM = ["sh", "-c", LEAVES]
RAY = """
import os, socket, subprocess, sys, time

def main():
    subprocess.Popen(["sh", "-c", "sleep 904 & sleep 905"], start_new_session=True)
    port = next(word.partition("=")[2] for word in sys.argv if word.startswith("--port="))
    server = socket.create_server(("127.0.0.1", int(port)))
    time.sleep(900)

def init(**_): pass
def is_initialized(): return True
def nodes(): return [{"NodeName": os.environ["HPCRUN_NODE"], "Alive": True}]
"""


@dataclass(frozen=True)
class Scene:
    """The processes of a job, found by a variable of their environment."""

    entry: str

    def processes(self) -> list[int]:
        """All processes of the job but the first one."""
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                environ = path.read_bytes()
            except OSError:
                continue
            if f"\0{self.entry}\0".encode() in b"\0" + environ:
                pids.append(int(path.parent.name))
        return pids

    def sleepers(self) -> int:
        """The number of processes that only a signal ends soon."""
        return len([pid for pid in self.processes() if command(pid).startswith("sleep\x0090")])

    def part(self, part: str) -> int:
        """The process of a part of launch; 0 if there is none."""
        found = [pid for pid in self.processes() if is_part(pid, part)]
        return next((pid for pid in found if not is_part(parent(pid), part)), 0)

    def canary(self, part: str) -> int:
        """The canary of a part, which has its command line; 0 if there is none."""
        found = [pid for pid in self.processes() if is_part(pid, part)]
        return next((pid for pid in found if is_part(parent(pid), part)), 0)

    def program(self, word: str) -> int:
        """The process with a word in its command, which is not a part of launch."""
        for pid in self.processes():
            words = command(pid).split("\0")
            if LAUNCH[2] not in words[:3] and any(word in each for each in words[:5]):
                return pid
        return 0


@contextmanager
def watched(entry: str) -> Iterator[Scene]:
    """The processes of a job, of which a test that fails leaves nothing, either."""
    scene = Scene(entry)
    try:
        yield scene
    finally:
        for pid in scene.processes():
            send(pid, signal.SIGKILL)


def is_part(pid: int, part: str) -> bool:
    words = command(pid).split("\0")
    return words[2:4] in ([LAUNCH[2], part], [f"{LAUNCH[2]}/__main__.py", part])


@contextmanager
def ray(folder: Path) -> Iterator[Running]:
    (folder / "ray/scripts").mkdir(parents=True)
    (folder / "ray/__init__.py").write_text(RAY)
    (folder / "ray/scripts/scripts.py").write_text("from ray import main\n")
    chain = [*LAUNCH, "node", "--", *LAUNCH, "ray", "--"]
    with job(folder, PROGRAM, chain=chain, env={"PYTHONPATH": str(folder)}) as running:
        yield running


@contextmanager
def role(folder: Path) -> Iterator[Running]:
    words = block("trainer", 0, "-c", f"import os; os.execvp('sh', {PROGRAM})", on_exit="end")
    with job(folder, [], chain=[*LAUNCH, "role", "--", *words]) as running:
        yield running


@contextmanager
def script(folder: Path) -> Iterator[Running]:
    (folder / "script.sh").write_text(f'"$HPCRUN_LAUNCH" :: sh -c {shlex.quote(LEAVES)}\n')
    with job(folder, [], chain=["bash", "script.sh"], options=("--script",)) as running:
        yield running


KINDS: dict[str, Callable[[Path], AbstractContextManager[Running]]] = {
    "torchrun": lambda folder: job(folder, PROGRAM, chain=agent(folder, 1)),
    "once": lambda folder: job(folder, PROGRAM, chain=ONCE),
    "ray": ray,
    "role": role,
    "script": script,
}
CASES = [
    ("torchrun", "rank"),
    ("torchrun", "canary of rank"),
    ("torchrun", "node"),
    ("torchrun", "canary of node"),
    ("torchrun", "agent.py"),
    ("once", "rank"),
    ("once", "job"),
    ("once", "canary of job"),
    ("ray", "ray"),
    ("ray", "canary of ray"),
    ("ray", "start"),
    ("role", "role"),
    ("role", "canary of role"),
    ("script", "job"),
    ("script", "script.sh"),
]


@pytest.mark.parametrize(("kind", "helper"), CASES)
def test_nothing_is_left(tmp_path: Path, kind: str, helper: str) -> None:
    started = KINDS[kind](tmp_path)
    with started as running, watched(f"HPCRUN_ATTEMPT_DIR={running.attempt}") as scene:
        sleepers = 5 if kind == "ray" else 3
        wait_for(lambda: scene.sleepers() == sleepers, 20, "the programs")
        kill(scene, helper)
        running.end()
        wait_for(lambda: not scene.processes(), 8, "all processes to end")


def kill(scene: Scene, helper: str) -> None:
    """Kill a helper; first its canary, if it is the canary of a part: it must come back."""
    _, _, part = helper.rpartition("canary of ")
    if part == helper:
        victim = scene.part(part) or scene.program(part)
        assert victim
        os.kill(victim, signal.SIGKILL)
        return
    canary = scene.canary(part)
    assert canary
    os.kill(canary, signal.SIGKILL)
    wait_for(lambda: scene.canary(part) not in (0, canary), 4, "another canary")
    os.kill(scene.part(part), signal.SIGKILL)


@pytest.mark.parametrize("helper", ["rank", "canary of rank"])
def test_nothing_is_left_of_a_task_of_srun(tmp_path: Path, helper: str) -> None:
    entry = f"HPCRUN_ATTEMPT_DIR={tmp_path}"
    with tasks(tmp_path, 1, PROGRAM) as started, watched(entry) as scene:
        wait_for(lambda: scene.sleepers() == 3, 20, "the programs")
        kill(scene, helper)
        started[0].wait(20)
        wait_for(lambda: not scene.processes(), 8, "all processes to end")


def test_what_a_program_leaves_at_its_end_is_ended(tmp_path: Path) -> None:
    program = ["sh", "-c", f"({LEAVES.replace('wait', 'true')}) ; exit 0"]
    entry = f"HPCRUN_ATTEMPT_DIR={tmp_path / 'run/elements/0/attempts/0'}"
    with job(tmp_path, program) as running, watched(entry) as scene:
        assert running.end() == 0
        wait_for(lambda: not scene.processes(), 8, "all processes to end")


STRANGER = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from launch.processes import name_tree, sweep
os.environ.update(SLURM_JOB_ID="1", SLURM_STEP_ID="0")
tree = name_tree()
env = {**os.environ, "SLURM_JOB_ID": sys.argv[2], "SLURM_STEP_ID": sys.argv[3]}
process = subprocess.Popen(["sleep", "906"], env={name: env[name] for name in env if env[name]})
sweep(tree)
print(process.poll() is None)
process.kill()
process.wait()
"""


@pytest.mark.parametrize(
    ("job_id", "step_id", "stays"),
    [("1", "0", False), ("", "", False), ("2", "", True), ("1", "7", True)],
)
def test_what_another_job_or_step_of_slurm_has_started_is_left_to_slurm(
    job_id: str, step_id: str, stays: bool
) -> None:
    argv = [sys.executable, "-c", STRANGER, str(REPO / "hpcrun/in_job"), job_id, step_id]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout == f"{stays}\n"
