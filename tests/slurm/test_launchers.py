"""Launchers that bring their own ranks, on a real Slurm: each rank starts once."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm

RANK = """
import os
with open("ranks", "a") as file:
    file.write(f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']} on {os.environ['SLURMD_NODENAME']}\\n")
"""
TORCHRUN = """#!/bin/bash
python -m torch.distributed.run --nnodes $NNODES --node-rank $NODE_RANK --nproc-per-node $NPROC_PER_NODE \\
  --master-addr $MASTER_ADDR --master-port $MASTER_PORT rank.py
"""
# as MPICH's mpirun: it asks Slurm for a step, unless it is told to start its ranks here
MPIRUN = """#!/bin/bash
[ "$HYDRA_BOOTSTRAP" = fork ] || exec srun --ntasks="$2" "${@:3}"
for ((rank = 0; rank < $2; rank++)); do RANK=$rank WORLD_SIZE=$2 "${@:3}" & done
wait
"""


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    (as_researcher.folder / "rank.py").write_text(RANK)
    for name, text in (("multi.sh", TORCHRUN), ("mpirun", MPIRUN)):
        (as_researcher.folder / name).write_text(text)
        (as_researcher.folder / name).chmod(0o755)
    return as_researcher


def ranks(person: Hpcrun) -> list[str]:
    return sorted((person.folder / "ranks").read_text().splitlines())


def test_a_script_with_torchrun_joins_two_nodes(person: Hpcrun) -> None:
    done = person("submit", "-P", "a100", "--gpus", "4", "--nodes", "2", "--wait", "./multi.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 nodes × 2 a100 GPUs, the command once per node" in done.stdout
    assert ranks(person) == [f"{rank} of 4 on a100-{1 + rank // 2}" for rank in range(4)]


@pytest.mark.versions
def test_an_mpirun_starts_its_ranks_and_asks_for_no_step(person: Hpcrun) -> None:
    newer = {"HYDRA_BOOTSTRAP": "slurm"}  # what Slurm 24.11 puts into a job's environment
    env = {"PATH": f"{person.folder}:{person.environ['PATH']}", **newer}
    done = person("submit", "-P", "a100", "--gpus", "2", "--wait", "mpirun", "-np", "2", "python", "rank.py", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ranks(person) == ["0 of 2 on a100-1", "1 of 2 on a100-1"]
