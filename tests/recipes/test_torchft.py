"""torchft: a lighthouse and two groups of ranks, each a job of its own. A group that is killed
comes back with the weights of the other, which continues without a group that does not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness import Hpcrun, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.recipes, pytest.mark.timeout(1200)]

GROUPS = (
    *("-P", "a100", "--gpus", "2", "--cpus", "2", "--mem", "2G", "--time", "20m"),
    *("-J", "groups", "--sweep", "group=0,1", "--sbatch", "exclusive"),
)
RETRY = ("--restarts", "1", "--retry-on-failure")
# group 1 kills one of its ranks ten steps after the groups have met, in each of its attempts
TRAIN = """
import os, signal, sys, time
import hpcrun_runtime, torch, torchft

rank, group = int(os.environ["RANK"]), sys.argv[1]
torch.manual_seed(int(group) + 10 * hpcrun_runtime.attempt())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)

def state():
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

def load(saved):
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])

manager = torchft.Manager(
    pg=torchft.ProcessGroupGloo(), state_dict=state, load_state_dict=load,
    min_replica_size=1, replica_id=f"group{group}",
)
train = torchft.DistributedDataParallel(manager, model)
optimizer_of_all = torchft.Optimizer(manager, optimizer)
met, step, last = [], 0, None
while step != last:
    optimizer_of_all.zero_grad()
    train(torch.full((1, 4), float(group))).sum().backward()
    optimizer_of_all.step()
    time.sleep(0.1)
    if manager.current_step() == step:
        continue  # another group was lost in this step, which is made again
    step, groups = manager.current_step(), manager.num_participants()
    print("step", step, "groups", groups, "weights", model.weight.sum().item(), flush=True)
    if met[-1:] != [groups] and (met or groups == 2):
        met.append(groups)
        if met == ([2] if group == "1" else [2, 1, 2, 1]):
            last = step + 10
if group == "1" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
print("met", met)
"""


class Step(NamedTuple):
    """What a rank prints after a step."""

    number: int
    groups: int
    weights: str


def steps(run: Path, group: int, attempt: int, rank: int) -> list[Step]:
    log = run / f"elements/{group}/attempts/{attempt}/rank-{rank}.out"
    found = re.findall(r"^step (\d+) groups (\d+) weights (\S+)$", log.read_text(), re.MULTILINE)
    return [Step(int(number), int(groups), weights) for number, groups, weights in found]


def test_a_group_comes_back_and_the_other_continues_without_it(person: Hpcrun) -> None:
    person.write("train.py", TRAIN)
    lighthouse = person.submit(
        *("-P", "cpu", "--cpus", "1", "--mem", "1G", "--time", "30m", "-J", "lighthouse"),
        *("torchft_lighthouse", "--min_replicas", "1", "--heartbeat_timeout_ms", "20000"),
        check=True,
    )
    log = lighthouse / "elements/0/attempts/0/rank-0.err"
    wait_for(lambda: log.exists() and "listening" in log.read_text(), 120, "the lighthouse")
    (node,) = person.run("squeue", "--me", "-hn", "lighthouse", "-o", "%N").stdout.split()
    address = f"TORCHFT_LIGHTHOUSE=http://{node}:29510"
    run = person.submit(*GROUPS, *RETRY, "--env", address, "train.py", "{group}")
    groups = person.ended(run.name, 900)["elements"]
    assert [group["state"] for group in groups] == ["COMPLETED", "FAILED"]
    person("cancel", "lighthouse", check=True)

    assert (run / "elements/0/attempts/0/rank-0.out").read_text().endswith("met [2, 1, 2, 1]\n")
    for rank in (0, 1):
        stayed = steps(run, 0, 0, rank)
        numbers = [step.number for step in stayed]
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]
        for attempt in (0, 1):
            together = {step for step in steps(run, 1, attempt, rank) if step.groups == 2}
            assert len(together) >= 10
            assert together <= {*stayed}
        back, *_ = steps(run, 1, 1, rank)
        assert back in stayed
        assert back.number > steps(run, 1, 0, rank)[-1].number
    cause = person("explain", f"{run.name}/1").stdout.splitlines()[0]
    assert "rank 1" in cause
    assert "SIGKILL" in cause
