"""Launchers that bring their own ranks, on a real Slurm: each rank starts once."""

from __future__ import annotations

import runpy

import pytest

from tests.harness import REPO, Hpcrun

pytestmark = pytest.mark.slurm

RANK = """
import os
env = os.environ
with open("ranks", "a") as file:
    file.write(f"{env['RANK']} of {env['WORLD_SIZE']} on {env['SLURMD_NODENAME']}\\n")
"""
# Slurm's part of MPI: what the library reads in MPI_Init. The tests need no MPI library.
MPI = """
import os
try:
    import mpi4py
except ImportError:
    mpi4py = None
with open("ranks", "a") as file:
    file.write(f"{os.environ.get('PMI_RANK')} of {os.environ.get('PMI_SIZE')}\\n")
"""
LIBRARIES_OF_MPI = {"pmix": "Open MPI", "pmi2": "MPICH, Intel MPI"}
# as MPICH's mpirun: it asks Slurm for a step, unless it is told to start its ranks here
MPIRUN = """#!/bin/bash
[ "$HYDRA_BOOTSTRAP" = fork ] || exec srun --ntasks="$2" "${@:3}"
for ((rank = 0; rank < $2; rank++)); do RANK=$rank WORLD_SIZE=$2 "${@:3}" & done
wait
"""


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    for name, text in (("rank.py", RANK), ("mpi.py", MPI), ("mpirun", MPIRUN)):
        as_researcher.program(
            name, text if text.startswith("#!") else f"#!/usr/bin/env python3\n{text}"
        )
    return as_researcher


def ranks(person: Hpcrun) -> list[str]:
    return sorted((person.folder / "ranks").read_text().splitlines())


@pytest.mark.versions
def test_an_mpirun_starts_its_ranks_and_asks_for_no_step(person: Hpcrun) -> None:
    newer = {"HYDRA_BOOTSTRAP": "slurm"}  # what Slurm 24.11 puts into a job's environment
    env = {"PATH": f"{person.folder}:{person.environ['PATH']}", **newer}
    done = person(
        "submit",
        "-P",
        "a100",
        "--gpus",
        "2",
        "--wait",
        "mpirun",
        "-np",
        "2",
        "python",
        "rank.py",
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ranks(person) == ["0 of 2 on a100-1", "1 of 2 on a100-1"]


@pytest.mark.needs("strace")
def test_a_rank_of_srun_asks_no_more_of_its_folder_than_it_did(person: Hpcrun) -> None:
    traces = runpy.run_path(str(REPO / "benchmarks/traces.py"))
    traces["trace_tasks"]("srun", person.folder, person.home, REPO)
    words = ("-P", "a100", "--gpus", "0", "--nodes", "2", "--launcher", "srun", "--wait")
    folder = person.submit(*words, "rank.py", check=True)
    below = {"run": [str(folder), str(person.runs / ".programs")]}
    files = sorted(person.folder.glob("[0-9]*.[01]"))
    assert len(files) == 2
    for trace in files:
        (count,) = traces["count_requests"](trace, below)["rank"]
        assert count["run"] <= traces["AT_MOST"]["rank"]


def mpi_types_of_srun(person: Hpcrun) -> list[str]:
    """Those of pmix and pmi2 that this Slurm has: not each of Debian's Slurms has pmix."""
    listed = person.run("srun", "--mpi=list", check=True)
    words = (listed.stdout + listed.stderr).split()
    return [kind for kind in LIBRARIES_OF_MPI if kind in words]


def test_mpi_over_two_nodes_needs_a_type_that_the_note_and_the_hint_name(person: Hpcrun) -> None:
    job = ("submit", "-P", "a100", "--gpus", "4", "--nodes", "2")
    kinds = mpi_types_of_srun(person)
    types = " or ".join(f"--srun mpi={kind} ({LIBRARIES_OF_MPI[kind]})" for kind in kinds)
    done = person(*job, "--launcher", "srun", "--wait", "mpi.py")
    assert (done.returncode, ranks(person)) == (0, ["None of None"] * 4), done.stdout + done.stderr
    note = (
        "mpi.py imports mpi4py, and each of the 4 ranks would be an MPI job of its own: add "
        f"{types}"
    )
    assert note in " ".join(done.stdout.split())
    refused = person(*job, "mpirun", "-np", "4", "python", "mpi.py")
    assert refused.returncode == 2
    assert [kind for kind in kinds if f"--srun mpi={kind}" in refused.stderr] == kinds
    (line,) = (text for text in refused.stderr.splitlines() if text.startswith("hint: "))
    assert line == f"hint: hpcrun {' '.join(job)} --launcher srun --srun mpi={kinds[0]} mpi.py"
    (person.folder / "ranks").unlink()
    # without Debian's libpmix2, pmix is in the list and fails
    _, *words = line.removeprefix("hint: ").replace(f"mpi={kinds[0]}", "mpi=pmi2 --wait").split()
    done = person(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "an MPI job of its own" not in done.stdout
    assert ranks(person) == [f"{rank} of 4" for rank in range(4)]
