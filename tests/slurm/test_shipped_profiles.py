"""A real Slurm takes the script of every shipped profile, up to the whole of two nodes."""

from __future__ import annotations

import pytest

from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import load_profile, profile_names
from tests.harness import RESEARCHER, Cluster, Hpcrun

pytestmark = pytest.mark.slurm

SHIPPED = [shipped_folder("cluster_profiles")]
PROFILES = {name: load_profile(name, SHIPPED).profile for name in sorted(profile_names(SHIPPED))}

# How many nodes of each card the development cluster has, by the name in its gres. Its GPUs are
# names alone, and its network is a bridge: nothing is said of the memory of a card, or of a fabric.
NODES = {"a100": 2, "h100": 2, "v100": 2, "l40s": 2, "h200": 1, "a40": 1, None: 1}


def test_slurm_takes_each(cluster: Cluster, as_researcher: Hpcrun) -> None:
    for name, profile in PROFILES.items():
        if profile.scheduler != "slurm":
            continue
        gpus = ("--gpus-per-node", str(profile.gpu.per_node))
        ranks = ("--gpus", "0", "--cpus", "64", "--launcher", "torchrun", "--nproc-per-node", "4")
        size = gpus if profile.gpu.per_node else ranks
        as_researcher.write_script(
            "job.sh", "-P", name, *size, "--nodes", str(NODES[profile.gpu.type]), "true"
        )
        tested = as_researcher.run("sbatch", "--test-only", "job.sh", check=False)
        assert tested.returncode == 0, tested.stderr
        wanted = profile.gpu.type or "cpu"
        assert f"{wanted}-" in tested.stderr.partition(" on ")[2], (
            f"not on nodes with {wanted}: {tested.stderr}"
        )
    assert cluster.slurm("squeue", "--noheader", "--user", RESEARCHER) == "", "a test leaves no job"
