"""Options of srun and torchrun, segments and expedited requeue, on a real Slurm."""

from __future__ import annotations

import re

import pytest

from tests.harness import Cluster, Hpcrun

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
