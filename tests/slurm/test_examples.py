"""The training examples on a real Slurm, side by side: on two nodes with a rank each, the trees on one.

digits_ddp, digits_resume and text_classification are trained by other tests: of the main job, of what goes on, and of
this machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, attempt

pytestmark = pytest.mark.slurm

# by srun: torchrun would import torch once more on each node; docs/guides/3-multi-node.md trains by torchrun
TWO_NODES = (*SMALL, "-p", "gpu", "--nodes", "2", "--launcher", "srun", "--nproc-per-node", "1")
# threads that wait for each other do not compute meanwhile: on a busy machine they wait for most of the time
PATIENT_THREADS = ("--env", "OMP_WAIT_POLICY=passive")
ONE_NODE = ("-P", "cpu", "--gpus", "0", "--cpus", "2", "--mem", "1G", "--launcher", "python", *PATIENT_THREADS)

NETWORKS = {
    "sasrec": ("--d-model", "32", "--layers", "1", "--seq-len", "20", "--lr", "5e-3"),
    "kgat": ("--d-model", "16", "--layers", "1", "--min-facts", "20", "--epochs", "2"),
}
CHANCE = {"sasrec": 10 / 1682, "kgat": 20 / 1682}
NOTED = "step epoch_time samples_per_s loss accuracy data_time sync_time batch_size samples parameters"


def train(lab: Lab, name: str, where: tuple[str, ...], args: tuple[str, ...]) -> Ended:
    example = str(lab.person.checkout / "examples" / f"{name}.py")
    return lab.ended(lab.submit(name, *where, example, *args, requeue=0))


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    **{name: partial(train, name=name, where=TWO_NODES, args=args) for name, args in NETWORKS.items()},
    "tree_models": partial(train, name="tree_models", where=ONE_NODE, args=("--trees", "20", "--tensorboard")),
}


def epochs(run: Ended, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (attempt(run.folder, 0) / f"rank-{rank}.metrics").read_text().splitlines()]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_learns_on_two_nodes(scenarios: Scenarios, name: str) -> None:
    run: Ended = scenarios[name].result()
    assert run.state == "COMPLETED", run.table
    assert len(set(re.findall(r"[a-z0-9]+-\d", (attempt(run.folder, 0) / "hosts").read_text()))) == 2
    first, *_, last = epochs(run)
    assert last["step"] == len(epochs(run)) > 1
    assert last["loss"] < 0.95 * first["loss"]
    assert last["accuracy"] > 2 * CHANCE[name]
    # every rank notes its own time and the common result
    for own, other in zip(epochs(run, 0), epochs(run, 1), strict=True):
        assert set(own) >= set(NOTED.split())
        assert own["samples"] == other["samples"]
        assert own["samples"] % (own["batch_size"] // 2) == 0
        assert (own["step"], own["loss"], own["accuracy"]) == (other["step"], other["loss"], other["accuracy"])
        assert own["epoch_time"] != other["epoch_time"]


def test_the_trees_are_better_than_the_mean_and_use_the_cpus_of_the_job(scenarios: Scenarios) -> None:
    run: Ended = scenarios["tree_models"].result()
    assert run.state == "COMPLETED", run.table
    assert ", 2 threads\n" in run.log(0)
    off = re.findall(r"off by ([\d.]+) stars", run.log(0))
    mean, xgboost, lightgbm = (float(stars) for stars in off)
    assert max(xgboost, lightgbm) < 0.95 * mean
    saved = sorted(path.name for path in run.folder.glob("elements/0/checkpoints/*"))
    assert saved == ["lightgbm.txt", "tensorboard", "xgboost.json"]
