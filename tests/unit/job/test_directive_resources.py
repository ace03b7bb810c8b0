"""The numbers of the plan are those that the final directives ask Slurm for."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import PlanError, UsageError
from tests.unit.given import cluster, cpu_cluster, plan, script

SIZED = cluster(
    cpu={"per_node": 64, "per_gpu": 16}, memory={"per_node": "500G", "per_gpu": "100G"}, time={"default": "1:00:00"}
)


@pytest.mark.parametrize(
    ("asked", "cpus", "memory_mb", "walltime_s"),
    [
        ({}, 32, 200 * 1024, 3600),
        ({"cpus": 8}, 8, 200 * 1024, 3600),
        ({"launcher": "srun"}, 32, 200 * 1024, 3600),
        ({"no_sbatch": ["cpus-per-task"]}, None, 200 * 1024, 3600),
        ({"no_sbatch": ["mem"]}, 32, None, 3600),
        ({"no_sbatch": ["time"]}, 32, 200 * 1024, None),
        ({"sbatch": ["mem=4G"]}, 32, 4096, 3600),
        ({"sbatch": ["mem=0"]}, 32, 0, 3600),
        ({"sbatch": ["mem-per-cpu=2G"]}, 32, 64 * 1024, 3600),
        ({"sbatch": ["mem-per-cpu=2G"], "no_sbatch": ["cpus-per-task"]}, None, None, 3600),
        ({"sbatch": ["mem-per-gpu=64G"]}, 32, 128 * 1024, 3600),
        ({"sbatch": ["exclusive"]}, 32, 200 * 1024, 3600),
        ({"sbatch": ["exclusive", "mem-per-cpu=2G"]}, 32, 128 * 1024, 3600),
        ({"sbatch": ["exclusive", "mem-per-gpu=64G"]}, 32, 256 * 1024, 3600),
        ({"sbatch": ["exclusive=user", "mem-per-gpu=64G"]}, 32, 128 * 1024, 3600),
        ({"sbatch": ["time=2:00:00"]}, 32, 200 * 1024, 7200),
        ({"sbatch": ["time=UNLIMITED"]}, 32, 200 * 1024, None),
    ],
)
def test_each_number_is_what_the_directives_say(
    asked: dict[str, Any], cpus: int | None, memory_mb: int | None, walltime_s: int | None
) -> None:
    decided = plan(SIZED, gpus="4", nodes=2, **asked)
    assert (decided.cpus_per_node, decided.memory_mb, decided.walltime_s) == (cpus, memory_mb, walltime_s)
    tasks = int(decided.directive("ntasks-per-node") or 0)
    each = decided.directive("cpus-per-task")
    assert decided.cpus_per_node == (None if each is None else int(each) * tasks)


@pytest.mark.parametrize("launcher", ["torchrun", "srun", "python"])
@pytest.mark.parametrize("preflight", [None, "first"])
@pytest.mark.parametrize("removed", [(), ("cpus-per-task",)])
def test_srun_asks_for_the_cpus_of_the_directives(launcher: str, preflight: str | None, removed: tuple[str]) -> None:
    decided = plan(SIZED, gpus="4", nodes=2, launcher=launcher, preflight=preflight, no_sbatch=removed)
    text = script(decided).text
    each = decided.directive("cpus-per-task")
    body = [line for line in text.splitlines() if not line.startswith("#")]
    said = [word for line in body for word in line.split() if word.startswith("--cpus-per-task")]
    whole = [f"--cpus-per-task={decided.cpus_per_node}"] if preflight else []
    assert said == ([*whole, f"--cpus-per-task={each}"] if each else [])
    fixed = [line.partition(" #")[0] for line in body if line.startswith("export OMP_NUM_THREADS=")]
    assert fixed == (
        [f"export OMP_NUM_THREADS={decided.cpus_per_rank}"]
        if each
        else [f"export OMP_NUM_THREADS=$((SLURM_CPUS_ON_NODE < {2 * decided.shape.procs_per_node} ? 1 : "
              f"SLURM_CPUS_ON_NODE / {decided.shape.procs_per_node}))"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("form", "nodes", "removed", "said"),
    [
        ("gres", 1, "gres", "no directive requests the 4 GPUs of each node: 4 ranks would start"),
        ("gres", 2, "gres", "no directive requests the 2 GPUs"),
        ("gpus-per-node", 2, "gpus-per-node", "no directive requests"),
        ("gpus", 1, "gpus", "no directive requests"),
        ("gpus", 2, "gpus-per-node", "--gpus=a100:4 alone lets Slurm divide the GPUs freely among 2 nodes"),
    ],
)
def test_ranks_without_their_gpus_are_refused(form: str, nodes: int, removed: str, said: str) -> None:
    profile = cluster(gpu={"type": "a100", "per_node": 4, "directive": form})
    with pytest.raises(UsageError, match=said) as refused:
        plan(profile, gpus="4", nodes=nodes, no_sbatch=[removed])
    assert refused.value.hint


def test_gpus_per_node_is_enough_without_their_sum() -> None:
    profile = cluster(gpu={"type": "a100", "per_node": 4, "directive": "gpus"})
    assert plan(profile, gpus="4", nodes=2, no_sbatch=["gpus"]).directive("gpus-per-node") == "a100:2"


@pytest.mark.parametrize(("key", "value"), [("gpu-bind", "single:1"), ("tres-bind", "gres/gpu:single:1")])
def test_a_binding_that_hides_gpus_from_ranks_is_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"--{key}={value} would show each of the 2 ranks of a node only some"):
        plan(gpus="2", launcher="srun", sbatch=[f"{key}={value}"])
    assert plan(gpus="2", launcher="srun", sbatch=[f"{key}=none"]).directive(key) == "none"
    assert plan(gpus="2", sbatch=[f"{key}={value}"]).directive(key) == value  # torchrun is one task, which sees all
    assert plan(cpu_cluster(), gpus="0", cpus=2, sbatch=[f"{key}={value}"]).directive(key) == value


@pytest.mark.parametrize("item", ["tres-per-task=gres/gpu:1", "gpus-per-socket=1", "gpus-per-task=1", "overcommit"])
def test_what_changes_a_rank_s_share_behind_the_plan_s_back_is_refused(item: str) -> None:
    with pytest.raises(UsageError, match="hpcrun sets --"):
        plan(sbatch=[item])


def test_memory_is_within_a_node_however_it_was_said() -> None:
    for asked in ({"memory_mb": "600G"}, {"sbatch": ["mem=600G"]}, {"sbatch": ["mem-per-gpu=300G"]}):
        with pytest.raises(PlanError, match="600G of memory, but a node of profile 'big' has 500G"):
            plan(SIZED, gpus="2", **dict[str, Any](asked))
