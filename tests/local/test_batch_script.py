"""submit train.sbatch: the programs of a script get what sbatch gives them, and faults in this are
noticed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcrun.job.batch.batch_script import read_batch_script
from tests.batch_harness import Runs
from tests.harness import REPO, Hpcrun

SCRIPTS = sorted((REPO / "tests/data/batch").iterdir())
STATUS = {"failing": 5}
FAULTS = {
    "failing": [r"^\|exit \$STATUS"],
    "bash-c": [r"--wait=60 "],
    "megatron": [
        r" --mpi=pmix",
        r" NCCL_DEBUG=WARN",
        r" && cd data",
        r"^\|module purge; module load cuda/12.4",
        r'"\$@" ',
    ],
    "launcher-variable": [r"^\|export OMP_NUM_THREADS=4"],
    "function": [r"^\|trap .*"],
    "copies": [r"^\|set -e$"],
}
"""What may get lost of the job's text, so that the harness notices."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_does_by_hpcrun_what_it_does_by_sbatch(hpcrun: Hpcrun, path: Path) -> None:
    runs = Runs(hpcrun, path, ["7", "a  b"], STATUS.get(path.stem, 0))
    by_sbatch = runs.by_sbatch()
    assert by_sbatch.events or path.stem == "copies"
    assert runs.differences(by_sbatch, runs.by_hpcrun()) == []
    assert runs.script.is_complete == (path.stem != "two-trainings"), runs.script.missing
    for number, fault in enumerate(FAULTS.get(path.stem, [])):

        def spoil(text: str, fault: str = fault) -> str:
            changed = re.sub(fault, "", text, flags=re.MULTILINE)
            assert changed != text
            return changed

        assert runs.differences(by_sbatch, runs.by_hpcrun(spoil, f"spoiled-{number}")), fault


@pytest.mark.parametrize(
    ("tasks", "launch", "is_remarked"),
    [
        ("--ntasks=4", "srun torchrun --nnodes=1 --nproc_per_node=4", True),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=2 --nproc_per_node=4", True),
        (
            "-N 2 --ntasks-per-node=4",
            "srun --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=4",
            False,
        ),
        (
            "-N 2 --ntasks-per-node=4",
            "srun --ntasks=$SLURM_NNODES torchrun --nnodes=2 --nproc_per_node=4",
            False,
        ),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=8 --nproc_per_node=1", False),
        (
            "-N 2 --ntasks-per-node=4",
            "srun torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=1",
            False,
        ),
        ("--ntasks=4", "torchrun --nproc_per_node=4", False),
        ("--ntasks=4", "srun python", False),
    ],
)
def test_srun_that_starts_too_many_torchruns_is_remarked(
    tasks: str, launch: str, is_remarked: bool
) -> None:
    script = read_batch_script(
        "x", f"#!/bin/bash\n#SBATCH --gpus-per-node=4 {tasks}\n{launch} train.py\n", ()
    )
    assert (
        any("starts torchrun 4 times on a node" in remark for remark in script.remarks)
        == is_remarked
    )


def test_a_script_without_a_launch_names_only_the_line_that_failed(hpcrun: Hpcrun) -> None:
    text = "#!/bin/bash\n#SBATCH --time=5\nset -e\nfor i in 1; do python3 train.py $i; done\n"
    (hpcrun.folder / "plain.sbatch").write_text(text)
    ended = hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "plain.sbatch")
    assert (
        "plain.sbatch ended with status 2: line 4: python3 train.py $i"
        in ended.stdout + ended.stderr
    )
