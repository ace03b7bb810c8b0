"""Options of srun and torchrun, segments and expedited requeue, on a real Slurm."""

from __future__ import annotations

import json
import re

import pytest

from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm

STEP = """
import os
rank = os.environ["SLURM_PROCID"]
with open(f"step-{rank}", "w") as file:
    file.write(f"{os.environ.get('SLURM_CPU_BIND_TYPE')} {os.environ['SLURM_NTASKS']}")
"""
RANKS = ("-P", "a100", "--gpus", "0", "--cpus", "1", "--mem", "1G")


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    as_researcher.write("step.py", STEP)
    return as_researcher


def test_srun_gets_its_options(person: Hpcrun) -> None:
    asked = (
        "--nodes",
        "2",
        "--launcher",
        "srun",
        "--srun",
        "cpu-bind=none",
        "--srun",
        "mpi=none",
        "--wait",
    )
    done = person("submit", *RANKS, *asked, "step.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "srun       --cpu-bind=none --mpi=none" in done.stdout
    assert [(person.folder / f"step-{rank}").read_text() for rank in (0, 1)] == ["none 2"] * 2


def are_idle(cluster: Cluster) -> bool:
    """Whether both nodes with A100 are."""
    states = cluster.nodes()
    return states["a100-1"] == states["a100-2"] == "idle"


SCRIPT = """#!/bin/bash
#SBATCH --nodes=1-2 --ntasks-per-node=1 -c 1 --mem=1G
mkdir -p sub && cd sub && srun --cpu-bind=none python3 ../step.py
"""
MPI = "import os\nopen('mpi-' + os.environ['PMI_RANK'], 'w')\n"


def test_slurm_chooses_the_nodes_and_a_script_s_srun_gets_options(
    person: Hpcrun, cluster: Cluster
) -> None:
    person.write("step.sbatch", SCRIPT)
    person.write("step.py", STEP + MPI)
    words = ("--srun", "cpu-bind=cores", "--srun", "mpi=pmi2", "--ntasks-per-node", "2")
    script = person("submit", "-P", "a100", "-t", "5", *words, "--wait", "step.sbatch", check=True)
    shown = json.loads(person("status", "last", "--json", check=True).stdout)["runs"][0]
    ranks = shown["world_size"]
    assert ranks == 2 * shown["nodes"]  # with --ntasks-per-node Slurm may give less than it could
    sub = person.folder / "sub"
    assert {path.read_text() for path in sub.glob("step-*")} == {f"none {ranks}"}
    assert len([*sub.glob("mpi-*")]) == ranks
    assert "1-2 nodes, at most 4 ranks by srun" in script.stdout
    assert "00:05:00 (5 min)" in script.stdout
    assert "srun       --cpu-bind=cores --mpi=pmi2, besides" in script.stdout
    asked = ("--nodes", "1-2", "--launcher", "srun", "--srun", "mpi=pmi2", "--wait")
    # as many as are free: those of the job before may still be completing
    wait_for(lambda: are_idle(cluster), 30, "both nodes to be free")
    person("submit", *RANKS, "-p", "gpu", *asked, "step.py", check=True)
    shown = json.loads(person("status", "last", "--json", check=True).stdout)["runs"][0]
    assert (shown["nodes"], shown["world_size"]) == (2, 2)
    assert (person.folder / "step-1").read_text().split()[1] == "2"


def test_what_srun_does_not_know_is_refused_before_anything_is_submitted(
    person: Hpcrun, subtests: pytest.Subtests
) -> None:
    for option, words, hint in (
        ("cpu-bnd=none", "unrecognized option '--cpu-bnd=none'", "did you mean cpu-bind?"),
        ("wait=soon", 'Invalid numeric value "soon" for --wait.', "srun --help"),
        ("mpi=openmpy", "--mpi=openmpy is none of ", "srun --help"),
    ):
        with subtests.test(option=option):
            done = person(
                "submit", *RANKS, "--launcher", "srun", "--srun", option, "--dry-run", "step.py"
            )
            assert done.returncode == 2
            assert f"--srun: srun refuses it: {words}" in done.stderr
            assert hint in done.stderr


def test_what_sbatch_does_not_know_yet_is_refused_with_a_way_out(
    person: Hpcrun, cluster: Cluster
) -> None:
    version = tuple(
        int(part) for part in re.findall(r"\d+", cluster.slurm("sbatch", "--version"))[:2]
    )
    profile = person.write("again.yaml", "extends: a100\nrequeue: {times: 1, expedite: true}\n")
    for done, since, what in (
        (
            person("submit", *RANKS, "--nodes", "2", "--segment", "2", "step.py"),
            (23, 11),
            "segments need",
        ),
        (
            person("submit", "-P", str(profile), *RANKS[2:], "step.py"),
            (25, 11),
            "expedited requeue needs",
        ),
    ):
        if version >= since:  # which may not be set up for it
            assert done.returncode == 0 or "hint: this Slurm is not set up for it" in done.stderr, (
                done.stderr
            )
        else:
            assert done.returncode == 5
            assert f"hint: {what} Slurm {since[0]}.{since[1]}" in done.stderr
