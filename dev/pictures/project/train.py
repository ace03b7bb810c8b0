"""Fits a line by gradient descent, one step at a time: the training that the pictures of the docs
show.
"""

import argparse
import os
import random
import time

from hpcrun_runtime import log_metrics

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--seconds", type=float, default=1.0, help="for each step")
args = parser.parse_args()

rank = int(os.environ.get("RANK", os.environ.get("NODE_RANK", "0")))
samples = random.Random(rank)
slope = offset = 0.0
print(f"rank {rank} of {os.environ.get('WORLD_SIZE', '1')} is ready", flush=True)
for step in range(1, args.steps + 1):
    began = time.monotonic()
    time.sleep(args.seconds)
    x = samples.uniform(-1, 1)
    wrong = slope * x + offset - (2 * x + 1 + samples.gauss(0, 0.1))
    slope, offset = slope - args.lr * wrong * x, offset - args.lr * wrong
    loss = ((slope - 2) ** 2 / 3 + (offset - 1) ** 2) ** 0.5
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step {step} loss {loss:.4f}", flush=True)
    if rank == 0:
        log_metrics(
            step=step, loss=round(loss, 6), samples_per_s=round(256 / (time.monotonic() - began), 1)
        )
