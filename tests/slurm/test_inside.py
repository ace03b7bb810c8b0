"""Looking into a job that runs on a real Slurm: its GPUs, a shell in it, the logs of its nodes, its
metrics.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.harness import Cluster, Hpcrun, at_end, wait_for

pytestmark = pytest.mark.slurm

TRAIN = """
import os, time
from pathlib import Path
from hpcrun_runtime import log_metrics
rank = int(os.environ["RANK"])
print(f"2026-11-21 05:00:0{9 - rank} rank {rank} begins", flush=True)
log_metrics(step=1, loss=0.5 + rank)
while not Path("end").exists():
    time.sleep(0.2)
"""
# the ranks' nodes talk to each other meanwhile
TALK = "exec 3<>/dev/udp/{}/9; for _ in $(seq 200); do echo something >&3; sleep 0.01; done"
# what nvidia-smi --query-gpu prints for the GPUs it is asked for with -i
NVIDIA_SMI = """#!/bin/sh
[ "$1" = -i ] || { echo 'No devices were found' >&2; exit 6; }
echo "0, GPU-1f, NVIDIA A100-SXM4-80GB, 97, 71234, 81920, 402.35, 400.00, 61"
"""


def test_inside_a_job_that_runs(as_researcher: Hpcrun, cluster: Cluster) -> None:
    person = as_researcher
    person.write("train.py", TRAIN)
    args = (
        "--gpus",
        "2",
        "--nodes",
        "2",
        "--cpus",
        "2",
        "--mem",
        "1G",
        "--launcher",
        "srun",
        "train.py",
    )
    folder = person.submit("-P", "a100", "-J", "inside", *args, check=True)
    logs = folder / "elements/0/attempts/0"
    wait_for(
        lambda: (logs / "rank-1.metrics").exists() and (logs / "rank-0.metrics").exists(),
        60,
        "both ranks",
    )
    first, second = (logs / "hosts").read_text().split()

    # gpu: what the network moves, once there is anything
    talking = subprocess.Popen(
        [*person.become, *person.argv("shell", "--node", first)],
        env=person.environ,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert talking.stdin is not None
    talking.stdin.write(TALK.format(second))
    talking.stdin.close()
    moved = wait_for(
        lambda: person.document("status", "--gpus").get("ports"), 60, "a port with traffic"
    )
    talking.wait()
    assert {port["node"] for port in moved} <= {first, second}
    assert max(port["out_per_s"] for port in moved) > 100

    # gpu: these nodes have none, and say so; and where there is an nvidia-smi, its answer
    plain = person("status", "--gpus", check=True)
    assert plain.stdout.splitlines()[0] == f"{first}, {second}: no nvidia-smi there"
    assert "GPUs " not in person("status", "-v", "last", check=True).stdout
    env = person.shims(nvidia_smi=NVIDIA_SMI)
    rows = person.document("status", "--gpus", env=env, check=True)["gpus"]
    closer = person("status", "-v", "last", env=env, check=True)
    assert "  GPUs         2 GPUs 97 % busy, memory 87% full at most\n" in closer.stdout
    assert [(row["node"], row["rank"], row["busy_percent"]) for row in rows] == [
        (first, 0, 97),
        (second, 1, 97),
    ]

    # shell: without a terminal it reads commands; its exit status is the shell's
    typed = person(
        "shell",
        stdin="echo on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES, $(nproc) CPUs; exit 3\n",
    )
    assert (typed.stdout, typed.returncode) == (f"on {first} with 0, 2 CPUs\n", 3), typed.stderr
    wrong = person("shell", "--node", "a100-9", stdin="")
    assert wrong.returncode == 6
    assert f"its nodes: {first}, {second}" in wrong.stderr
    terminal = person.terminal("shell", "--node", second, size=(24, 80))
    terminal.expect(rf"Shell on {second} \(job \S+\)\. Type exit to leave\.")
    terminal.sendline("tty; echo at=$SLURMD_NODENAME")
    terminal.expect("/dev/pts/")
    terminal.expect(f"at={second}")
    terminal.sendline("exit")
    assert at_end(terminal)[0] == 0

    # the logs of one node, of both in the order of their times, and the numbers
    assert person("logs", "--node", second).stdout == "[rank 1] 2026-11-21 05:00:08 rank 1 begins\n"
    merged = person("logs", "--merge", check=True).stdout.splitlines()
    assert [line[:8] for line in merged] == ["[rank 1]", "[rank 0]"]
    heading, *numbers = person("metrics", "--all-ranks", "--csv").stdout.splitlines()
    assert heading == "rank,attempt,step,time,loss"
    assert [line.split(",")[-1] for line in numbers] == ["0.5", "1.5"]

    # and when it is over there is nothing to look into
    (person.folder / "end").touch()
    person.ended()
    late = person("shell", stdin="")
    assert late.returncode == 4
    assert "is COMPLETED: its allocation has ended" in late.stderr
