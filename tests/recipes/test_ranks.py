"""Libraries whose ranks srun or torchrun starts, on two nodes with two ranks each."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun
from tests.recipes.conftest import output

pytestmark = [pytest.mark.slurm, pytest.mark.recipes]

JOB = ("-P", "a100", "--gpus", "4", "--nodes", "2")
MPI = """
from mpi4py import MPI
ranks = MPI.COMM_WORLD
print(ranks.allreduce(ranks.Get_rank() + 1), MPI.Get_library_version().split()[0])
"""


def test_mpi4py_with_mpich(person: Hpcrun) -> None:
    person.write("mpi.py", MPI)
    person("submit", *JOB, "--launcher", "srun", "--srun", "mpi=pmi2", "--wait", "mpi.py", check=True)
    assert output(person) == [f"[rank {rank}] 10 MPICH" for rank in range(4)]
