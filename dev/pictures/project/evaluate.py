"""Fails on one rank, as programs do."""

import os
import time

SCORES = {"accuracy": 0.97, "f1": 0.96}

print("loading the checkpoint", flush=True)
time.sleep(2)
wanted = ["accuracy", "f1", "recall"]
for name in wanted[int(os.environ["RANK"]) :]:
    print(name, SCORES[name], flush=True)
    time.sleep(3)
