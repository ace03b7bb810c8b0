"""submit train.sbatch: the programs of a script get what sbatch gives them, and faults in this are noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.job.batch_script import read_batch_script
from tests.batch_harness import differences, run_both
from tests.harness import REPO

SCRIPTS = sorted((REPO / "tests/data/batch").iterdir())
INCOMPLETE = {"two-trainings.sbatch"}
STATUS = {"failing.sbatch": 5, "branches.sbatch": 0}


def _without(pattern: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed = re.sub(pattern, "", text, flags=re.MULTILINE)
        assert changed != text
        return changed

    return change


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_does_by_hpcrun_what_it_does_by_sbatch(path: Path, tmp_path: Path) -> None:
    both = run_both(path, ["7", "a  b"], tmp_path, status=STATUS.get(path.name, 0))
    assert both.by_sbatch.events
    assert differences(both) == []
    assert both.script.is_complete == (path.name not in INCOMPLETE), both.script.missing


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("failing", r"^\|exit \$STATUS"),
        ("bash-c", r"--wait=60 "),
        ("megatron", r" --mpi=pmix"),
        ("megatron", r" NCCL_DEBUG=WARN"),
        ("megatron", r" && cd data"),
        ("megatron", r"^\|module purge; module load cuda/12.4"),
        ("megatron", r'"\$@" '),
        ("launcher-variable", r"^\|export OMP_NUM_THREADS=4"),
        ("function", r"^\|trap .*"),
        ("accelerate", r"^#SBATCH --array=.*"),
    ],
)
def test_the_harness_notices_what_is_lost(name: str, fault: str, tmp_path: Path) -> None:
    path = REPO / f"tests/data/batch/{name}.sbatch"
    both = run_both(path, ["7"], tmp_path, status=STATUS.get(path.name, 0), change=_without(fault))
    if not fault.startswith("^#SBATCH"):  # Slurm reads it, not bash
        assert differences(both)


@pytest.mark.parametrize(
    ("tasks", "launch", "is_remarked"),
    [
        ("--ntasks=4", "srun torchrun --nnodes=1 --nproc_per_node=4", True),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=2 --nproc_per_node=4", True),
        ("-N 2 --ntasks-per-node=4", "srun --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=4", False),
        ("-N 2 --ntasks-per-node=4", "srun --ntasks=$SLURM_NNODES torchrun --nnodes=2 --nproc_per_node=4", False),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=8 --nproc_per_node=1", False),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=1", False),
        ("--ntasks=4", "torchrun --nproc_per_node=4", False),
        ("--ntasks=4", "srun python", False),
    ],
)
def test_srun_that_starts_too_many_torchruns_is_remarked(tasks: str, launch: str, is_remarked: bool) -> None:
    script = read_batch_script("x", f"#!/bin/bash\n#SBATCH --gpus-per-node=4 {tasks}\n{launch} train.py\n", ())
    assert any("starts torchrun 4 times on a node" in remark for remark in script.remarks) == is_remarked


def test_a_lost_set_e_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "copies.sbatch"
    path.write_text("#!/bin/bash\n#SBATCH --gpus=2\nset -e\ncp -r no-data here 2>/dev/null\ntorchrun train.py\n")
    assert differences(run_both(path, [], tmp_path)) == []
    (tmp_path / "again").mkdir()
    assert differences(run_both(path, [], tmp_path / "again", change=_without(r"^\|set -e$")))
