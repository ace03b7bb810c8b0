"""Jobs of two nodes that hang, each in its own way: explain finds the rank in seconds, and does not disturb the job."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import Lab, Scenarios, attempt, processes

pytestmark = pytest.mark.slurm

STEPS = 40
TRAIN = f"""
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from hpcrun_runtime import log_metrics

hangs, go = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ["RANK"])

class Files(Dataset):
    def __len__(self):
        return {STEPS}

    def __getitem__(self, number):
        if hangs == "loader" and rank == 1 and number >= 8:
            read_slowly()
        return torch.full((4,), float(number))

def read_slowly():
    while not go.exists():
        time.sleep(0.1)

def train():
    weight = torch.zeros(4)
    for step, batch in enumerate(DataLoader(Files(), batch_size=1, num_workers=int(hangs == "loader"))):
        gradient = (batch[0] - weight) * (1 + rank)
        dist.all_reduce(gradient)
        weight += 0.01 * gradient
        log_metrics(step=step, loss=float(gradient.square().sum()))
        time.sleep(0.1)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    dist.destroy_process_group()
"""
SCRIPTS = {"train.py": TRAIN}
TWO_NODES = ("-P", "a100", "-N", "2", "--gpus", "0", "--cpus", "1", "--mem", "1G", "-t", "10m", "--launcher", "srun")


@dataclass(frozen=True)
class Hang:
    """What explain said of a job that hung, and the job's losses when it had gone on to its end."""

    plain: str
    said: dict[str, Any]
    losses: list[float]
    state: str
    nodes: list[str]


def losses(folder: Path) -> list[float]:
    lines = (attempt(folder, 0) / "rank-0.metrics").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def submitted(lab: Lab, name: str, hangs: str, go: Path) -> Path:
    return lab.submit(name, *TWO_NODES, "train.py", hangs, str(go), requeue=0)


def explained(lab: Lab, folder: Path, go_on: Callable[[], None]) -> Hang:
    """Wait until a job hangs, explain it, and let it go on to its end."""

    def hangs() -> bool:
        files = [attempt(folder, 0) / f"rank-{rank}.metrics" for rank in (0, 1)]
        return all(file.exists() for file in files) and time.time() - max(file.stat().st_mtime for file in files) > 21

    wait_for(hangs, 180, f"{folder.name} to hang")
    plain = lab.person("explain", folder.name, check=True).stdout
    said = lab.person.document("explain", folder.name, "--stacks", check=True)
    go_on()
    state = lab.ended(folder).state
    nodes = (attempt(folder, 0) / "hosts").read_text().split()
    return Hang(plain, said, losses(folder), state, nodes)


def stopped(lab: Lab) -> Hang:
    folder = submitted(lab, "stopped", "no", lab.person.folder / "go-stopped")
    metrics = attempt(folder, 0) / "rank-1.metrics"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 4, 120, "a few steps")
    (pid,) = [pid for pid, name in processes(folder, of="HPCRUN_RANK=1").items() if name.startswith("python")]
    os.kill(pid, signal.SIGSTOP)
    return explained(lab, folder, lambda: os.kill(pid, signal.SIGCONT))


def loader(lab: Lab) -> Hang:
    go = lab.person.folder / "go-loader"
    return explained(lab, submitted(lab, "loader", "loader", go), go.touch)


def left_alone(lab: Lab) -> list[float]:
    """The losses of the same job that does not hang, and is not explained."""
    folder = submitted(lab, "alone", "no", lab.person.folder)
    assert lab.ended(folder, 180).state == "COMPLETED"
    return losses(folder)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {"alone": left_alone, "stopped": stopped, "loader": loader}


def line_of(code: str) -> int:
    return next(number for number, line in enumerate(TRAIN.splitlines(), 1) if line.strip().startswith(code))


WAITS = f"rank 0 on {{0}} waits in all_reduce (train.py:{line_of('dist.all_reduce')}); rank 1 on {{1}} "
FOR = line_of("for step, batch")
READS = line_of("time.sleep(0.1)")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("stopped", f"{WAITS}is stopped by a signal (state T) in `"),
        ("loader", f"{WAITS}is in `for step, batch in enumerate(DataLoader(Files(), "),
        ("loader", f" (train.py:{FOR}), whose DataLoader worker is in read_slowly (train.py:{READS}), "),
    ],
)
def test_the_rank_that_hangs_is_named(scenarios: Scenarios, name: str, sentence: str) -> None:
    hang: Hang = scenarios[name].result()
    assert sentence.format(*hang.nodes) in hang.said["summary"], hang.said
    assert (hang.said["rank"], hang.said["node"]) == (1, hang.nodes[1])


@pytest.mark.parametrize("name", ["stopped", "loader"])
def test_the_job_is_not_disturbed(scenarios: Scenarios, name: str) -> None:
    hang: Hang = scenarios[name].result()
    assert hang.state == "COMPLETED"
    assert hang.losses == scenarios["alone"].result()


def test_without_stacks_it_says_since_when_no_rank_writes(scenarios: Scenarios) -> None:
    hang: Hang = scenarios["loader"].result()
    assert hang.plain.startswith("no rank has written for ")
    assert f"rank 1 on {hang.nodes[1]}: " in hang.plain
    assert " s ago, step 7, loss " in hang.plain
    assert hang.plain.splitlines()[-1].endswith("--stacks")


def test_a_node_that_does_not_answer_is_named_and_the_others_are_explained(
    as_researcher: Hpcrun, cluster: Cluster
) -> None:
    person = as_researcher
    person.write("leaves.py", "import time\ntime.sleep(600)\n")
    folder = person.submit("-J", "away", *TWO_NODES, "leaves.py", check=True)
    logs = attempt(folder, 0)
    wait_for(lambda: all((logs / f"rank-{rank}.err").exists() for rank in (0, 1)), 60, "both ranks")
    first, second = (logs / "hosts").read_text().split()
    cluster.unplug(second)
    said = person.document("explain", "--stacks", folder.name, check=True)
    assert f"no response from {second} within" in said["summary"]
    assert f"rank 0 on {first} is in `time.sleep(600)` (leaves.py:2)" in said["summary"]
