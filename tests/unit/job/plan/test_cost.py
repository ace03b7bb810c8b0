"""What a job can use at most, counted in the script as Slurm reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcrun.job.plan.cost import Cost, cost_of, cost_text, gpu_hours_text, total_hours
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.resources.cpus_memory_time import Machine
from tests.unit import builders


def cost(plan: Plan, gpus_of_node: int | None = 4, **more: Any) -> Cost:
    return cost_of(plan, builders.script(plan), gpus_of_node=lambda _: gpus_of_node, **more)


def of_lines(*lines: str, gpus_of_node: int | None = None) -> Cost:
    """The cost of a script with these directives."""
    script = "".join(f"#SBATCH {line}\n" for line in lines)
    text = f"#!/bin/bash\n{script}true\n#SBATCH --gpus=99\n"
    return cost_of(builders.plan(), text, gpus_of_node=lambda _: gpus_of_node)


def test_a_job_costs_gpus_times_time() -> None:
    plan = builders.plan(gpus="8", nodes=2, walltime_s="12h")
    assert cost_text(cost(plan)) == "at most 96 GPU-hours (8 GPUs × 12 h)"


def test_every_element_and_every_requeue_counts() -> None:
    values = [f"lr={','.join(map(str, range(10)))}"]
    plan = builders.plan(gpus="16", nodes=4, walltime_s="12h", requeue=5, sweep=values)
    assert cost_text(cost(plan)) == (
        "at most 1,920 GPU-hours (16 GPUs × 12 h × 10 elements); 11,520 with 5 requeues"
    )


def test_spare_nodes_count() -> None:
    plan = builders.plan(gpus="8", nodes=2, walltime_s="1h", restarts=1, spares=1)
    assert cost(plan).gpus == 12


def test_a_job_without_gpus_costs_none_of_them_without_a_time_limit_too() -> None:
    plan = builders.plan(gpus="0")
    assert cost(plan).gpu_hours == 0
    assert cost_text(cost(plan)) == "no GPU-hours"


def test_links_of_a_chain_count() -> None:
    plan = builders.plan(gpus="1", walltime_s="1h")
    chain = replace(cost(plan), links=3)
    assert cost_text(chain) == "at most 3 GPU-hours (1 GPU × 1 h × 3 links)"


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        (["--gpus-per-node=4", "--nodes=2"], 8),
        (["--gpus-per-node=4", "--nodes=2-3"], 12),
        (["--gres=gpu:a100:2,license:1"], 2),
        (["--gres=gpu:a100:2,gpu:h100:3"], 5),
        (["--gpus=a100:4,h100:2"], 6),
        (["--gpus-per-task=2", "--ntasks=8"], 16),
        (["--gpus-per-task=2", "--ntasks-per-node=2", "-N2"], 8),
        (["--gpus=2", "--gpus=8"], 8),
        (["-G16"], 16),
        (["--mem=4G"], 0),
    ],
)
def test_the_gpus_are_those_of_the_directives(lines: list[str], gpus: int) -> None:
    assert of_lines(*lines, "--time=1:00:00").gpus == gpus


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["--gpus=4"], "no time limit is set"),
        (["--gpus=4", "--time=0"], "the time limit 0 is none"),
        (["--gpus=4", "--time=UNLIMITED"], "the time limit UNLIMITED is none"),
        (["--gpus=4K", "--time=60"], "GPUs in --gpus=4K is not known"),
        (["--gres=gpu:4K", "--time=60"], "GPUs in --gres=gpu:4K is not known"),
        (["--gpus-per-node=4", "--ntasks=8", "--time=60"], "Slurm decides the number of nodes"),
        (["--gpus-per-node=4", "--nodelist=a,b", "--time=60"], "Slurm decides the number of"),
        (["--gpus-per-node=4", "--nodes=1k", "--time=60"], "--nodes=1k is not known"),
        (["--gpus-per-task=1", "--ntasks=1k", "--time=60"], "--ntasks=1k is not known"),
        (["--tres-per-task=gres/gpu:1", "--time=60"], "--tres-per-task is not known"),
        (["--tres-per-task=gres/GPU:1", "--time=60"], "--tres-per-task is not known"),
        (["--tres-per-task=gres/shard:1", "--time=60"], "--tres-per-task is not known"),
        (["--gpus-per-socket=2", "--time=60"], "--gpus-per-socket is not known"),
        (["--gres=GPU:8", "--time=60"], "GPUs in --gres=GPU:8 is not known"),
        (["--gres=shard:8", "--time=60"], "GPUs in --gres=shard:8 is not known"),
        (["--gres=tmp:8,mps:100", "--time=60"], "GPUs in --gres=tmp:8,mps:100 is not known"),
        (["--ntasks-per-gpu=1", "--ntasks=8", "--time=60"], "Slurm decides the number of GPUs"),
        (["--exclusive", "--time=60"], "whole nodes, whose GPUs are not known"),
        (["--gpus=1", "--time=60", "hetjob", "--gpus=8"], "a heterogeneous job"),
        (["--gpus=1", "--time=60", "--array=x"], "--array: 'x'"),
    ],
)
def test_what_is_unknown_is_not_zero(lines: list[str], reason: str) -> None:
    unknown = of_lines(*lines)
    assert unknown.gpu_hours is None
    assert unknown.gpu_hours_with_requeues is None
    assert reason in cost_text(unknown)


def test_lines_of_pbs_are_read_by_sbatch_too() -> None:
    script = "#!/bin/bash\n#SBATCH --gpus=1 --time=60\n#PBS -l nodes=16:gpus=8\ntrue\n"
    assert cost_of(builders.plan(), script, gpus_of_node=lambda _: 8).gpu_hours is None


def test_whole_nodes_have_all_of_their_gpus() -> None:
    lines = ("--gpus-per-node=1", "--nodes=2", "--time=60")
    for exclusive in ("--exclusive", "--exclusive=exclusive", "--exclusive=topo"):
        assert of_lines(exclusive, *lines, gpus_of_node=8).gpu_hours == 16
    assert of_lines("--exclusive=user", *lines, gpus_of_node=8).gpu_hours == 2


def test_a_whole_node_without_gpus_has_none() -> None:
    assert of_lines("--exclusive", "--time=60", gpus_of_node=0).gpu_hours == 0


def test_a_job_without_gpus_can_get_a_node_of_any_type() -> None:
    assert of_lines("--exclusive", "--time=60", gpus_of_node=4).gpu_hours is None


@pytest.mark.parametrize(
    ("plan", "hours"),
    [
        (builders.plan(walltime_s="1h", requeue=2), 3),
        (builders.plan(walltime_s="1h"), 1),
    ],
    ids=["by hpcrun", "never"],
)
def test_hpcrun_counts_its_own_requeues(plan: Plan, hours: int) -> None:
    assert cost(plan).gpu_hours_with_requeues == hours


def test_a_requeue_of_the_script_has_no_number() -> None:
    again = of_lines("--gpus=2", "--time=60", "--requeue")
    assert again.gpu_hours == 2
    assert again.gpu_hours_with_requeues is None
    assert cost_text(again) == (
        "at most 2 GPU-hours (2 GPUs × 1 h); unknown with requeues: Slurm may requeue it any "
        "number of times; --requeue N limits that"
    )
    assert of_lines("--time=60", "--requeue").gpu_hours_with_requeues == 0


def test_a_directive_behind_a_line_separator_of_python_is_not_another_line() -> None:
    assert of_lines("--comment=x\u2028#SBATCH --gpus=1", "--gpus=4", "--time=60").gpus == 4


def test_a_local_job_without_a_time_limit_is_unknown() -> None:
    machine = Machine(cpus=8, gpu_ids=("0", "1"))
    plan = builders.plan(builders.laptop(), gpus="2", machine=machine)
    assert cost(plan).gpu_hours is None
    assert cost_text(cost(plan)) == "GPU-hours unknown: no time limit"


@pytest.mark.parametrize(("visible", "gpus"), [("0,1,2", 3), ("0", 1), ("", 0), ("-1", 0)], ids=str)
def test_gpus_that_a_variable_shows_to_a_local_job_count(visible: str, gpus: int) -> None:
    env = (("CUDA_VISIBLE_DEVICES", visible),)
    plan = builders.plan(builders.laptop(), gpus="0", walltime_s="1h", env=env)
    assert cost(plan).gpus == gpus


def test_gpus_that_a_secret_shows_to_a_local_job_are_unknown() -> None:
    plan = builders.plan(builders.laptop(), gpus="0", walltime_s="1h")
    hidden = replace(plan, env=(("CUDA_VISIBLE_DEVICES", None),))
    assert cost(hidden).gpu_hours is None


def test_elements_on_this_machine_count() -> None:
    machine = Machine(cpus=8, gpu_ids=("0", "1"))
    plan = builders.plan(builders.laptop(), gpus="2", walltime_s="1h", machine=machine)
    assert cost(plan, elements=3).gpu_hours == 6


@pytest.mark.parametrize(
    ("hours", "text"),
    [(1.0, "1 GPU-hour"), (0.01, "0.1 GPU-hours"), (1920.0, "1,920 GPU-hours"), (2.31, "2.4")],
)
def test_hours_are_rounded_up(hours: float, text: str) -> None:
    assert gpu_hours_text(hours).startswith(text)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert total_hours([1.0, None]) is None
    assert total_hours([1.0, 2.0]) == 3
