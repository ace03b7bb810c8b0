"""explain of real jobs in which one rank made the others fail: torchrun, torch.distributed and gloo."""

from __future__ import annotations

from typing import Any

from tests.harness import Hpcrun

START = """
import logging, os, signal, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
rank = dist.get_rank()
logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
"""
SKIPS = """
for step in range(3):
    try:
        loss = torch.empty(1 << 50) if rank == 1 and step == 2 else torch.ones(4)
    except RuntimeError as error:
        logging.warning("out of memory in step %d, skipping the batch: %s", step, error)
        continue
    dist.all_reduce(loss)
if rank == 1:
    time.sleep(60)  # evaluates alone
"""
CLEANS_UP = """
if rank == 1:
    time.sleep(60)
try:
    dist.all_reduce(torch.ones(4))
finally:
    torch.empty(1 << 50)  # a last checkpoint
"""
CRASHES = """
dist.all_reduce(torch.ones(4))
if rank == 1:
    os.kill(os.getpid(), signal.SIGSEGV)
dist.all_reduce(torch.ones(4))
"""


def explained(hpcrun: Hpcrun, program: str) -> dict[str, Any]:
    """Run a program of three ranks to its end, and explain it."""
    (hpcrun.folder / "train.py").write_text(START + program)
    ranks = ("--launcher", "torchrun", "--nproc-per-node", "3")
    hpcrun("submit", "-P", "local", "--gpus", "0", *ranks, "--wait", "train.py")
    return hpcrun.document("explain", check=True)


def test_a_rank_that_skipped_a_batch_is_the_cause_of_the_timeout_of_the_others(hpcrun: Hpcrun) -> None:
    said = explained(hpcrun, SKIPS)
    assert (said["rule"], said["rank"]) == ("memory-skipped", 1), said["summary"]
    assert "other ranks then waited for it" in said["summary"]
    assert "out of memory in step 2" in said["evidence"][0]["lines"][0]


def test_a_timeout_whose_clean_up_runs_out_of_memory_is_a_timeout(hpcrun: Hpcrun) -> None:
    said = explained(hpcrun, CLEANS_UP)
    assert (said["rule"], said["rank"]) == ("collective-timeout", 1), said["summary"]


def test_a_crash_is_the_cause_of_the_connections_that_the_others_lost(hpcrun: Hpcrun) -> None:
    said = explained(hpcrun, CRASHES)
    assert (said["rule"], said["rank"]) == ("crashed", 1), said["summary"]
