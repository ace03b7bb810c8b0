"""Jobs of two nodes that hang: explain finds the rank in seconds, and does not disturb the job."""

from __future__ import annotations

import json
import time

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import Lab, attempt

pytestmark = pytest.mark.slurm

STEPS = 40
TRAIN = f"""
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from hpcrun_runtime import log_metrics

rank = int(os.environ["RANK"])

class Files(Dataset):
    def __len__(self):
        return {STEPS}

    def __getitem__(self, number):
        if rank == 1 and number >= 8:
            read_slowly()
        return torch.full((4,), float(number))

def read_slowly():
    while not Path("go").exists():
        time.sleep(0.1)

def train():
    weight = torch.zeros(4)
    for step, batch in enumerate(DataLoader(Files(), batch_size=1, num_workers=1)):
        gradient = (batch[0] - weight) * (1 + rank)
        dist.all_reduce(gradient)
        weight += 0.01 * gradient
        log_metrics(step=step, loss=float(gradient.square().sum()))

if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    dist.destroy_process_group()
"""
TWO_NODES = (
    "-P",
    "a100",
    "-N",
    "2",
    "--gpus",
    "0",
    "--cpus",
    "1",
    "--mem",
    "1G",
    "-t",
    "10m",
    "--launcher",
    "srun",
)


def line_of(code: str) -> int:
    return next(
        number for number, line in enumerate(TRAIN.splitlines(), 1) if line.strip().startswith(code)
    )


def test_the_rank_that_hangs_is_named_and_the_job_is_not_disturbed(
    as_researcher: Hpcrun, cluster: Cluster, subtests: pytest.Subtests
) -> None:
    lab = Lab(as_researcher, cluster)
    as_researcher.write("train.py", TRAIN)
    folder = lab.submit("hangs", *TWO_NODES, "train.py", requeue=0)
    files = [attempt(folder, 0) / f"rank-{rank}.metrics" for rank in (0, 1)]

    def hangs() -> bool:
        return (
            all(file.exists() for file in files)
            and time.time() - max(file.stat().st_mtime for file in files) > 21
        )

    wait_for(hangs, 180, "the job to hang")
    plain = as_researcher("explain", folder.name, check=True).stdout
    first, second = (attempt(folder, 0) / "hosts").read_text().split()
    assert plain.startswith("no rank has written for ")
    assert f"rank 1 on {second}: " in plain
    assert " s ago, step 7, loss " in plain
    assert plain.splitlines()[-1].endswith("--stacks")
    stacks = as_researcher.document("explain", folder.name, "--stacks", check=True)
    for words in (
        f"rank 0 on {first} waits in all_reduce (train.py:{line_of('dist.all_reduce')}); rank 1 on "
        f"{second} is in ",
        "is in `for step, batch in enumerate(DataLoader(Files(), ",
        f" (train.py:{line_of('for step, batch')}), whose DataLoader worker is in read_slowly "
        f"(train.py:{line_of('time.sleep')}), ",
    ):
        with subtests.test(words=words):
            assert words in stacks["summary"], stacks
    assert stacks["rank"] == 1
    assert stacks["node"] == second
    as_researcher.write("go", "")
    assert lab.ended(folder).state == "COMPLETED"
    weight, losses = 0.0, []
    for step in range(STEPS):
        gradient = 3 * (step - weight)
        weight += 0.01 * gradient
        losses.append(4 * gradient**2)
    lines = files[0].read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == pytest.approx(losses, rel=1e-4)


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
    found = person.document("explain", "--stacks", folder.name, check=True)
    assert f"no response from {second} within" in found["summary"]
    assert f"rank 0 on {first} is in `time.sleep(600)` (leaves.py:2)" in found["summary"]
