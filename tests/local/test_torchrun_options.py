"""torchrun that starts its ranks again in place: their records, their logs, and when it must
not.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness import Hpcrun, wait_for
from tests.local.test_requeue import warn

TWO_RANKS = ("-P", "local", "--gpus", "0", "--launcher", "torchrun", "--nproc-per-node", "2")
FAILS_TWICE = """
import os, sys, time
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
print("start", flush=True)
if os.environ["RANK"] == "1":
    if first:
        open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "1", "w").close()
        raise ValueError("of the first start")
    sys.exit(3)
time.sleep(60)
"""
STOPS_WITH_1 = """
import sys, time
from hpcrun_runtime import attempt, should_stop
print("start", flush=True)
while not attempt():
    if should_stop():
        sys.exit(1)
    time.sleep(0.1)
"""


def submit(hpcrun: Hpcrun, script: str, *options: str) -> Path:
    hpcrun.write("train.py", script)
    return hpcrun.submit(*TWO_RANKS, "--torchrun", "max-restarts=1", *options, "train.py")


def test_what_torchrun_started_again_is_explained_by_the_start_that_failed_first(
    hpcrun: Hpcrun,
) -> None:
    attempt = submit(hpcrun, FAILS_TWICE, "--wait") / "elements/0/attempts/0"
    statuses = [
        json.loads((attempt / name).read_text())["status"]
        for name in ("rank-1.exit.1", "rank-1.exit")
    ]
    assert statuses == [1, 3]
    assert [path.name for path in (attempt / "flight").iterdir()] == ["rank_1.1"]
    assert (attempt / "rank-1.out").read_text() == "start\nhpcrun: torchrun restart 1\nstart\n"
    explained = hpcrun("explain", "last").stdout
    batch_log = (attempt.parents[3] / "batch.log").read_text()
    assert "torchrun starts the ranks of local-0 again: restart 1" in batch_log
    assert (
        "rank 1 on local-0 failed first: ValueError: of the first start at train.py:8" in explained
    )
    assert "the answer is of start 1 of 2: no later one came further" in explained


def test_ranks_that_were_asked_to_stop_are_not_started_again_by_torchrun(hpcrun: Hpcrun) -> None:
    folder = submit(hpcrun, STOPS_WITH_1, "--warn", "30s", "--requeue", "1")
    warn(folder, 0)
    attempts = folder / "elements/0/attempts"
    wait_for((attempts / "1/exit").exists, 60, "the second attempt to end")
    assert [(attempts / f"0/rank-{rank}.out").read_text() for rank in (0, 1)] == [
        "start\n",
        "start\n",
    ]
    assert json.loads((attempts / "0/exit").read_text())["reason"] == "time_limit"
    assert json.loads((attempts / "1/exit").read_text())["status"] == 0
