"""A test job: each rank says where it runs, and an all-reduce shows that ranks reach each other.

One file and the standard library: ``hpcrun init`` copies the file into the run's folder. With
torch, the all-reduce is torch's, on GPUs (NCCL) or on CPUs (gloo). Without torch, the ranks add
their numbers over plain sockets.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import timedelta
from typing import Any

WITHIN_S = 120.0
"""How long the ranks wait for each other."""


def main() -> None:
    """Say where each rank runs, and add up the ranks' numbers.

    The exit status is 1 if the sum is wrong, else 0.
    """
    env = os.environ
    rank, world = (
        int(env.get("RANK", env.get("NODE_RANK", "0"))),
        int(env.get("WORLD_SIZE", env.get("NNODES", "1"))),
    )
    row = {"rank": rank, "host": socket.gethostname().split(".")[0], "gpus": _given_gpus()}
    env.setdefault(
        "TORCH_CPP_LOG_LEVEL", "ERROR"
    )  # its warnings, as of hosts without a reverse entry in DNS, mislead here
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        way, total, everyone = _add_by_sockets(row, world)
    else:
        way, total, everyone = _add_by_torch(row, world)
    if rank == 0:
        print("\n".join(_report(way, total, everyone)), flush=True)
    sys.stdout.flush()
    # at its ordinary end Python sometimes aborts in a thread of gloo, after all is well
    # (pytorch#179291)
    os._exit(0 if total == sum(range(world)) else 1)


def _report(way: str, total: int, everyone: list[dict[str, Any]]) -> list[str]:
    """Return what rank 0 prints: a line for each rank, and what became of the all-reduce."""
    everyone.sort(key=lambda one: int(one["rank"]))
    width = max(len(one["host"]) for one in everyone)
    lines = [
        f"rank {one['rank']}  {one['host']:<{width}}  {_counted(one['gpus'], 'GPU')}"
        for one in everyone
    ]
    nodes = len({one["host"] for one in everyone})
    who = f"{_counted(len(everyone), 'rank')} on {_counted(nodes, 'node')}"
    expected = sum(range(len(everyone)))
    if total != expected:
        return [*lines, f"all-reduce of {who} is wrong: the sum is {total}, not {expected} ({way})"]
    return [*lines, f"all-reduce of {who} works ({way})"]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _given_gpus() -> int:
    """Return how many GPUs the job was given on this node, as far as its variables tell."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("ROCR_VISIBLE_DEVICES") or ""
    return len([item for item in given.split(",") if item.strip()])


def _add_by_torch(row: dict[str, Any], world: int) -> tuple[str, int, list[dict[str, Any]]]:
    import torch
    import torch.distributed as dist

    rank = row["rank"]
    os.environ.setdefault("RANK", str(rank))
    os.environ.setdefault("WORLD_SIZE", str(world))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank % gpus) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    backend = "nccl" if gpus else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=WITHIN_S))
    number = torch.tensor([rank], dtype=torch.int64, device=device)
    dist.all_reduce(number)
    total = int(number.item())
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, row)
    began = time.perf_counter()
    dist.all_reduce(number)
    number.item()
    took_ms = (time.perf_counter() - began) * 1000
    dist.barrier()
    if row["gpus"] and not gpus and rank == 0:
        print("torch does not see the GPUs of this job: the ranks use CPUs")
    return f"torch {torch.__version__}, {backend}, {took_ms:.1f} ms", total, everyone


def _add_by_sockets(row: dict[str, Any], world: int) -> tuple[str, int, list[dict[str, Any]]]:
    way = "sockets, since the job's Python has no torch"
    if world == 1:
        return way, row["rank"], [row]
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if row["rank"] == 0:
        return way, *_collect(row, world, address[1])
    deadline = time.monotonic() + WITHIN_S
    while True:  # rank 0 may not listen yet
        try:
            connection = socket.create_connection(address, timeout=WITHIN_S)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    with connection, connection.makefile("rw") as stream:
        stream.write(json.dumps(row) + "\n")
        stream.flush()
        return way, int(stream.readline()), [row]


def _collect(row: dict[str, Any], world: int, port: int) -> tuple[int, list[dict[str, Any]]]:
    """Add up the numbers of all other ranks, and tell each of them the sum."""
    everyone, streams = [row], []
    with socket.create_server(("", port)) as server:
        server.settimeout(WITHIN_S)
        while len(everyone) < world:
            stream = server.accept()[0].makefile("rw")
            everyone.append(json.loads(stream.readline()))
            streams.append(stream)
    total = sum(int(one["rank"]) for one in everyone)
    for stream in streams:
        stream.write(f"{total}\n")
        stream.close()
    return total, everyone


if __name__ == "__main__":
    main()
