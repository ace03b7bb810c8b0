"""Train a small network on scikit-learn's handwritten digits with DistributedDataParallel.

    hpcrun submit --gpus 4 --nodes 2 examples/digits_ddp.py --epochs 3

torchrun, or srun with --launcher srun, starts one process per rank. NCCL needs a GPU for each rank
of its own; anywhere else this runs on the CPU with gloo.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import time
from datetime import timedelta
from importlib.metadata import distribution

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tensorboard", action="store_true", help="write the numbers of each epoch for TensorBoard"
    )
    return parser.parse_args()


def set_up() -> tuple[int, int, torch.device]:
    """Join the other ranks; return rank, world size and device."""
    local_rank = int(os.environ["LOCAL_RANK"])
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    own_gpu = gpus >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local_rank) if own_gpu else torch.device("cpu")
    if own_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if own_gpu else "gloo", timeout=timedelta(minutes=5))
    return dist.get_rank(), dist.get_world_size(), device


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return 1,500 digits to train on and 297 to test with: 8 × 8 pixels, scaled to 0..1."""
    # sklearn.datasets.load_digits() reads this file, too; importing scikit-learn takes longer than
    # this training
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    digits = torch.from_numpy(np.loadtxt(str(file), delimiter=",", dtype=np.float32))
    pixels, labels = digits[:, :64] / 16, digits[:, 64].long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1500], order[1500:]
    return TensorDataset(pixels[train], labels[train]), TensorDataset(pixels[test], labels[test])


def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """Return the share of digits that the model reads right, each rank testing its part."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    pixels, labels = (part[rank::world_size].to(device) for part in data.tensors)
    with torch.no_grad():
        right = (model(pixels).argmax(1) == labels).sum()
    counts = torch.stack([right, torch.tensor(len(labels), device=device)]).double()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def train_epoch(
    model: nn.Module,
    loader: DataLoader[tuple[torch.Tensor, ...]],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    """Train once over this rank's part of the data; return the mean loss over all ranks."""
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for pixels, labels in loader:
        loss = nn.functional.cross_entropy(model(pixels.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor(
            [loss.item() * len(labels), len(labels)], dtype=torch.float64, device=device
        )
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main() -> None:
    args = parse_args()
    rank, world_size, device = set_up()
    torch.manual_seed(args.seed)
    hosts: list[str | None] = [None] * world_size
    dist.all_gather_object(hosts, socket.gethostname())
    if rank == 0:
        print(f"{world_size} ranks, backend {dist.get_backend()}")
        for number, host in enumerate(hosts):
            print(f"rank {number} on {host}")

    train, test = load_data()
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        train, seed=args.seed
    )
    loader = DataLoader(
        train,
        batch_size=max(1, args.batch_size // world_size),
        sampler=sampler,
        pin_memory=device.type == "cuda",
    )
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(
        network, device_ids=[device.index] if device.type == "cuda" else None
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    write = None
    if args.tensorboard:
        from board import open_board  # alone, this file needs no other

        write = open_board(True, rank)

    for epoch in range(1, args.epochs + 1):
        started = time.perf_counter()
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, device)
        seconds = time.perf_counter() - started
        test_accuracy = accuracy(model, test, device)
        if rank == 0:
            speed = len(train) / seconds
            print(
                f"epoch {epoch}: loss {loss:.4f}, test accuracy {test_accuracy:.1%}, {speed:.0f} "
                "samples/s"
            )
        if write:
            write(epoch, loss=loss, accuracy=test_accuracy)

    # Ends the backend's threads while Python still runs: the model holds the process group, and
    # gloo's threads that are left at the end of Python abort it (pytorch/pytorch#179291).
    dist.barrier()
    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
