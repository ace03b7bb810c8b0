"""CPUs, memory, time, idle and local GPUs: what was asked for, else the profile's, and what
directives make of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.resources.cpus_memory_time import Machine, share_gpus
from hpcrun.job.resources.shape import decide_shape
from hpcrun.views.plan_text import plan_lines
from tests.unit.builders import cpu_cluster, laptop, plan, request, script, slurm_profile

G = 1024
HOUR = 3600


@pytest.mark.parametrize(
    ("asked", "per_node"),
    [
        ({"gpus": "4", "cpus": 12}, 12),
        ({"gpus": "4", "cpus_per_task": 8}, 8),  # torchrun: one task per node
        ({"gpus": "4", "launcher": "srun", "cpus_per_task": 8}, 32),  # srun: one task per GPU
        ({"gpus": "4", "cpus_per_gpu": 6}, 24),
        ({"gpus": "4", "launcher": "srun", "cpus": 16, "cpus_per_task": 4, "cpus_per_gpu": 4}, 16),
        ({"gpus": "0", "cpus": 3}, 3),
        ({"gpus": "4"}, 40),  # the profile's ten with each GPU
        ({"gpus": "4", "launcher": "srun"}, 40),
        ({"gpus": "0"}, 1),
        ({"gpus": "0", "launcher": "torchrun", "nproc_per_node": 6}, 6),
    ],
)
def test_cpus_of_a_node_follow_from_what_was_said(asked: dict[str, Any], per_node: int) -> None:
    assert (
        plan(slurm_profile(cpu={"per_node": 64, "per_gpu": 10}), **asked).cpus_per_node == per_node
    )


def test_the_profile_s_share_is_never_more_than_a_node_has_and_divides_by_the_tasks() -> None:
    profile = slurm_profile(cpu={"per_node": 30, "per_gpu": 10})
    assert plan(profile, gpus="4").cpus_per_node == 30
    assert plan(profile, gpus="4", launcher="srun").cpus_per_node == 28
    assert plan(gpus="4").cpus_per_node == 4  # without a share: one for each rank
    assert plan(cpu_cluster()).cpus_per_node == 1


SUM, EACH = (
    {"gpu": {"type": "a100", "per_node": 4, "directive": form}}
    for form in ("gpus", "gpus-per-node")
)


@pytest.mark.parametrize(
    ("profile", "asked", "message", "hint"),
    [
        (
            {},
            {"gpus": "4", "cpus": 8, "cpus_per_gpu": 4},
            "CPUs per node contradict each other: --cpus 8 = 8, but --cpus-per-gpu 4 × 4 GPUs = 16",
            "use only one",
        ),
        (
            {},
            {"gpus": "4", "launcher": "srun", "cpus": 10},
            "10 CPUs per node do not divide by 4 tasks: 10 / 4 = 2.50",
            "ask for --cpus 8 or 12",
        ),
        (
            {},
            {"gpus": "0", "cpus_per_gpu": 4},
            "--cpus-per-gpu has no effect in a job without GPUs",
            "use --cpus N",
        ),
        # ranks without their GPUs
        (
            {},
            {"gpus": "4", "no_sbatch": ["gres"]},
            "no directive requests the 4 GPUs of each node: 4 ranks would start",
            "leave out --no-sbatch",
        ),
        (
            EACH,
            {"gpus": "4", "nodes": 2, "no_sbatch": ["gpus-per-node"]},
            "no directive requests",
            "leave out",
        ),
        (SUM, {"gpus": "4", "no_sbatch": ["gpus"]}, "no directive requests", "leave out"),
        (
            SUM,
            {"gpus": "4", "nodes": 2, "no_sbatch": ["gpus-per-node"]},
            "--gpus=a100:4 alone lets Slurm divide the GPUs freely among 2 nodes",
            "leave out --no-sbatch",
        ),
        # options that say nothing without another one
        ({}, {"retry_on_failure": True}, "--retry-on-failure", "--requeue N"),
        ({}, {"exclude_bad_nodes": True}, "--exclude-bad-nodes", "--requeue N"),
        ({}, {"retry_on_failure": True, "warn_s": "2m"}, "--retry-on-failure", "--requeue N"),
        ({"gpu": {}}, {"cancel_idle_s": "30m"}, "this job has no GPU that could be idle", ""),
        ({}, {"cancel_idle_s": "30m", "gpus": "0"}, "this job has no GPU that could be idle", ""),
        (
            {"sample_use": False},
            {"cancel_idle_s": "30m"},
            "--cancel-idle needs samples of the GPUs",
            "",
        ),
        (
            {"sample_use": False, "cancel_idle": "2h"},
            {},
            "cancel_idle needs samples of the GPUs",
            "",
        ),
        ({}, {"cancel_idle_s": "30"}, "'30' has no unit; write 30m for minutes", ""),
    ],
)
def test_what_contradicts_itself_or_has_no_effect_is_refused(
    profile: dict[str, Any], asked: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        plan(slurm_profile(**profile), **asked)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            {"cpus": 65},
            "65 CPUs per node, but a node of profile 'big' has 64",
            "ask for --cpus 64 or fewer",
        ),
        (
            {"memory_mb": "201G"},
            "201G of memory, but a node of profile 'big' has 200G",
            "ask for --mem 200G or less",
        ),
        ({"sbatch": ["mem=201G"]}, "201G of memory, but a node", "ask for --mem 200G or less"),
        (
            {"gpus": "2", "sbatch": ["mem-per-gpu=101G"]},
            "202G of memory, but a node",
            "ask for --mem 200G or less",
        ),
        (
            {"walltime_s": "72h"},
            "--time 3-00:00:00 is longer than the 2-00:00:00 that profile 'big' allows",
            "ask for --time 2-00:00:00 or less, or use a profile whose partition allows more",
        ),
    ],
)
def test_more_than_the_profile_has_is_refused(
    asked: dict[str, Any], message: str, hint: str
) -> None:
    limits = {"cpu": {"per_node": 64}, "memory": {"per_node": "200G"}, "time": {"max": "48h"}}
    for scheduler in ("slurm",) if "sbatch" in asked else ("slurm", "local"):
        with pytest.raises(PlanError) as refused:
            plan(slurm_profile(scheduler=scheduler, **limits), **asked)
        assert message in refused.value.message
        assert refused.value.hint == hint


def test_local_nodes_share_this_machine_s_cpus() -> None:
    assert plan(laptop(), machine=Machine(8), gpus="4", nodes=2).cpus_per_node == 4
    assert plan(laptop(), machine=Machine(8), gpus="1").cpus_per_node == 8
    # never fewer than ranks
    assert plan(laptop(), machine=Machine(2), gpus="4", nodes=2).cpus_per_node == 2
    assert plan(laptop(), machine=Machine(8), gpus="4", nodes=2, cpus=3).cpus_per_node == 3


@pytest.mark.parametrize(
    ("asked", "megabytes"),
    [
        ({"gpus": "1"}, 60 * G),
        ({"gpus": "4"}, 200 * G),  # never more than a node has
        ({"gpus": "4", "nodes": 2}, 120 * G),
        ({"gpus": "4", "memory_mb": "8G"}, 8 * G),
        ({"gpus": "4", "memory_mb": "0"}, 0),
        ({"gpus": "0"}, None),
    ],
)
def test_memory_of_a_node_follows_from_what_was_said(
    asked: dict[str, Any], megabytes: int | None
) -> None:
    assert (
        plan(slurm_profile(memory={"per_node": "200G", "per_gpu": "60G"}), **asked).memory_mb
        == megabytes
    )
    assert plan(slurm_profile(memory={"per_node": "200G"}), gpus="4").memory_mb is None


@pytest.mark.parametrize(
    ("time", "asked", "seconds"),
    [
        ({}, {}, None),
        ({"default": "1:00:00"}, {}, HOUR),
        ({"default": "1:00:00", "max": "2-00:00:00"}, {"walltime_s": "2h"}, 2 * HOUR),
        ({"max": "2-00:00:00"}, {"walltime_s": "2-00:00:00"}, 48 * HOUR),
        ({}, {"walltime_s": "400h"}, 400 * HOUR),
    ],
)
def test_the_time_limit_is_that_of_the_option_else_the_profile_s(
    time: dict[str, str], asked: dict[str, Any], seconds: int | None
) -> None:
    assert plan(slurm_profile(time=time), **asked).walltime_s == seconds


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 20))
def test_local_nodes_never_share_a_gpu(nodes: int, each: int, here: int) -> None:
    shape = decide_shape(request(nodes=nodes, gpus_per_node=str(each)), laptop())
    ids = tuple(str(number) for number in range(here))
    shares, note = share_gpus(laptop(), shape, Machine(8, ids))
    if nodes * each > here:
        assert shares == ()
        assert note is not None
        return
    assert note is None
    assert [len(share) for share in shares] == [each] * nodes
    handed_out = [gpu for share in shares for gpu in share]
    assert len(set(handed_out)) == len(handed_out)
    assert set(handed_out) <= set(ids)


def test_neither_slurm_jobs_nor_cpu_jobs_share_gpus_and_too_few_are_noted() -> None:
    ids = ("0", "1")
    assert share_gpus(
        slurm_profile(), decide_shape(request(gpus="2"), slurm_profile()), Machine(8, ids)
    ) == (
        (),
        None,
    )
    assert share_gpus(laptop(), decide_shape(request(gpus="0"), laptop()), Machine(8, ids)) == (
        (),
        None,
    )
    for asked, here, note in (
        ({"gpus": "4", "nodes": 2}, (), "no GPU here for 4 ranks"),
        ({"gpus": "2"}, ("0",), "1 GPU here for 2 ranks"),
    ):
        said = share_gpus(laptop(), decide_shape(request(**asked), laptop()), Machine(8, here))[1]
        assert (said or "").startswith(f"{note}: the ranks run on CPUs")


SIZED = slurm_profile(
    cpu={"per_node": 64, "per_gpu": 16},
    memory={"per_node": "500G", "per_gpu": "100G"},
    time={"default": "1:00:00"},
)


@pytest.mark.parametrize(
    ("asked", "cpus", "memory_mb", "walltime_s"),
    [
        ({}, 32, 200 * 1024, 3600),
        ({"launcher": "srun"}, 32, 200 * 1024, 3600),
        ({"no_sbatch": ["cpus-per-task"]}, None, 200 * 1024, 3600),
        ({"no_sbatch": ["mem"]}, 32, None, 3600),
        ({"no_sbatch": ["time"]}, 32, 200 * 1024, None),
        ({"sbatch": ["mem=4G"]}, 32, 4096, 3600),
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
    assert decided.cpus_per_node == cpus
    assert decided.memory_mb == memory_mb
    assert decided.walltime_s == walltime_s
    tasks = int(decided.directive("ntasks-per-node") or 0)
    each = decided.directive("cpus-per-task")
    assert decided.cpus_per_node == (None if each is None else int(each) * tasks)


@pytest.mark.parametrize("preflight", [None, "first"])
def test_srun_asks_for_the_cpus_of_the_directives(preflight: str | None) -> None:
    given = plan(SIZED, gpus="4", nodes=2, launcher="srun", preflight=preflight)
    words = [word for word in script(given).split() if word.startswith("--cpus-per-task=")]
    whole = [f"--cpus-per-task={given.cpus_per_node}"] if preflight else []
    assert words == [
        f"--cpus-per-task={given.directive('cpus-per-task')}",
        *whole,
        "--cpus-per-task=16",
    ]
    left_out = script(
        plan(SIZED, gpus="4", nodes=2, preflight=preflight, no_sbatch=["cpus-per-task"])
    )
    assert "--cpus-per-task" not in left_out
    assert (
        "export OMP_NUM_THREADS=$((SLURM_CPUS_ON_NODE < 4 ? 1 : SLURM_CPUS_ON_NODE / 2))\n"
        in left_out
    )


def test_gpus_per_node_is_enough_without_their_sum() -> None:
    assert (
        plan(slurm_profile(**SUM), gpus="4", nodes=2, no_sbatch=["gpus"]).directive("gpus-per-node")
        == "a100:2"
    )


@pytest.mark.parametrize(
    ("key", "value"), [("gpu-bind", "single:1"), ("tres-bind", "gres/gpu:single:1")]
)
def test_a_binding_that_hides_gpus_from_ranks_is_refused(key: str, value: str) -> None:
    with pytest.raises(
        UsageError, match=f"--{key}={value} would show each of the 2 ranks of a node only some"
    ):
        plan(gpus="2", launcher="srun", sbatch=[f"{key}={value}"])
    assert plan(gpus="2", launcher="srun", sbatch=[f"{key}=none"]).directive(key) == "none"
    # torchrun is one task, which sees all
    assert plan(gpus="2", sbatch=[f"{key}={value}"]).directive(key) == value
    assert plan(cpu_cluster(), gpus="0", cpus=2, sbatch=[f"{key}={value}"]).directive(key) == value


@pytest.mark.parametrize(
    ("profile", "asked", "idle_s"),
    [
        ({}, {}, None),
        ({}, {"cancel_idle_s": "30m"}, 1800),
        ({"cancel_idle": "2h"}, {}, 7200),
        ({"cancel_idle": "2h"}, {"cancel_idle_s": "30m"}, 1800),
        ({"cancel_idle": "2h"}, {"cancel_idle_s": "0"}, None),
        ({"cancel_idle": "2h"}, {"gpus": "0"}, None),
        ({"cancel_idle": "2h"}, {"preflight": "only"}, None),
    ],
)
def test_the_limit_is_that_of_the_option_then_that_of_the_profile(
    profile: dict[str, Any], asked: dict[str, Any], idle_s: int | None
) -> None:
    assert plan(slurm_profile(**profile), **asked).cancel_idle_s == idle_s


def test_the_script_and_the_plan_show_it() -> None:
    decided = plan(cancel_idle_s="90m", requeue="2", gpus="8", nodes="2")
    text = script(decided)
    assert 'job --came "$came" --grace 100 --requeue 2 --cancel-idle 5400 -- \\\n' in text
    (line,) = [line for line in plan_lines(decided) if line.startswith("idle ")]
    assert line == "idle       ends if all of its GPUs are idle for 01:30:00"
    assert 'job --came "$came" --sample 0 -- \\\n' in script(plan(slurm_profile(sample_use=False)))
    assert "--sample" not in script(plan())
