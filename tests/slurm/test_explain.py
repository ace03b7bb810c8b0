"""hpcrun explain on a real Slurm: which of several ranks on several nodes is to blame, and what Slurm itself did."""

from __future__ import annotations

import json

import pytest

from tests.harness import Hpcrun, wait_for

pytestmark = pytest.mark.slurm

ONE_RANK_FAILS = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
if os.environ["RANK"] == "1":
    import apex_of_another_cluster
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.versions
def test_the_rank_that_failed_first_and_what_slurm_did(as_researcher: Hpcrun) -> None:
    (as_researcher.folder / "train.py").write_text(ONE_RANK_FAILS)
    two = ("-P", "l40s", "-N", "2", "-G", "2", "--cpus", "1", "--mem", "1G", "-t", "5m")
    one = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--mem", "1G", "-t", "5m")
    as_researcher("submit", *one, "-J", "ended", "sleep", "300", check=True)
    waited = as_researcher("submit", *two, "--wait", "train.py")
    assert waited.returncode == 7
    assert "hpcrun: rank 1 on l40s-2 failed first: the Python module apex_of_another_cluster" in waited.stderr

    shown = as_researcher("explain", "train", check=True).stdout
    assert shown.startswith("rank 1 on l40s-2 failed first: the Python module apex_of_another_cluster is not installed")
    assert "train.py:8 in <module>: import apex_of_another_cluster" in shown
    assert "rank 0 on l40s-1 (another rank had already ended)" in shown
    assert "FAILED" in shown.splitlines()[-4]
    assert "rank 1 on l40s-2 failed first" in as_researcher("status", "train", check=True).stdout

    state = '"state": "RUNNING"'
    wait_for(lambda: state in as_researcher("status", "--json", "ended").stdout, 30, "the other job to run")
    assert "the job is running" in as_researcher("explain", "ended", check=True).stdout
    as_researcher("cancel", "ended", check=True)

    def cancelled() -> bool:
        return bool(json.loads(as_researcher("explain", "--json", "ended").stdout)["rule"] == "cancelled")

    wait_for(cancelled, 60, "explain to say that it was cancelled")


RANK_0_FAILS = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["RANK"] == "0":
    {}["learning_rate"]
dist.all_reduce(torch.ones(1))
"""


def test_the_end_of_rank_0_is_not_taken_for_a_rendezvous_that_failed(as_researcher: Hpcrun) -> None:
    (as_researcher.folder / "train.py").write_text(RANK_0_FAILS)
    two = ("-P", "l40s", "-N", "2", "-G", "4", "--cpus", "1", "--mem", "1G", "-t", "5m")
    waited = as_researcher("submit", *two, "--wait", "train.py")
    first = "rank 0 on l40s-1 failed first: KeyError: 'learning_rate' at train.py:7"
    assert waited.stderr.splitlines()[0] == f"hpcrun: {first}"
    assert as_researcher("explain", check=True).stdout.splitlines()[0] == first
    assert json.loads(as_researcher("status", "--json", check=True).stdout)["runs"][0]["cause"] == first
