"""What the training examples share: joining the ranks, mixed precision, checkpoints, and the
numbers of an epoch.

To start from one of them, copy it and this file. The loop itself stands in each example::

    training.resume()
    while training.goes_on():
        epoch = training.train_epoch(loader, loss_of)
        if epoch:
            training.end_epoch(epoch, score)
    training.leave()
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from board import add_argument, open_board
from hpcrun_runtime import checkpoint_dir, log_metrics, should_stop  # every job of hpcrun finds it
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ASK_EVERY = 20
"""Steps between two agreements on whether to stop: each is one more message between all ranks."""
PROBES = 5
"""Steps of each kind from which the cost of synchronisation is taken."""

Batch = tuple[torch.Tensor, ...]
Loss = Callable[..., torch.Tensor]


def add_arguments(parser: argparse.ArgumentParser, *, batch_size: int, lr: float) -> None:
    """Add what every training has, with an example's own defaults."""
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=batch_size, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument(
        "--warmup-steps", type=int, default=0, help="steps in which the learning rate grows to --lr"
    )
    parser.add_argument(
        "--keep", type=int, default=0, help="checkpoints of the last epochs that are kept"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--workers", type=int, default=0, help="processes of each rank that prepare batches"
    )
    parser.add_argument(
        "--backend", choices=("nccl", "gloo"), help="default: nccl where each rank has a GPU"
    )
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="auto")
    parser.add_argument(
        "--static-graph", action="store_true", help="DDP plans once: every step is alike"
    )
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile: minutes at first, then faster steps"
    )
    add_argument(parser)


# --- the ranks -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ranks:
    """This rank among all."""

    rank: int
    size: int
    device: torch.device


def join(args: argparse.Namespace, *, patience: timedelta = timedelta(minutes=5)) -> Ranks:
    """Join the other ranks, as torchrun or hpcrun has described them in the environment.

    Args:
        patience: how long a rank waits for the others in one collective before it gives up.
    """
    if "LOCAL_RANK" not in os.environ:
        raise SystemExit(
            "no ranks: start it with hpcrun submit --launcher torchrun, or with torchrun "
            "--nproc-per-node 2"
        )
    share_of(args.batch_size)  # says so before anybody waits
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    own_gpu = gpus >= local_size
    if args.backend == "nccl" and not own_gpu:
        raise SystemExit(
            f"--backend nccl needs a GPU for each rank: this node has {gpus} for {local_size} ranks"
        )
    if own_gpu:
        torch.cuda.set_device(local_rank)
    dist.init_process_group(args.backend or ("nccl" if own_gpu else "gloo"), timeout=patience)
    # for dropout and drawing; DDP hands on the first rank's weights
    torch.manual_seed(args.seed + dist.get_rank())
    device = torch.device("cuda", local_rank) if own_gpu else torch.device("cpu")
    return Ranks(dist.get_rank(), dist.get_world_size(), device)


def share_of(batch_size: int) -> int:
    """Return each rank's part of the batch; the uneven division of a batch would train another
    model on more GPUs.
    """
    size = int(os.environ["WORLD_SIZE"])
    if batch_size < size or batch_size % size:
        lower = batch_size // size * size
        near = f"{lower} or {lower + size}" if lower > 0 else str(size)
        raise SystemExit(
            f"--batch-size {batch_size} cannot be shared evenly by {size} ranks: take {near}"
        )
    return batch_size // size


def sum_over_ranks(device: torch.device, *values: float | torch.Tensor) -> list[float]:
    """Return each value's sum over all ranks."""
    total = torch.stack(
        [torch.as_tensor(value, dtype=torch.float64, device=device) for value in values]
    )
    dist.all_reduce(total)
    return [float(value) for value in total]


# --- the data ------------------------------------------------------------------------------------


class RankSampler(DistributedSampler[Any]):
    """This rank's part of an epoch, shuffled together with the others', less what was done before
    an interruption.
    """

    done = 0  # samples of this rank

    def __iter__(self) -> Iterator[Any]:
        return islice(super().__iter__(), self.done, None)


def make_loader(
    data: Dataset[Any],
    args: argparse.Namespace,
    device: torch.device,
    sampler: RankSampler | None = None,
) -> DataLoader[Batch]:
    """Return the batches of this rank; samples that do not fill a batch of all ranks wait for
    another epoch.
    """
    loader = DataLoader(
        data,
        batch_size=share_of(args.batch_size),
        sampler=sampler or RankSampler(data, seed=args.seed, drop_last=True),
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        pin_memory=device.type == "cuda",
    )
    if not len(loader):
        raise SystemExit(
            f"--batch-size {args.batch_size} is more than the data has: {len(data)} samples"  # type: ignore[arg-type]
        )
    return loader


# --- the training --------------------------------------------------------------------------------


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


