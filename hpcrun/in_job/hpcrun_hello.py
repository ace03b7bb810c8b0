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
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

WITHIN_S = 120.0
"""How long the ranks wait for each other."""
_BY_SOCKETS = "sockets, since the job's Python has no torch"


def main() -> None:
    """Say where each rank runs, and add up the ranks' numbers.

    The exit status is 1 if the sum is wrong or this node cannot take part, else 0.
    """
    env = os.environ
    rank = int(env.get("RANK", env.get("NODE_RANK", "0")))
    world = int(env.get("WORLD_SIZE", env.get("NNODES", "1")))
    host = socket.gethostname().split(".")[0]
    row = {"rank": rank, "host": host, "gpus": _given_gpus()}
    problem = _problem(host, rank)
    if problem:  # at once: the ranks would wait for each other until their timeout
        sys.exit(f"hpcrun: {problem}")
    # its warnings, as of hosts without a reverse entry in DNS, mislead here
    env.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        result = _add_by_sockets(row, world)
    else:
        result = _add_by_torch(row, world)
    if rank == 0:
        print("\n".join(_report(result)), flush=True)
    sys.stdout.flush()
    # at its ordinary end Python sometimes aborts in a thread of gloo, after all is well
    # (pytorch#179291)
    os._exit(0 if result.total == sum(range(world)) else 1)


def _problem(host: str, rank: int) -> str:
    """Return what this node cannot do that every job needs, and what to do; empty if nothing."""
    folder = os.environ.get("HPCRUN_ATTEMPT_DIR")
    if folder:
        path = os.path.join(folder, f".hello-{rank}")
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("hello\n")
            os.remove(path)
        except OSError as error:
            what = f"{host} cannot write in the run's folder {folder}: {error.strerror}"
            return f"{what}; choose a runs folder that all nodes share"
    head = os.environ.get("MASTER_ADDR")
    if head:
        try:
            socket.getaddrinfo(head, None)
        except OSError:
            return f"{host} cannot resolve {head}, the host of rank 0; try --exclude={host}"
    return ""


@dataclass(frozen=True)
class Sum:
    """What became of the all-reduce.

    Attributes:
        way: how the numbers were added.
        total: the sum of the ranks' numbers.
        rows: what the ranks say of themselves: of all ranks on rank 0.
    """

    way: str
    total: int
    rows: list[dict[str, Any]]


def _report(result: Sum) -> list[str]:
    """Return what rank 0 prints: a line for each rank, and what became of the all-reduce."""
    rows = sorted(result.rows, key=lambda row: int(row["rank"]))
    width = max(len(row["host"]) for row in rows)
    lines = []
    for row in rows:
        gpus = _counted(row["gpus"], "GPU")
        lines.append(f"rank {row['rank']}  {row['host']:<{width}}  {gpus}")
    nodes = len({row["host"] for row in rows})
    who = f"{_counted(len(rows), 'rank')} on {_counted(nodes, 'node')}"
    expected = sum(range(len(rows)))
    if result.total == expected:
        lines.append(f"all-reduce of {who} works ({result.way})")
    else:
        wrong = f"the sum is {result.total}, not {expected}"
        lines.append(f"all-reduce of {who} is wrong: {wrong} ({result.way})")
    return lines


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _given_gpus() -> int:
    """Return how many GPUs the job was given on this node, as far as its variables tell."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("ROCR_VISIBLE_DEVICES") or ""
    return len([item for item in given.split(",") if item.strip()])


def _add_by_torch(row: dict[str, Any], world: int) -> Sum:
    """Add up the numbers of the ranks with torch, on GPUs if torch sees some."""
    import torch
    import torch.distributed as dist

    rank = row["rank"]
    os.environ.setdefault("RANK", str(rank))
    os.environ.setdefault("WORLD_SIZE", str(world))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = "gloo"
    device = torch.device("cpu")
    if gpus:
        backend = "nccl"
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % gpus)
        torch.cuda.set_device(device)
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
    return Sum(f"torch {torch.__version__}, {backend}, {took_ms:.1f} ms", total, everyone)


def _add_by_sockets(row: dict[str, Any], world: int) -> Sum:
    """Add up the numbers of the ranks on rank 0, to which the others connect.

    Raises:
        OSError: rank 0 does not listen in time.
    """
    if world == 1:
        return Sum(_BY_SOCKETS, row["rank"], [row])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if row["rank"] == 0:
        return _collect(row, world, address[1])
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
        return Sum(_BY_SOCKETS, int(stream.readline()), [row])


def _collect(row: dict[str, Any], world: int, port: int) -> Sum:
    """Add up the numbers of all other ranks, and tell each of them the sum."""
    everyone = [row]
    streams = []
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
    return Sum(_BY_SOCKETS, total, everyone)


if __name__ == "__main__":
    main()
