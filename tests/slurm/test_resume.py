"""A training that is interrupted goes through the very same losses as one that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, attempt, without

pytestmark = pytest.mark.slurm

EPOCHS, STEPS_OF_AN_EPOCH = 3, 15
SHAPE = ("--nodes", "2", "--nproc-per-node", "1")
INTERRUPTED = ("time limit", "unplugged")


def train(lab: Lab, name: str, *where: str, pause: float = 0.4) -> Path:
    """Submit the example: one rank on each of two nodes.

    The losses do not depend on what starts the ranks: srun does, since torchrun would import torch
    once more on each node. In test_restart.py a node of torchrun's is lost.
    """
    example = str(lab.person.checkout / "examples/digits_resume.py")
    args = ("--epochs", str(EPOCHS), "--pause", str(pause), "--tensorboard")
    return lab.submit(name, *where, *SHAPE, "--launcher", "srun", example, *args)


def after_an_epoch(folder: Path) -> Path:
    """Wait until there is a checkpoint, and the next epoch has begun; return the attempt's
    folder.
    """
    metrics = attempt(folder, 0) / "rank-0.metrics"

    def in_second_epoch() -> bool:
        return metrics.exists() and len(metrics.read_text().splitlines()) > STEPS_OF_AN_EPOCH + 2

    wait_for(in_second_epoch, 120, f"{folder.name} to be in its second epoch")
    return attempt(folder, 0)


def whole(lab: Lab) -> Ended:
    return lab.ended(
        train(lab, "whole", *SMALL, "-p", "gpu", "--nodelist", "a100-1,a100-2", pause=0)
    )


def time_limit(lab: Lab) -> Ended:
    folder = train(lab, "limited", *SMALL, "-p", "gpu", "--nodelist", "a100-1,a100-2")
    after_an_epoch(folder)
    lab.warn(folder)
    return lab.ended(folder)


def unplugged(lab: Lab) -> Ended:
    folder = train(lab, "unplugged", *without("v100-1", "v100-2", "l40s-1"))
    node = (after_an_epoch(folder) / "hosts").read_text().split()[1]
    lab.cluster.unplug(node)
    try:
        return lab.ended(folder, 180)
    finally:
        lab.cluster.plug(node)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "unplugged": unplugged,
    "time limit": time_limit,
    "whole": whole,
}


def losses(run: Ended) -> dict[int, set[float]]:
    """Step → every loss that any attempt had there."""
    found: dict[int, set[float]] = {}
    for number in range(run.starts):
        for line in (attempt(run.folder, number) / "rank-0.metrics").read_text().splitlines():
            metrics = json.loads(line)
            found.setdefault(metrics["step"], set()).add(metrics["loss"])
    return found


@pytest.mark.parametrize("how", INTERRUPTED)
def test_an_interrupted_training_has_the_very_same_losses(scenarios: Scenarios, how: str) -> None:
    run: Ended = scenarios[how].result()
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    assert losses(run) == losses(scenarios["whole"].result())


def test_one_that_is_told_to_stop_loses_no_step(scenarios: Scenarios) -> None:
    run: Ended = scenarios["time limit"].result()
    stopped = int(run.log(0).split("stopped after step ")[1].split(",")[0])
    assert f"attempt 2 goes on after step {stopped}," in run.log(1)
    steps = [
        len((attempt(run.folder, number) / "rank-0.metrics").read_text().splitlines())
        for number in (0, 1)
    ]
    assert steps == [stopped, EPOCHS * STEPS_OF_AN_EPOCH - stopped]


def test_one_that_loses_a_node_goes_on_from_its_last_epoch(scenarios: Scenarios) -> None:
    run: Ended = scenarios["unplugged"].result()
    assert "stopped" not in run.log(0)
    assert "a node failed" in run.status["before"]
    lost = (attempt(run.folder, 0) / "hosts").read_text().split()[1]
    assert lost not in (attempt(run.folder, 1) / "hosts").read_text().split()
    assert f"attempt 2 goes on after step {STEPS_OF_AN_EPOCH}, in epoch 2" in run.log(1)


def test_an_uninterrupted_training_has_a_loss_for_every_step(scenarios: Scenarios) -> None:
    run: Ended = scenarios["whole"].result()
    assert (run.state, run.starts) == ("COMPLETED", 1), run.account
    assert list(losses(run)) == list(range(1, EPOCHS * STEPS_OF_AN_EPOCH + 1))
    assert len(set.union(*losses(run).values())) > STEPS_OF_AN_EPOCH  # they do change
    for how in ("whole", *INTERRUPTED):
        folder = scenarios[how].result().folder / "elements/0/checkpoints"
        assert {path.name for path in folder.iterdir()} == {
            "last.pt",
            "best.pt",
            "final.pt",
            "tensorboard",
        }
