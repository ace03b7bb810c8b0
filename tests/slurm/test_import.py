"""import: what a script asks of Slurm, and what hpcrun's asks, as Slurm shows both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.harness import Cluster, Hpcrun

pytestmark = pytest.mark.slurm

SAME = (
    "NumCPUs",
    "TRES",
    "MinMemoryNode",
    "MinMemoryCPU",
    "TimeLimit",
    "Partition",
    "JobName",
    "Features",
    "Comment",
    "ArrayTaskThrottle",
    "OverSubscribe",
    "MailType",
)
SCRIPTS = {
    "torchrun": (
        "#SBATCH -J train -p gpu -N2 --ntasks-per-node=1 --gres=gpu:a100:4 -c 16 --mem=64G -t "
        "4:00:00\n"
        "srun torchrun --nnodes 2 --nproc-per-node 4 train.py\n"
    ),
    "srun": (
        "#SBATCH --job-name=train --partition=gpu --nodes=2 --ntasks-per-node=4 "
        "--gpus-per-node=l40s:4 -c 8\n"
        "#SBATCH --mem-per-cpu=2G --time=90 --mail-type=END,FAIL\n"
        "srun python train.py\n"
    ),
    "one GPU": "#SBATCH --job-name=t -p gpu --gpus=a40:1 -n1 --time=10 --comment='two "
    "words'\npython train.py\n",
    "CPUs": "#SBATCH -J t -p cpu -n 8 -t 10 --exclusive\nsrun python fit.py\n",
    "array": "#SBATCH -J t -p gpu --gres=gpu:v100:1 -c 4 -t 30 -a 1-6%2\npython train.py --seed "
    "$SLURM_ARRAY_TASK_ID\n",
}


def shown(cluster: Cluster, path: Path) -> dict[str, str | None]:
    """What Slurm shows of a held job of this script."""
    job = cluster.slurm("sbatch", "--hold", "--parsable", "--output=/dev/null", str(path)).strip()
    text = cluster.slurm("scontrol", "show", "job", "-o", job).splitlines()[0]
    cluster.slurm("scancel", job)
    found = {name: re.search(rf"(?:^| ){name}=(\S*)", text) for name in SAME}
    return {name: match[1] if match else None for name, match in found.items()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_hpcrun_asks_slurm_for_the_same(cluster: Cluster, as_researcher: Hpcrun, name: str) -> None:
    script = f"#!/bin/bash\n{SCRIPTS[name]}"
    (as_researcher.folder / "old.sbatch").write_text(script)
    (as_researcher.folder / "train.py").touch()
    (as_researcher.folder / "fit.py").touch()
    document = json.loads(as_researcher("import", "old.sbatch", "--json", check=True).stdout)
    assert document["complete"]
    shell = document["command_line"].replace(
        "hpcrun submit", "python -m hpcrun submit --dry-run", 1
    )
    as_researcher.run("bash", "-c", f"{shell} >new.sh", check=True)
    assert shown(cluster, as_researcher.folder / "new.sh") == shown(
        cluster, as_researcher.folder / "old.sbatch"
    )