@dataclass
class Epoch:
    """What one epoch took on this rank: seconds, and seconds of them in which it waited for
    batches.
    """

    time_s: float = 0.0
    data_s: float = 0.0
    steps: int = 0
    loss: float = 0.0

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Hand on the batches, noting how long each was waited for."""
        begun_s = time.perf_counter()
        for batch in loader:
            self.data_s += time.perf_counter() - begun_s
            self.steps += 1
            yield batch
            begun_s = time.perf_counter()


class Training:
    """Everything that changes from step to step.

    Args:
        find_unused: whether some steps leave parameters out, which DDP then looks for in each.
    """

    def __init__(
        self, model: nn.Module, args: argparse.Namespace, ranks: Ranks, *, find_unused: bool = False
    ) -> None:
        self.args, self.ranks, self.device = args, ranks, ranks.device
        self.folder = checkpoint_dir()
        self.board = open_board(getattr(args, "tensorboard", False), ranks.rank)
        self.dtype = precision(args.precision, self.device)
        self.model = DistributedDataParallel(
            model.to(self.device),
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            find_unused_parameters=find_unused,
            static_graph=args.static_graph,
        )
        if args.compile:
            self.model.compile()  # in place, so that checkpoints keep the parameters' names
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype is torch.float16)
        self.accumulate: int = getattr(args, "accumulate", 1)
        self.is_planned = not args.static_graph
        self.epoch, self.steps_done, self.best = 1, 0, float("-inf")
        self.updates = self.skipped = 0
        self.optimizer.register_step_post_hook(lambda *_: self.count_update())
        self.stopping = False
        self.sync_s_per_step: float | None = None

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def say(self, text: str) -> None:
        if self.ranks.rank == 0:
            print(text, flush=True)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32)

    # --- from epoch to epoch

    def goes_on(self) -> bool:
        return self.epoch <= self.args.epochs and not self.stopping

    def train_epoch(self, loader: DataLoader[Batch], *losses: Loss) -> Epoch | None:
        """Train for the rest of this epoch; return None where the job is about to be ended before.

        Args:
            losses: each takes the tensors of a batch, on this rank's device, and is given a step of
                its own.
        """
        sampler = loader.sampler
        assert isinstance(sampler, RankSampler) and loader.batch_size
        sampler.set_epoch(self.epoch)
        sampler.done = self.steps_done * loader.batch_size
        self.model.train()
        epoch, total = Epoch(), torch.zeros((), device=self.device)
        started = time.perf_counter()
        for parts in epoch.batches(loader):
            batch = tuple(part.to(self.device, non_blocking=True) for part in parts)
            for loss_of in losses:
                total += self.step(loss_of, batch)
            self.steps_done += 1
            if (
                epoch.steps % ASK_EVERY == 0
                and self.steps_done < len(loader)
                and self.stop_is_agreed()
            ):
                self.checkpoint("last")
                self.say(f"stopped in epoch {self.epoch}, after step {self.steps_done} of it")
                self.stopping = True
                return None
        self.wait_for_device()
        epoch.time_s = time.perf_counter() - started
        if self.sync_s_per_step is None and epoch.steps:
            self.sync_s_per_step = sum(self.measure_sync(loss_of, batch) for loss_of in losses)
        (loss,) = sum_over_ranks(self.device, total)
        epoch.loss = loss / max(1, epoch.steps) / self.ranks.size
        return epoch

    def step(self, loss_of: Loss, batch: Batch) -> torch.Tensor:
        """Take one step; return its loss, without waiting for the GPU to know it."""
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        parts = list(zip(*(tensor.chunk(self.accumulate) for tensor in batch), strict=True))
        for number, part in enumerate(parts, 1):
            # the gradients of all parts add up on this rank; the ranks exchange them once, with the
            # last. With a static graph DDP plans in its first backward pass, which must exchange:
            # the mean of a mean is the same one
            is_last = number == len(parts) or not self.is_planned
            with nullcontext() if is_last else self.model.no_sync():
                with self.autocast():
                    loss = loss_of(*part) / len(parts)
                self.scaler.scale(loss).backward()
            self.is_planned = True
            total += loss.detach()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * min(
                1.0, (self.updates + 1) / max(1, self.args.warmup_steps)
            )
        self.skipped += 1  # until count_update says otherwise
        # not if a gradient has overflowed in float16; update() then scales less
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return total

    def count_update(self) -> None:
        """Count a step that changed the weights."""
        self.updates, self.skipped = self.updates + 1, self.skipped - 1

    def end_epoch(self, epoch: Epoch, score: float, name: str = "accuracy", **more: float) -> None:
        """Say and note what an epoch took and what came of it, and save a checkpoint.

        Args:
            score: of the validation, 0 to 1; the same on every rank.
            more: further numbers to note.
        """
        size, rank_batch = self.ranks.size, share_of(self.args.batch_size)
        sync_s = (self.sync_s_per_step or 0.0) * epoch.steps
        speed = epoch.steps * rank_batch * size / epoch.time_s
        self.say(
            f"epoch {self.epoch}: loss {epoch.loss:.4f}, {name} {score:.1%}, {speed:.0f} "
            "samples/s; "
            f"{epoch.time_s:.2f} s, of which {epoch.data_s:.2f} s for data and {sync_s:.2f} s for "
            "synchronisation"
        )
        results = {
            "epoch_time": epoch.time_s,
            "samples_per_s": speed,
            "loss": epoch.loss,
            "accuracy": score,
            **more,
        }
        log_metrics(
            step=self.epoch,
            data_time=epoch.data_s,
            sync_time=sync_s,
            batch_size=self.args.batch_size,
            samples=epoch.steps * rank_batch,
            parameters=self.parameters,
            **({"skipped_steps": float(self.skipped)} if self.scaler.is_enabled() else {}),
            **results,
        )
        self.board(self.epoch, **results)
        if self.skipped and self.skipped >= epoch.steps:
            raise SystemExit(
                "every step of an epoch overflowed in float16: use --precision bf16 or fp32"
            )
        self.skipped = 0
        is_best, self.best = score > self.best, max(score, self.best)
        kept = [f"epoch-{self.epoch:04}"] if self.args.keep > 0 else []
        self.epoch, self.steps_done = self.epoch + 1, 0
        self.checkpoint(
            "last",
            *kept,
            *(["best"] if is_best else []),
            *(["final"] if self.epoch > self.args.epochs else []),
        )
        self.stopping = self.stop_is_agreed()

    # --- being ended, and going on

    def stop_is_agreed(self) -> bool:
        """Return whether any rank has heard that the job is about to be ended: they hear of it at
        different moments.
        """
        return sum_over_ranks(self.device, float(should_stop())) != [0.0]

    def checkpoint(self, *names: str) -> None:
        if self.ranks.rank == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "updates": self.updates,
                "progress": (self.epoch, self.steps_done, self.best, self.args.batch_size),
            }
            for name in names:
                save(self.folder / f"{name}.pt", state)
            for old in (
                sorted(self.folder.glob("epoch-*.pt"))[: -self.args.keep]
                if self.args.keep > 0
                else ()
            ):
                old.unlink()
        dist.barrier()  # nobody reads, or ends the job, before it is written

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one: every rank reads it, so all nodes must
        see it.
        """
        path = self.folder / "last.pt"
        if not path.exists():
            return
        # tensors and numbers alone
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.updates = state.get("updates", 0)
        self.epoch, self.steps_done, self.best, batch_size = state["progress"]
        if batch_size != self.args.batch_size:
            self.steps_done = 0  # steps of another length: the epoch begins anew
        self.say(f"goes on in epoch {self.epoch}, after step {self.steps_done} of it")

    def load_weights(self, path: Path) -> None:
        """Load the model of a checkpoint, and nothing else: every rank reads it.

        Raises:
            SystemExit: it cannot be read, or it is of another model.
        """
        try:
            self.model.module.load_state_dict(
                torch.load(path, map_location=self.device, weights_only=True)["model"]
            )
        except OSError as error:
            raise SystemExit(f"{path}: {error.strerror}") from None
        except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise SystemExit(
                f"{path} is no checkpoint of this model; same options, same data? {reason}"
            ) from None

    def leave(self) -> None:
        """End the backend's threads while Python still runs: the model holds the process group, and
        gloo's threads that are left at the end of Python abort it (pytorch/pytorch#179291)."""
        dist.barrier()
        del self.model, self.optimizer
        gc.collect()
        dist.destroy_process_group()

    # --- measuring

    def wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def measure_sync(self, loss_of: Loss, batch: Batch) -> float:
        """Return the seconds that synchronising the gradients adds to a step of this rank.

        The same batch goes forward and backward with DDP's all-reduce and without (``no_sync``), in
        turns; the difference of the medians counts. What is hidden behind the backward pass costs
        nothing, as in training; waiting for slower ranks counts. The weights stay as they are.
        """
        if self.ranks.size == 1:
            return 0.0

        def one() -> float:
            self.optimizer.zero_grad()
            self.wait_for_device()
            dist.barrier()
            started = time.perf_counter()
            with self.autocast():
                loss = loss_of(*batch)
            loss.backward()
            self.wait_for_device()
            return time.perf_counter() - started

        synchronised, alone = [], []
        for _ in range(PROBES):
            with self.model.no_sync():
                alone.append(one())
            # the last, for DDP counts what was used since it last synchronised as used
            synchronised.append(one())
        self.optimizer.zero_grad()
        return max(0.0, statistics.median(synchronised) - statistics.median(alone))


def precision(choice: str, device: torch.device) -> torch.dtype:
    """Return what matrices are multiplied in: bfloat16 where the card has it, float16 on older
    ones.
    """
    if choice == "auto" and device.type == "cuda":
        choice = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(choice, torch.float32)
