"""Variables that are wrong are noted with the place that sets them, wherever that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.prepare import prepare
from hpcrun.errors import UsageError
from hpcrun.job.resources.cpus_memory_time import Machine
from tests.unit.builders import request, surroundings, write

PROFILE = (
    "partition: theirs\ntime: {default: 1h}\ngpu: {type: a100, per_node: 4}\n"
    "fabric: {kind: infiniband, interface: ib0, hcas: [mlx5_0]}\n"
)
HEAD = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32\n"
TORCHRUN = (
    "srun torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=$A:1 x.py\n"
)
SRUN = "srun --ntasks-per-node=4 python x.py\n"


def notes(
    folder: Path,
    body: str = "",
    env: dict[str, str] | None = None,
    env_: list[str] | None = None,  # --env
    **asked: Any,
) -> list[str]:
    """Return the notes on a batch script with this text, or on ``train.py`` without one."""
    if body:
        asked["script"] = write(folder / "x.sbatch", HEAD + body).name
    else:
        write(folder / "train.py", "")
        asked = {"gpus": "8", "nodes": 2, **asked}
    if env_:
        asked["env"] = env_
    write(folder / "own/profiles/site.yaml", PROFILE)
    around = surroundings(folder, {"PATH": "/usr/bin:/bin", **(env or {})}, own=(folder / "own",))
    job = prepare(request(**asked), "site", around, lambda: Machine(cpus=4))
    return [note for note in job.plan.notes if not note.startswith("no logs per rank")]


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        ("export NCCL_TIMEOUT=7200", "x.sbatch line 3"),
        ("NCCL_TIMEOUT=1 srun hostname", "x.sbatch line 3"),
        ("env NCCL_TIMEOUT=1 hostname", "x.sbatch line 3"),
        ("\nNCCL_TIMEOUT=1\nexport NCCL_TIMEOUT", "x.sbatch line 4"),
        ("set -a\nNCCL_TIMEOUT=1", "x.sbatch line 4"),
        ("export NCCL_TIMEOUT=$1", "x.sbatch line 3"),
        ("srun --export=ALL,NCCL_TIMEOUT=1 hostname", "x.sbatch line 3"),
        ("mpirun -x NCCL_TIMEOUT=1 hostname", "x.sbatch line 3"),
        ("srun bash -c '\nexport NCCL_TIMEOUT=1'", "x.sbatch line 4"),
        ("if a; then export NCCL_TIMEOUT=1\nelse export NCCL_TIMEOUT=1; fi", "x.sbatch lines 3, 4"),
        ("#SBATCH --export=ALL,NCCL_TIMEOUT=1", "#SBATCH --export of x.sbatch"),
    ],
)
def test_a_variable_of_a_script_is_noted_with_its_lines(
    lines: str, at: str, tmp_path: Path
) -> None:
    [note] = notes(tmp_path, f"{lines}\n{TORCHRUN}")
    assert note.startswith("NCCL_TIMEOUT")
    assert f"({at}): no program reads" in note


@pytest.mark.parametrize(
    "lines",
    [
        "NCCL_TIMEOUT=1",
        "export NCCL_TIMEOUT=1\nunset NCCL_TIMEOUT",
        "echo NCCL_TIMEOUT=1",
        "export NCCL_IB_DISABLE=0 NCCL_DEBUG=INFO NCCL_IB_TIMEOUT=22 NCCL_SOCKET_IFNAME=ib",
        "export NCCL_P2P_DISABLE=$OFF",
        "export NCCL_SOCKET_IFNAME=^lo,docker NCCL_IB_HCA='=mlx5_0'",
        "export OMP_NUM_THREADS=8 CUDA_VISIBLE_DEVICES=0,1,2,3",
        "export MASTER_ADDR=localhost",
    ],
)
def test_what_has_no_effect_or_does_no_harm_is_not_noted(lines: str, tmp_path: Path) -> None:
    assert notes(tmp_path, f"{lines}\n{TORCHRUN}") == []


@pytest.mark.parametrize(
    ("line", "launch", "says"),
    [
        ("export NCCL_IB_DISABLE=1", TORCHRUN, "harmful on this network: NCCL talks TCP"),
        ("export NCCL_SOCKET_IFNAME=eth0", TORCHRUN, "names ib0 as the nodes' network"),
        ("export NCCL_SOCKET_IFNAME=lo", TORCHRUN, "the loopback reaches no other node"),
        ("export NCCL_IB_HCA==mlx5_2", TORCHRUN, "instead: NCCL_IB_HCA==mlx5_0"),
        ("export NCCL_DEBUG=TRACE", TORCHRUN, "for debugging NCCL itself"),
        ("export TORCH_DISTRIBUTED_DEBUG=DETAIL", TORCHRUN, "slows down training"),
        ("export NCCL_IB_RETRY_CNT=13", TORCHRUN, "it takes 0 to 7"),
        ("export OMP_NUM_THREADS=32", TORCHRUN, "a rank has 8 CPUs"),
        ("export CUDA_VISIBLE_DEVICES=0,1", TORCHRUN, "names 2 GPUs, and the job has 4"),
        ("export MASTER_ADDR=localhost", SRUN, "each of the 2 nodes looks for rank 0 on itself"),
        ("export MASTER_ADDR=$SLURM_JOB_NODELIST", SRUN, "no name of a node"),
        ("", "srun bash -c 'export MASTER_ADDR=$(hostname); python x.py'\n", "its own node"),
    ],
)
def test_the_job_and_its_profile_decide_what_is_wrong(
    line: str, launch: str, says: str, tmp_path: Path
) -> None:
    [note] = notes(tmp_path, f"{line}\n{launch}")
    assert says in note


def test_a_network_variable_does_no_harm_on_one_node(tmp_path: Path) -> None:
    assert notes(tmp_path, env={"NCCL_IB_DISABLE": "1"}, nodes=1, gpus="4") == []
    assert notes(tmp_path, env={"NCCL_IB_DISABLE": "1"}) != []


def test_the_place_that_counts_is_the_last_that_sets_a_variable(tmp_path: Path) -> None:
    shell = {"NCCL_ALGO": "Ring"}
    [of_shell] = notes(tmp_path, TORCHRUN, shell)
    assert of_shell.startswith("NCCL_ALGO=Ring (your shell): ")
    [of_setup] = notes(tmp_path, TORCHRUN, shell, setup=["export NCCL_ALGO=Tree"])
    assert of_setup.startswith("NCCL_ALGO=Tree (--setup): ")
    [of_option] = notes(tmp_path, env=shell, env_=["NCCL_ALGO=Tree"])
    assert of_option.startswith("NCCL_ALGO=Tree (--env): ")
    for line in ("export NCCL_ALGO=", "#SBATCH --export=NONE"):
        assert notes(tmp_path, f"{line}\n{TORCHRUN}", shell) == []


def test_a_program_s_shell_script_and_command_are_read(tmp_path: Path) -> None:
    write(tmp_path / "run.sh", "#!/bin/bash\nexport NCCL_TIMEOUT=1 MASTER_PORT=1\ntrue\n")
    [note] = notes(tmp_path, script="bash", args=["run.sh"], launcher="command")
    assert note.startswith("NCCL_TIMEOUT=1 (run.sh line 2): ")
    [note] = notes(tmp_path, script="env", args=["NCCL_TIMEOUT=1", "true"], launcher="command")
    assert note.startswith("NCCL_TIMEOUT=1 (the command): ")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    secret = {"NCCL_SOCKET_TOKENS": "s3cr3t-value", "NCCL_DEBUG_KEY": "s3cr3t-value"}
    assert notes(tmp_path, f"export NCCL_DEBUG_KEY=s3cr3t-value\n{TORCHRUN}", secret) == [
        "line 3: the secret goes through the environment, not into the run's folder"
    ]


def test_an_impossible_value_of_an_option_is_refused_for_a_script_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 to 7"):
        notes(tmp_path, TORCHRUN, env_=["NCCL_IB_RETRY_CNT=13"])
