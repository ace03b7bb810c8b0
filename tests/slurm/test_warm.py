"""--warm on a real Slurm: all nodes begin with the same compiled files, or none does."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.launch import runtime
from tests.slurm.lab import attempt, processes, without, words_of

pytestmark = pytest.mark.slurm

USED = ("a100-1", "a100-2")
SHAPE = (
    *without(*USED),
    "--nodes",
    "2",
    "--launcher",
    "srun",
    "--nproc-per-node",
    "2",
    "--cpus",
    "2",
    "--warm",
)
# a compiler that finds its file, or makes it, under a name of its own as Inductor does
COMPILE = """
import os, pathlib, sys, time
own = os.environ["HPCRUN_CHECKPOINT_DIR"]  # what a compiler would choose itself
place = os.environ.get("TORCHINDUCTOR_CACHE_DIR", own)
made = pathlib.Path(place, "fxgraph/ab/key", str(os.getpid()))
is_first = os.environ["LOCAL_RANK"] == "0"
print("warm" if any(made.parent.glob("*")) else "cold", made, flush=True)
if is_first and not any(made.parent.glob("*")):
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(os.urandom(int(os.environ.get("SIZE", "1000"))))
    os.utime(made, (1e9, 1e9))
# as in a training no rank ends before all have begun: the last of a node removes its folder
attempt = os.environ["HPCRUN_ATTEMPT"]
pathlib.Path(own, f"here-{attempt}-{os.environ['RANK']}").touch()
while len(list(pathlib.Path(own).glob(f"here-{attempt}-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)
"""
FAIL_FIRST = """
print("step 12", flush=True)
sys.exit(os.environ["HPCRUN_ATTEMPT"] == "0" and os.environ["RANK"] == "3")
"""


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    as_researcher.write("train.py", COMPILE)
    return as_researcher


def starts(folder: Path, number: int = 0) -> list[str]:
    """How the first rank of each node has started: warm or cold."""
    outs = [attempt(folder, number) / f"rank-{rank}.out" for rank in (0, 2)]
    return [out.read_text().split()[0] for out in outs]


def run(person: Hpcrun, *options: str, state: str = "COMPLETED", **more: Any) -> Path:
    """Run a job on two nodes to its end."""
    folder = person.submit(*SHAPE, *options, "train.py", **more)
    status = person.ended(folder.name, 60)
    assert status["state"] == state, (folder / "batch.log").read_text()
    return folder


def left_on_disks(folder: Path) -> list[Path]:
    """The folders of compiled files that a run has left on the nodes."""
    job_id = json.loads((attempt(folder, 0) / "start").read_text())["job_id"]
    return list(Path("/tmp").glob(f"hpcrun-compiled-{job_id}-*"))


def test_the_next_job_starts_warm_on_all_nodes(person: Hpcrun) -> None:
    cold = run(person)
    warm = run(person)
    assert starts(cold) == ["cold", "cold"]
    assert starts(warm) == ["warm", "warm"]
    log = (warm / "batch.log").read_text()
    assert f"--warm: 1 compiled file of run {cold.name} on 2 nodes, unpacked in " in log
    wait_for(lambda: not left_on_disks(warm), 20, "the nodes to remove their folders")


def test_torchrun_starts_warm_too(person: Hpcrun) -> None:
    run(person)
    folder = run(person, "--launcher", "torchrun")
    assert starts(folder) == ["warm", "warm"]


def test_status_and_metrics_say_how_a_job_started(person: Hpcrun) -> None:
    cold = run(person)
    warm = run(person)
    of_cold = person("status", "-v", cold.name, check=True).stdout
    of_warm = person("status", "-v", warm.name, check=True).stdout
    metrics = person("metrics", warm.name).stderr
    assert "1 new file on each of 2 nodes in the first" in " ".join(of_cold.split())
    assert "the next run starts warm" in " ".join(of_cold.split())
    assert f"1 compiled file of run {cold.name}; nothing compiled" in " ".join(of_warm.split())
    assert "warm start: 1 compiled file" in metrics


def test_a_node_that_cannot_unpack_makes_all_start_cold(cluster: Cluster, person: Hpcrun) -> None:
    own_disks(cluster)
    there = ("--env", "HPCRUN_STAGE_DIR=/mnt")
    run(person, *there, "--env", "SIZE=3000000")
    disk = Path(f"/proc/{slurmd_pid(cluster, USED[1])}/root/mnt")
    room = os.statvfs(disk)
    with open(disk / "full", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - 68_000_000)
    folder = run(person, *there)
    log = (folder / "batch.log").read_text()
    assert starts(folder) == ["cold", "cold"], log
    assert f"--warm: this attempt starts cold: {USED[1]}: /mnt has 68 MB free, 70 MB are" in log


def test_a_node_that_is_killed_while_it_unpacks(person: Hpcrun) -> None:
    run(person, "--env", "SIZE=60000000")
    folder = person.submit(*SHAPE, "train.py")
    until = time.monotonic() + 60
    pids: list[int] = []
    while not pids:  # without a pause: it takes half a second
        assert time.monotonic() < until
        pids = unpacking(folder)
    os.kill(pids[0], signal.SIGKILL)
    assert person.ended(folder.name, 60)["state"] == "COMPLETED"
    assert starts(folder) == ["cold", "cold"]


def unpacking(folder: Path) -> list[int]:
    """The processes of a run that unpack on a node."""
    pids = []
    for pid in processes(folder):
        words = words_of(pid)
        if "--node" in words and "srun" not in words[0]:
            pids.append(pid)
    return pids


def test_a_disk_from_which_no_program_can_be_loaded(cluster: Cluster, person: Hpcrun) -> None:
    own_disks(cluster)
    run(person, "--env", "HPCRUN_STAGE_DIR=/mnt")
    pid = slurmd_pid(cluster, USED[1])
    remount = ["mount", "-o", "remount,noexec", "/mnt"]
    subprocess.run(["nsenter", f"--target={pid}", "--mount", "--root", *remount], check=True)
    folder = run(person, "--env", "HPCRUN_STAGE_DIR=/mnt")
    log = (folder / "batch.log").read_text()
    assert starts(folder) == ["cold", "cold"], log
    assert f"{USED[1]}: programs cannot be loaded from /mnt" in log


@pytest.mark.parametrize(
    "again", [("--restarts", "1"), ("--requeue", "1")], ids=["restart", "requeue"]
)
def test_the_next_attempt_starts_warm(person: Hpcrun, again: tuple[str, ...]) -> None:
    person.write("train.py", COMPILE + FAIL_FIRST)
    folder = run(person, *again, "--retry-on-failure")
    assert starts(folder, 0) == ["cold", "cold"]
    assert starts(folder, 1) == ["warm", "warm"], (folder / "batch.log").read_text()


def test_a_container_starts_warm(person: Hpcrun) -> None:
    program = person.write("runtime.py", Path(runtime.__file__).read_text())
    person.program("image/bin/python3", f'exec {person.python_word} "$@"')
    line = shlex.join([str(Path(sys.executable).resolve()), str(program)])
    person.program("bin/apptainer", f'exec {line} "$@"')
    env = {"PATH": f"{person.folder}/bin:{person.environ['PATH']}"}
    run(person, "--container", "image", env=env)
    folder = run(person, "--container", "image", env=env)
    assert starts(folder) == ["warm", "warm"]


def test_what_a_cancelled_job_has_left_on_its_nodes(person: Hpcrun) -> None:
    person.write("train.py", f"{COMPILE}\ntime.sleep(600)\n")
    folder = person.submit(*SHAPE, "train.py")
    out = attempt(folder, 0) / "rank-2.out"
    wait_for(lambda: out.exists() and out.read_text(), 60, "the ranks")
    person("cancel", folder.name, check=True)
    person.ended(folder.name, 60)
    wait_for(lambda: not left_on_disks(folder), 40, "the nodes to remove their folders")


def slurmd_pid(cluster: Cluster, node: str) -> str:
    return (cluster.root / f"run/slurmd-{node}.pid").read_text().strip()


def own_disks(cluster: Cluster) -> None:
    """Give each node a disk of its own in /mnt."""
    for node in USED:
        cluster.apart(node)
