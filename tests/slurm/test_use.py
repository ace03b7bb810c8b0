"""What a job on a real Slurm records of its use, and the end of a job whose GPUs are idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.job.layout import AttemptFolder
from hpcrun.runs.use import read_use
from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm

# As the real one: it reports again and again. Only with this job's GPUs.
NVIDIA_SMI = """#!/bin/bash
[ "$1" = -i ] && [ "$2" = "$CUDA_VISIBLE_DEVICES" ] || { echo 'No devices were found' >&2; exit 6; }
while :; do echo "0, 0, 400, 81920, 60.0"; echo "1, 0, 400, 81920, 60.0"; sleep 0.2; done
"""
WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
print("ready", flush=True)
time.sleep(120)
"""


def test_a_job_whose_gpus_are_idle_is_ended_and_says_why(as_researcher: Hpcrun) -> None:
    person = as_researcher
    person.write("waits.py", WAITS)
    path = person.shims(nvidia_smi=NVIDIA_SMI)
    asked = ("--gpus", "4", "--nodes", "2", "--cpus", "2", "--mem", "1G", "--launcher", "python", "--requeue", "1")
    done = person("submit", "-P", "a100", *asked, "--cancel-idle", "2s", "--wait", "waits.py", env=path)
    assert done.returncode == 7, done.stderr
    assert "CANCELLED (cancelled: its GPUs were idle for 2 s)" in done.stderr
    run = person.status()
    assert (run["state"], run["reason"]) == ("CANCELLED", "cancelled: its GPUs were idle for 2 s")
    assert person("explain", "last").stdout.splitlines()[0] == "cancelled: its GPUs were idle for 2 s"
    attempts = Path(run["folder"]) / "elements/0/attempts"
    assert [each.name for each in attempts.iterdir()] == ["0"]
    assert [(attempts / f"0/rank-{rank}.out").read_text() for rank in (0, 1)] == ["ready\nsaved\n"] * 2
    uses = read_use(AttemptFolder(attempts / "0"))
    assert [(use.cpus, use.memory_limit, len(use.samples[-1].gpus)) for use in uses] == [(2, 1 << 30, 2)] * 2
    log = (Path(run["folder"]) / "batch.log").read_text()
    assert log.count("hpcrun: all GPUs have been idle for") == 1
    gpu = person.document("status", "--gpus", "last", check=True)
    assert [(row["index"], row["idle"]) for row in gpu["gpus"]] == [(0, 1), (1, 1)] * 2
