"""Four ranks that train and hang, for the reason in the argument. Each dumps where it stood."""

import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

CASE, RANK = sys.argv[1], int(os.environ["RANK"])
TIMEOUT, LATE_S = timedelta(seconds=4), 6


def dump() -> None:
    torchs: Any = torch._C
    trace = torchs._distributed_c10d._dump_fr_trace()
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(RANK), "wb") as file:
        file.write(trace.encode() if isinstance(trace, str) else trace)


def terminated(*_: Any) -> None:
    dump()
    os._exit(1)


def make_mesh() -> dict[str, Any]:
    """Two by two ranks: what init_device_mesh makes, with a timeout."""
    tensor = [dist.new_group(ranks, TIMEOUT, group_desc="mesh_tp") for ranks in ([0, 1], [2, 3])]
    data = [dist.new_group(ranks, TIMEOUT, group_desc="mesh_dp") for ranks in ([0, 2], [1, 3])]
    return {"tp": tensor[RANK // 2], "dp": data[RANK % 2]}


def step(batch: torch.Tensor) -> None:
    dist.all_reduce(batch)


def load() -> None:
    if RANK == 3:
        time.sleep(LATE_S if CASE == "late" else 60)


def score_of() -> torch.Tensor:
    if CASE == "sizes" and RANK == 1:
        return torch.ones(5)
    return torch.ones(3, dtype=torch.float64 if CASE == "type" and RANK == 1 else torch.float32)


def evaluate(mesh: dict[str, Any]) -> None:
    score = score_of()
    if CASE in ("missing", "no-dump", "late", "mesh"):
        load()
    if CASE == "operation" and RANK == 2:
        dist.broadcast(score, 0)
    if CASE == "alone" and RANK == 0:
        dist.barrier()
    for name in ("tp", "dp") if CASE == "mesh" or RANK in (0, 3) else ("dp", "tp"):
        if mesh:
            dist.all_reduce(score, group=mesh[name])
    dist.all_reduce(score)


def train() -> None:
    mesh = make_mesh() if CASE in ("mesh", "circle") else {}
    for number in range(3):
        if not (CASE == "skipped" and RANK == 2 and number == 1):
            step(torch.ones(4))
    for group in mesh.values():
        dist.all_reduce(torch.ones(2), group=group)
    evaluate(mesh)
    step(torch.ones(4))


def main() -> None:
    if CASE != "no-dump":
        signal.signal(signal.SIGTERM, terminated)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    try:
        train()
    except RuntimeError:
        dump()
        time.sleep(2 * LATE_S if CASE == "late" else 3)
        raise


main()
