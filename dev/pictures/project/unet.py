"""A training of several ranks, one of which reads from a server that stops answering: the job
hangs.
"""

import os
import socket
import time

import torch
import torch.distributed as dist
from hpcrun_runtime import log_metrics

RANK = int(os.environ["RANK"])
server = socket.create_server(("127.0.0.1", 0))
storage = socket.create_connection(server.getsockname())


def read_batch(step: int) -> torch.Tensor:
    if RANK == 2 and step == 20:
        storage.recv(65536)
    return torch.full((4,), 1 / (step + 1))


def train() -> None:
    for step in range(1, 1000):
        gradient = read_batch(step)
        dist.all_reduce(gradient)
        loss = float(gradient.mean())
        log_metrics(step=step, loss=round(loss, 4))
        print(f"{time.strftime('%H:%M:%S')} step {step} loss {loss:.4f}", flush=True)
        time.sleep(0.1)


dist.init_process_group("gloo")
train()
