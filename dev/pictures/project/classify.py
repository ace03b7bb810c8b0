"""Trains a classifier."""

import math
import os
import random
import time

from hpcrun_runtime import log_metrics

RANK, ATTEMPT = int(os.environ["RANK"]), int(os.environ.get("HPCRUN_ATTEMPT", "0"))
START, END = 60 * ATTEMPT, 60 * (ATTEMPT + 1)
SCHEDULE = {0: 3e-4, 60: 1e-4}
noise = random.Random(7 + ATTEMPT)

print(f"rank {RANK} starts at step {START}", flush=True)
for step in range(START, END):
    loss = 2.3 * math.exp(-step / 45) + 0.1 + 0.04 * noise.random()
    if RANK == 0:
        log_metrics(
            step=step,
            loss=loss,
            val_accuracy=1 - 0.9 * math.exp(-step / 40) - 0.02 * noise.random(),
        )
    if step % 10 == 0:
        print(f"{time.strftime('%H:%M:%S')} step {step} loss {loss:.4f}", flush=True)
    sum(number * number for number in range(1_500_000))
    time.sleep(0.05)
if RANK == 1 and ATTEMPT == 0:
    raise ConnectionResetError(104, "Connection reset by peer", "/datasets/imagenet/shard-0117.tar")
if RANK == 1:
    print(f"learning rate from step {END}: {SCHEDULE[END]}", flush=True)
time.sleep(60)
