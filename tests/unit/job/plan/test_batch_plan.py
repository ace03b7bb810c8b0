"""Sizes given at submission that do not suit the launch of a batch script are noted."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.job.batch.batch_script import read_batch_script
from hpcrun.job.plan.batch_plan import plan_script
from hpcrun.job.plan.job_plan import PythonEnvironment
from tests.unit.builders import request, slurm_profile

HEAD = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=2 --ntasks-per-node=1\n"
TORCHRUN = "srun torchrun --nnodes=2 --nproc_per_node=2 --rdzv-endpoint=$A:1 x.py\n"


def notes(body: str, head: str = HEAD, **asked: Any) -> list[str]:
    """The notes on a script whose options are overridden at submission."""
    script = read_batch_script("x.sbatch", head + body, ())
    python = PythonEnvironment("/usr/bin/python3", "")
    return list(
        plan_script(request("x.sbatch", **asked), slurm_profile(), script, python=python).notes
    )


def test_tasks_given_at_submission_start_too_many_torchruns() -> None:
    too_many = (
        "as by sbatch, srun starts torchrun 2 times on a node, and all but one fail: request one "
        "task for each node, with its GPUs and CPUs"
    )
    assert notes(TORCHRUN) == []
    assert notes(TORCHRUN, ntasks_per_node=1) == []
    assert notes(TORCHRUN, ntasks=2) == []
    assert notes(TORCHRUN, ntasks_per_node=2) == [too_many]
    assert notes(TORCHRUN, ntasks=4) == [too_many]
    assert notes(TORCHRUN.replace("srun", "srun --ntasks-per-node=1"), ntasks_per_node=2) == []


def test_tasks_that_both_the_script_and_the_submission_have_are_noted_once() -> None:
    [note] = notes(TORCHRUN, HEAD.replace("node=1", "node=2"), ntasks_per_node=2)
    assert "starts torchrun 2 times" in note
    assert notes(TORCHRUN, HEAD.replace("node=1", "node=2"), ntasks=2) == []  # mended by it


def test_more_nodes_given_at_submission_than_torchrun_waits_for_are_noted() -> None:
    [note] = notes(TORCHRUN, nodes=4)
    assert note == (
        "as by sbatch, srun starts torchrun on 4 nodes, and --nnodes=2 takes no more: give "
        "torchrun --nnodes=$SLURM_NNODES"
    )
    assert notes(TORCHRUN.replace("nnodes=2", "nnodes=$SLURM_NNODES"), nodes=4) == []


@pytest.mark.parametrize("asked", [{"ntasks_per_node": 2}, {"ntasks": 4}, {"gpus": "2"}])
def test_ranks_that_share_a_gpu_are_noted_however_the_sizes_are_given(asked: Any) -> None:
    head = HEAD.replace("gpus-per-node=2", "gpus-per-node=1")
    if "gpus" in asked:
        head = head.replace("node=1\n", "node=2\n")
    [note] = notes("srun python x.py\n", head, **asked)
    assert note == "2 ranks of a node share 1 GPU: the script decides the number of ranks"
