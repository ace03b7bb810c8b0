"""Train on handwritten digits, and lose nothing when the job is interrupted.

    hpcrun submit --gpus 4 --nodes 2 --time 10m --requeue 3 examples/digits_resume.py --epochs 20

A run that was interrupted, at whatever step, goes through the very same losses as one that was not:
the checkpoint holds all that the next step depends on. What is needed for that is marked with
"resume:".
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from board import add_argument, open_board
from hpcrun_runtime import attempt, checkpoint_dir, log_metrics, should_stop
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=100, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds to wait after each step, to have it last"
    )
    add_argument(parser)
    return parser.parse_args()


def set_up() -> torch.device:
    """Join the other ranks; return this rank's device."""
    local_rank = int(os.environ["LOCAL_RANK"])
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    own_gpu = gpus >= int(os.environ["LOCAL_WORLD_SIZE"])
    if own_gpu:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if own_gpu else "gloo", timeout=timedelta(minutes=5))
    return torch.device("cuda", local_rank) if own_gpu else torch.device("cpu")


# --- the data: 1,500 digits to train on, each shifted and made noisy by chance -------------------


class Digits(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, numbers: slice, *, disturbed: bool) -> None:
        # sklearn.datasets.load_digits() reads this file, too; importing scikit-learn takes longer
        # than an epoch
        file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
        digits = np.loadtxt(str(file), delimiter=",", dtype=np.float32)[numbers]
        self.images = digits[:, :64].reshape(-1, 8, 8) / 16
        self.labels = digits[:, 64].astype(int)
        self.disturbed = disturbed

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        image = self.images[number]
        if self.disturbed:
            image = np.roll(image, random.choice((-1, 0, 1)), axis=1)
            image = image + np.random.normal(0, 0.1, image.shape).astype(np.float32)
        return torch.from_numpy(image.flatten()), int(self.labels[number])


class Sampler(DistributedSampler[Any]):
    """resume: an epoch's order depends on its number alone, so a part that is done can be
    left out.
    """

    done = 0  # samples of this rank

    def __iter__(self) -> Iterator[Any]:
        return islice(super().__iter__(), self.done, None)


# --- the checkpoint ------------------------------------------------------------------------------


def random_state() -> dict[str, Any]:
    """resume: dropout, noise and shifts go on with the numbers that would have come next."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if dist.get_backend() == "nccl" else None,
    }


def set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])


def save(path: Path, state: dict[str, Any]) -> None:
    """Write aside, then rename: a job that is killed in this moment leaves the last checkpoint
    whole.
    """
    aside = path.with_suffix(".tmp")
    with aside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


class Training:
    """Everything that changes from step to step."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args, self.device = args, device
        self.rank, world_size = dist.get_rank(), dist.get_world_size()
        self.board = open_board(args.tensorboard, self.rank)
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(args.seed + self.rank)  # each rank disturbs its digits in its own way
        self.batch_size = max(1, args.batch_size // world_size)
        train = Digits(slice(0, 1500), disturbed=True)
        self.sampler = Sampler(train, seed=args.seed)
        # resume: a loader without a generator of its own takes a number from torch's for each epoch
        # it begins
        generator = torch.Generator().manual_seed(args.seed)
        self.loader = DataLoader(
            train, batch_size=self.batch_size, sampler=self.sampler, generator=generator
        )
        network = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
        ).to(device)
        self.model = DistributedDataParallel(
            network, device_ids=[device.index] if device.index is not None else None
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        steps = args.epochs * len(self.loader)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, args.lr, total_steps=steps
        )
        self.epoch, self.steps_done, self.step, self.best = 1, 0, 0, 0.0

    def checkpoint(self, *names: str) -> None:
        """Save the state of all ranks in one file, so that no rank can be a step ahead of the
        others.
        """
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, random_state())
        if self.rank == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "random": states,
                "progress": (self.epoch, self.steps_done, self.step, self.best),
            }
            for name in names:
                save(checkpoint_dir() / f"{name}.pt", state)
        dist.barrier()

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        path = checkpoint_dir() / "last.pt"
        if not path.exists():
            return
        # our own file, with the states of random number generators, which are more than weights
        state = torch.load(path, map_location="cpu", weights_only=False)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.epoch, self.steps_done, self.step, self.best = state["progress"]
        states = state["random"][self.rank]
        set_random_state(
            {
                **states,
                "torch": states["torch"].cpu(),
                "cuda": None if states["cuda"] is None else states["cuda"].cpu(),
            }
        )
        self.say(f"attempt {attempt() + 1} goes on after step {self.step}, in epoch {self.epoch}")

    def train_epoch(self) -> bool:
        """Train for the rest of this epoch; return whether the job is about to be ended."""
        self.model.train()
        self.sampler.set_epoch(self.epoch)
        self.sampler.done = self.steps_done * self.batch_size
        for pixels, labels in self.loader:
            loss = nn.functional.cross_entropy(
                self.model(pixels.to(self.device)), labels.to(self.device)
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.step += 1
            self.steps_done += 1
            # resume: the ranks hear of a stop at different moments, and agree on the step after
            # which they stop
            together = torch.tensor(
                [loss.item(), float(should_stop())], dtype=torch.float64, device=self.device
            )
            dist.all_reduce(together)
            if self.rank == 0:
                log_metrics(
                    step=self.step,
                    loss=together[0] / dist.get_world_size(),
                    lr=self.schedule.get_last_lr()[0],
                )
            time.sleep(self.args.pause)
            if together[1]:
                return True
        return False

    def accuracy(self) -> float:
        """Return the share of the other digits that the model reads right; every rank computes the
        same.
        """
        self.model.eval()
        test = Digits(slice(1500, None), disturbed=False)
        pixels = torch.from_numpy(test.images.reshape(len(test), -1)).to(self.device)
        with torch.no_grad():
            answers = self.model.module(pixels).argmax(1).cpu().numpy()
        return float((answers == test.labels).mean())

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def run(self) -> None:
        """Train to the end, or until the job is about to be ended."""
        self.resume()
        while self.epoch <= self.args.epochs:
            if self.train_epoch():
                self.checkpoint("last")
                self.say(f"stopped after step {self.step}, in epoch {self.epoch}")
                return
            accuracy = self.accuracy()
            is_best = accuracy > self.best
            self.best = max(self.best, accuracy)
            self.say(f"epoch {self.epoch}: test accuracy {accuracy:.1%}, best {self.best:.1%}")
            self.board(self.epoch, accuracy=accuracy)
            self.epoch, self.steps_done = self.epoch + 1, 0
            self.checkpoint("last", *(["best"] if is_best else []))
        self.checkpoint("final")
        self.say(f"done after step {self.step}")


def main() -> None:
    args = parse_args()
    training = Training(args, set_up())
    training.run()
    dist.barrier()
    # the model holds the process group; gloo's threads must end while Python still runs
    del training
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
