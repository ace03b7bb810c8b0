"""Ends as torch does when a GPU's memory is full: the development cluster has no GPU that could be
filled.
"""

import os
import time

import torch

FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 44.39 GiB of "
    "which 1.19 GiB is "
    "free. Including non-PyTorch memory, this process has 43.19 GiB memory in use. Of the "
    "allocated memory 36.01 GiB "
    "is allocated by PyTorch, and 6.52 GiB is reserved by PyTorch but unallocated."
)


def forward(step: int) -> None:
    """Stand for a model that grows until it fills the second GPU."""
    if os.environ["LOCAL_RANK"] == "1" and step == 3:
        raise torch.OutOfMemoryError(FULL)


for step in range(600):
    print(f"step {step}", flush=True)
    forward(step)
    time.sleep(1)
