"""Training on more ranks gives the same model: batches and losses do not depend on the number of ranks."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.harness import REPO

ARGS = argparse.Namespace(seq_len=6, d_model=8, layers=1, heads=2, dropout=0.0, time_aware=True, mhc=True)


@pytest.fixture
def sasrec(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(REPO / "examples")
    monkeypatch.setenv("WORLD_SIZE", "1")
    return importlib.import_module("sasrec")


def test_every_rank_draws_the_same_wrong_answers_and_every_batch_others(sasrec: ModuleType) -> None:
    draws = [sasrec.draw_films(50, 1682, 0, epoch, step).tolist() for epoch in (1, 2) for step in (0, 1)]
    assert draws[0] == sasrec.draw_films(50, 1682, 0, 1, 0).tolist()
    assert len({tuple(drawn) for drawn in draws}) == 4
    assert all(1 <= film <= 1682 for drawn in draws for film in drawn)
    assert len(sasrec.draw_films(50, 1682, 2**40, 10**6, 3)) == 50


@pytest.mark.parametrize("size", [2, 4])
def test_the_gradients_of_ranks_together_are_those_of_one_rank(sasrec: ModuleType, size: int) -> None:
    import torch

    torch.manual_seed(0)
    model = sasrec.SASRec(ARGS, 1682)
    films = torch.randint(1, 1682 + 1, (8, 7))
    for row in range(8):
        films[row, 7 - row % 4 :] = sasrec.PADDING  # pieces are not equally long
    times = torch.arange(7).repeat(8, 1) * 3600
    drawn = sasrec.draw_films(16, 1682, 0, 1, 0)
    counted = int((films[:, 1:] != sasrec.PADDING).sum())

    def gradients(ranks: int) -> list[torch.Tensor]:
        """Return the mean over ranks, as DDP takes it; each has its rows of the batch."""
        model.zero_grad()
        for rank in range(ranks):
            own, seen = films[rank::ranks], times[rank::ranks]
            loss = model(own[:, :-1], seen[:, :-1], own[:, 1:], drawn) * ranks / counted
            (loss / ranks).backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    for together, alone in zip(gradients(size), gradients(1), strict=True):
        assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("size", [2, 4])
def test_a_row_has_the_same_draws_on_whichever_rank_it_is(sasrec: ModuleType, size: int) -> None:
    import torch

    kgat = importlib.import_module("kgat")

    def draws(rank: int, ranks: int) -> list[int]:
        at = SimpleNamespace(rank=rank, size=ranks, device=torch.device("cpu"))
        training = SimpleNamespace(ranks=at, epoch=2, steps_done=5)
        return list(kgat.Draws(training, 0)("film", 8 // ranks, 1000).tolist())

    whole = draws(0, 1)
    assert [draws(rank, size) for rank in range(size)] == [whole[rank::size] for rank in range(size)]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """What the examples share, in the only rank of a training."""
    import torch.distributed as dist

    monkeypatch.syspath_prepend(REPO / "examples")
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "HPCRUN_CHECKPOINT_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    training = importlib.import_module("training")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield training
    dist.destroy_process_group()


def trained(training: ModuleType, **more: Any) -> Any:
    """A training of one weight."""
    import torch

    torch.manual_seed(0)
    values = {"batch_size": 8, "lr": 0.1, "epochs": 9, "precision": "fp32", "warmup_steps": 0, "keep": 0, **more}
    args = argparse.Namespace(static_graph=False, compile=False, **values)
    return training.Training(torch.nn.Linear(1, 1), args, training.Ranks(0, 1, torch.device("cpu")))


def test_a_batch_in_parts_gives_the_gradient_of_the_whole(alone: ModuleType) -> None:
    import torch

    data = torch.arange(8.0)[:, None]
    weights = []
    for accumulate in (1, 2, 4):
        training = trained(alone, accumulate=accumulate)
        model = training.model
        losses = [
            float(training.step(lambda x, y, model=model: (model(x) - y).square().mean(), (data, 3 * data)))
            for _ in range(3)
        ]
        weights.append((training.model.module.weight.item(), losses))
    for weight, losses in weights[1:]:
        assert weight == pytest.approx(weights[0][0], rel=1e-5)
        assert losses == pytest.approx(weights[0][1], rel=1e-5)


def test_the_learning_rate_grows_to_its_value_and_old_checkpoints_go(alone: ModuleType, tmp_path: Path) -> None:
    import torch

    training = trained(alone, warmup_steps=4, keep=2)
    data = torch.ones(8, 1)
    rates = []
    for _ in range(6):
        training.step(lambda x: training.model(x).square().mean(), (data,))
        rates.append(training.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert (training.updates, training.skipped) == (6, 0)
    epoch = alone.Epoch(time_s=1.0, steps=6)
    for _ in range(4):
        training.end_epoch(epoch, 0.5)
    kept = sorted(name for name in os.listdir(tmp_path) if name.startswith("epoch"))
    assert kept == ["epoch-0003.pt", "epoch-0004.pt"]
    again = trained(alone, warmup_steps=4)
    again.resume()
    assert (again.epoch, again.updates) == (5, 6)


def test_an_overflow_skips_its_step_and_an_epoch_of_nothing_else_ends_the_training(alone: ModuleType) -> None:
    import torch

    training = trained(alone)
    training.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = training.model.module.weight.item()
    training.step(lambda x: (training.model(x) * float("inf")).mean(), (torch.ones(8, 1),))
    assert (training.model.module.weight.item(), training.updates, training.skipped) == (before, 0, 1)
    assert training.scaler.get_scale() == 2.0
    with pytest.raises(SystemExit, match="overflowed in float16"):
        training.end_epoch(alone.Epoch(time_s=1.0, steps=1), 0.5)
