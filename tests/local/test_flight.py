"""A run whose rank stops: its ranks leave dumps of torch's flight recorder, and explain names the
rank and the line.
"""

from __future__ import annotations

from tests.harness import Hpcrun

RANKS = (
    "submit",
    "-P",
    "local",
    "--gpus",
    "0",
    "--launcher",
    "torchrun",
    "--nproc-per-node",
    "2",
    "--wait",
)
STOPS = """
import os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

def dump(*_):
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"], "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace())

def terminated(*_):
    dump()
    sys.exit(1)

def load(number):
    if number == 2 and dist.get_rank() == 1:
        time.sleep(600)
    return torch.ones(4)

signal.signal(signal.SIGTERM, terminated)
dist.init_process_group("gloo", timeout=timedelta(seconds=3))
try:
    for number in range(4):
        batch = load(number)
        dist.all_reduce(batch)
except RuntimeError:
    dump()
    raise
"""


def test_a_rank_that_stops_is_named_with_its_line(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", STOPS)
    done = hpcrun(*RANKS, "train.py")
    (attempt,) = hpcrun.runs.glob("*/elements/0/attempts/0")
    assert sorted(path.name for path in (attempt / "flight").iterdir()) == ["rank_0", "rank_1"]
    line = STOPS.splitlines().index("        dist.all_reduce(batch)") + 1
    sentence = (
        f"rank 0 waits in all_reduce #3 of the default group (train.py:{line}); rank 1 on local-0 "
        "did not come: its "
        f"last was all_reduce #2 (train.py:{line})"
    )
    assert f"hpcrun: {sentence[:150]}" in done.stderr
    said = hpcrun.document("explain", "last", check=True)
    assert said["summary"] == sentence
    assert said["rank"] == 1
    assert said["rule"] == "collective-missing"
    assert said["flight"]["collectives"][0]["absent"][0]["at"].endswith(f"/train.py:{line}")
    shown = hpcrun("explain", "last", check=True).stdout
    assert "flight recorder (2 dumps)" in shown
    assert "elements/0/attempts/0/flight" in shown
