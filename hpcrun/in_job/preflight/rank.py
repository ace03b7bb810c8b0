"""One rank of a preflight: ``rank.py LOCAL_RANK RANKS GPUS STORE_PORT``, started by ``node.py``.

It multiplies matrices on its GPU, then runs an all-reduce with the other ranks of its node, then,
when its node starts it, with all ranks of the job. It prints its results as JSON lines to stdout.
It uses only torch and the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

WITHIN_S = 12
"""How long the ranks of a node wait for each other, in seconds; node.py ends ranks that torch does
not end.
"""

GEMM_SIZE = 8192
GEMM_TIMES = 50
GPU_BYTES = 64 << 20
CPU_BYTES = 4 << 20
SUM_TIMES = 10


def say(**facts: Any) -> None:
    """Send results to node.py."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def choose_device(torch: Any, local_rank: int, gpus: int) -> Any:
    """Return the rank's GPU, or the CPU if torch has no GPU for it; report which and why."""
    facts: dict[str, Any] = {"torch": str(torch.__version__)}
    if gpus and torch.cuda.is_available() and torch.cuda.device_count() > local_rank:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        free, total = torch.cuda.mem_get_info(device)
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["free_gb"] = free / 1e9
        facts["total_gb"] = total / 1e9
    else:
        device = torch.device("cpu")
        facts.update(_why_no_gpu(torch, gpus))
    say(device=device.type, **facts)
    return device


def _why_no_gpu(torch: Any, gpus: int) -> dict[str, Any]:
    """Return why torch has no GPU for a rank, and whether it should have one."""
    has_build = bool(torch.version.cuda or torch.version.hip)
    why = f"torch {torch.__version__} has no CUDA"
    if has_build:
        why = f"torch sees {torch.cuda.device_count()} of {gpus} GPUs"
    # a machine without a driver, as in a cluster for tests, has GPUs only in Slurm's configuration
    has_gpus = has_build or os.path.exists("/proc/driver/nvidia/version")
    return {"no_gpu": why, "asked": gpus, "expected": bool(gpus) and has_gpus}


def is_right(torch: Any, device: Any) -> bool:
    """Return whether a product of small whole numbers equals the CPU's result in fp64.

    The product is exact in fp32.
    """
    numbers = torch.randint(-2, 3, (1024, 1024), generator=torch.Generator().manual_seed(0))
    product = numbers.float().to(device) @ numbers.float().to(device)
    return bool(torch.equal(product.cpu().double(), numbers.double() @ numbers.double()))


def gemm_tflops(torch: Any, device: Any) -> tuple[float, str]:
    """Return the rate of large products in the type of trainings, in TFLOPS, and this type."""
    # torch emulates bf16 on cards before Ampere (compute capability 8.0), and reports it as
    # supported
    if torch.version.hip or torch.cuda.get_device_capability(device) >= (8, 0):
        name = "bf16"
        dtype = torch.bfloat16
    else:
        name = "fp16"
        dtype = torch.float16
    a = torch.randn(GEMM_SIZE, GEMM_SIZE, device=device, dtype=dtype)
    b = torch.randn(GEMM_SIZE, GEMM_SIZE, device=device, dtype=dtype)
    for _ in range(5):
        a @ b
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(GEMM_TIMES):
        a @ b
    end.record()
    torch.cuda.synchronize(device)
    seconds = start.elapsed_time(end) / 1000
    return 2 * GEMM_SIZE**3 * GEMM_TIMES / seconds / 1e12, name


def multiply(torch: Any, device: Any) -> None:
    """Report whether products are correct and, on a GPU, their rate."""
    right = is_right(torch, device)
    if device.type == "cpu":
        say(right=right)
        return
    tflops, dtype = gemm_tflops(torch, device)
    say(right=right, tflops=tflops, dtype=dtype)


def sum_up(torch: Any, device: Any, *, rank: int, ranks: int, store: str, wait_s: int) -> float:
    """Sum a tensor over some ranks and return the bus bandwidth in GB/s, as nccl-tests counts it.

    Raises:
        ValueError: the sum is wrong.
    """
    import torch.distributed as dist

    is_cpu = device.type == "cpu"
    backend = "gloo" if is_cpu else "nccl"
    dist.init_process_group(
        backend,
        init_method=f"tcp://{store}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=wait_s),
    )
    size = CPU_BYTES if is_cpu else GPU_BYTES
    numbers = torch.full((size // 4,), float(rank + 1), device=device)
    dist.all_reduce(numbers)  # the first call also makes the connections
    expected = ranks * (ranks + 1) // 2
    if not bool((numbers == expected).all()):
        raise ValueError(f"the all-reduce of 1 to {ranks} returned {numbers[0].item():g}")
    numbers.zero_()
    _wait_for_device(torch, device)
    started = time.perf_counter()
    for _ in range(SUM_TIMES):
        dist.all_reduce(numbers)
    _wait_for_device(torch, device)
    seconds = (time.perf_counter() - started) / SUM_TIMES
    dist.destroy_process_group()
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


def _wait_for_device(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def check(local_rank: int, ranks: int, gpus: int, store_port: int) -> None:
    """Do all checks, and report each step before the step starts.

    So a rank that hangs has reported its step.
    """
    say(doing="import torch")
    import torch

    say(doing="device")
    device = choose_device(torch, local_rank, gpus)
    say(doing="gemm")
    multiply(torch, device)
    if ranks > 1:
        say(doing="within")
        store = f"127.0.0.1:{store_port}"
        rate = sum_up(torch, device, rank=local_rank, ranks=ranks, store=store, wait_s=WITHIN_S)
        say(within=rate)
    say(doing="waiting")
    order = sys.stdin.readline()
    if order:
        say(doing="across")
        say(across=sum_up(torch, device, **json.loads(order)))
    say(doing="done")


def main() -> None:
    """Run the rank, and report errors."""
    try:
        check(*(int(number) for number in sys.argv[1:]))
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        say(error=words[:300])
    # skip Python's own end, in which remaining threads of gloo would abort (pytorch/pytorch#179291)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
