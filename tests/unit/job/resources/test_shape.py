"""Nodes × GPUs × ranks: every way to say it, every way to contradict oneself, and several types of
GPUs.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import HpcrunError, PlanError, UsageError
from hpcrun.job.profile_model import Profile
from hpcrun.job.resources.shape import Shape, decide_shape, decide_size, for_gpu_type
from tests.unit.builders import cpu_cluster, laptop, plan, request, slurm_profile


@pytest.mark.parametrize(
    ("asked", "nodes", "each"),
    [
        ({}, 1, 1),
        ({"gpus": "4"}, 1, 4),
        ({"gpus": "4", "nodes": 2}, 2, 2),
        ({"gpus": "8"}, 2, 4),  # the fewest nodes that four per node allow
        ({"gpus": "6"}, 2, 3),
        ({"gpus_per_node": "2", "nodes": 3}, 3, 2),
        ({"gpus": "8", "gpus_per_node": "2"}, 4, 2),
        ({"gpus": "0"}, 1, 0),
        ({"gpus": "0", "nodes": 3}, 3, 0),
        ({"gpus_per_node": "0", "nodes": 2}, 2, 0),
        ({"gpus": "0", "gpus_per_node": "0"}, 1, 0),
        ({"gpus_per_node": "2", "nodes": "2-4"}, 4, 2),
    ],
)
def test_nodes_and_gpus_per_node_follow_from_what_was_said(
    asked: dict[str, Any], nodes: int, each: int
) -> None:
    shape = decide_shape(request(**asked), slurm_profile())
    assert shape.nodes == nodes
    assert shape.gpus_per_node == each
    assert shape.gpus == nodes * each


def test_the_launcher_and_the_ranks_do_not_matter_for_the_size() -> None:
    # an error of decide_shape: two ranks cannot be one process
    size = decide_size(request(gpus="8", launcher="python", nproc_per_node=2), slurm_profile())
    assert size.nodes == 2
    assert size.gpus_per_node == 4
    assert size.gpu_type == "a100"
    assert size.gpus == 8
    # an error of decide_shape: there is no srun
    assert decide_size(request(launcher="srun"), laptop()).gpus == 1


TYPED = slurm_profile(
    gpu={
        "types": {
            name: {"per_node": each, "nodes": 2}
            for name, each in (("a100", 4), ("h100", 8), ("l", 1))
        }
    }
)
TYPES: dict[str, Any] = {
    "h100": {
        "per_node": 8,
        "partition": "h100",
        "qos": "big",
        "cpu": {"per_node": 96, "per_gpu": 12},
        "memory": {"per_node": "1T", "per_gpu": "128G"},
        "time": {"max": "12:00:00"},
    },
    "l40s": {"per_node": 4},
}


def mixed(**gpu: Any) -> Profile:
    """A site with two types of GPUs."""
    rest: dict[str, Any] = {"cpu": {"per_node": 64, "per_gpu": 16}, "memory": {"per_gpu": "100G"}}
    time = {"default": "1:00:00", "max": "2-00:00:00"}
    return Profile(name="site", partition="gpu", gpu={"types": TYPES, **gpu}, time=time, **rest)


BIG, SITE = slurm_profile(), mixed()
UNTYPED = "profile 'site' has GPUs of several types: h100, l40s"


@pytest.mark.parametrize(
    ("error", "profile", "asked", "message", "hint"),
    [
        (
            UsageError,
            BIG,
            {"gpus": "3", "nodes": 2},
            "3 GPUs do not divide by 2 nodes: 3 / 2 = 1.50",
            "use --nodes 1, or ask for 2 or 4 GPUs",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "5", "nodes": 2},
            "do not divide",
            "use --nodes 5, or ask for 4 or 6 GPUs",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "9", "nodes": 2},
            "do not divide",
            "use --nodes 3, or ask for 8 GPUs",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "5"},
            "5 GPUs do not divide by 2 nodes: 5 / 2 = 2.50 (a node has 4)",
            "ask for 4 or 6 GPUs",
        ),
        (
            UsageError,
            slurm_profile(gpu={"type": "a40", "per_node": 4, "nodes": 1}),
            {"gpus": "5"},
            "5 / 2 = 2.50",
            "ask for 4 GPUs",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "1", "nodes": 2},
            "1 GPU does not divide by 2 nodes",
            "use --nodes 1, or ask for 2 GPUs",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "5", "gpus_per_node": "3"},
            "contradicts --gpus-per-node 3: 1 node × 3 = 3",
            "ask for 3 or 6 GPUs",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "4", "nodes": 2, "gpus_per_node": "4"},
            "--gpus 4 contradicts --gpus-per-node 4: 2 nodes × 4 = 8",
            "",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "4", "gpus_per_node": "0"},
            "--gpus 4 contradicts --gpus-per-node 0: 1 node × 0 = 0",
            "",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "0", "gpus_per_node": "2"},
            "--gpus 0 contradicts --gpus-per-node 2",
            "",
        ),
        (UsageError, BIG, {"nodes": 2}, "--nodes 2 does not say how many GPUs", ""),
        (
            UsageError,
            BIG,
            {"gpus": "a100:4", "gpus_per_node": "h100:2"},
            "two GPU types at once: a100 and h100",
            "",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "h100:4"},
            "profile 'big' has GPUs of type 'a100', not 'h100'",
            "ask for a100:N, or choose a profile with h100: hpcrun profile list",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "0", "launcher": "torchrun"},
            "--gpus 0 with torchrun does not say how many ranks",
            "add --nproc-per-node 4 (ranks on each node), or --launcher python",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "4", "launcher": "python", "nproc_per_node": 4},
            "the launcher python starts one process per node",
            "for 4 ranks on GPUs add --launcher torchrun",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "0", "nproc_per_node": 4},
            "--nproc-per-node 4: the launcher python starts one process per node",
            "for 4 ranks on CPUs add --launcher torchrun",
        ),
        (
            UsageError,
            BIG,
            {"gpus": "2", "nproc_per_node": 4},
            "--nproc-per-node 4 is more than the 2 GPUs of a node",
            "ask for --gpus-per-node 4",
        ),
        (UsageError, SITE, {}, UNTYPED, "choose one, such as --gpus h100:1, or request --gpus 0"),
        (
            UsageError,
            SITE,
            {"gpus": "2"},
            UNTYPED,
            "choose one, such as --gpus h100:2, or request --gpus 0",
        ),
        (
            UsageError,
            SITE,
            {"gpus": "h10:2"},
            "profile 'site' has no GPUs of type",
            "did you mean 'h100'? there are: h100, l40s",
        ),
        (
            UsageError,
            SITE,
            {"gpus": "any:2"},
            "profile 'site' has no GPUs of type",
            "there are: h100, l40s; for GPUs of any type: docs/profiles.md, Several GPU types",
        ),
        (
            PlanError,
            BIG,
            {"gpus": "8", "nodes": 1},
            "8 GPUs per node, but a node of profile 'big' has 4",
            "spread them over more nodes: --gpus 8 --nodes 2",
        ),
        (
            PlanError,
            BIG,
            {"gpus_per_node": "5"},
            "5 GPUs per node, but a node of profile 'big' has 4",
            "",
        ),
        (
            PlanError,
            TYPED,
            {"gpus": "a100:8", "nodes": 1},
            "8 GPUs",
            "spread them over more nodes: --gpus a100:8 --nodes 2",
        ),
        (
            PlanError,
            TYPED,
            {"gpus": "a100:16", "nodes": 1},
            "16 GPUs",
            "request less: --gpus a100:8 --nodes 2; or another type: --gpus h100:16 --nodes 2",
        ),
        (
            PlanError,
            TYPED,
            {"gpus": "a100:64", "nodes": 1},
            "64 GPUs",
            "request less: --gpus a100:8 --nodes 2",
        ),
        (
            PlanError,
            cpu_cluster(),
            {"gpus": "4"},
            "a node of profile 'thin' has 0",
            "choose a profile with GPUs (hpcrun profile list), or --gpus 0",
        ),
        (PlanError, laptop(), {"gpus": "2", "launcher": "srun"}, "there is no srun", ""),
        (
            UsageError,
            slurm_profile(),
            {"ntasks_per_node": 4},
            "--ntasks-per-node is for batch scripts, and train.py is none",
            "use --gpus, one rank per GPU, or --nproc-per-node N",
        ),
        (
            UsageError,
            laptop(),
            {"nodes": "2-4", "gpus_per_node": "1"},
            "--nodes 2-4: profile 'local' runs on this machine, where Slurm does not choose",
            "use --nodes 4",
        ),
        (
            UsageError,
            slurm_profile(),
            {"nodes": "2-4", "gpus": "a100:16"},
            "--gpus a100:16 does not say how many GPUs a node has",
            "use --gpus-per-node a100:4",
        ),
        (
            UsageError,
            slurm_profile(),
            {"nodes": "2-4"},
            "--nodes 2-4 does not say how many GPUs",
            "add --gpus-per-node 4, or --gpus 0 for a CPU job",
        ),
        (
            UsageError,
            slurm_profile(),
            {"nodes": "2-4", "gpus_per_node": "4", "segment": 2},
            "segments of 2 nodes do not divide 2-4 nodes",
            "--nodes 4 or 6",
        ),
        (
            UsageError,
            slurm_profile(),
            {"nodes": "1-2", "roles": ["a:1"], "args": ["--role", "b:1", "b.py"]},
            "--nodes 1-2 contradicts the roles, which have 1 + 1",
            "leave it out",
        ),
        # the limits are the types'
        (PlanError, SITE, {"gpus_per_node": "l40s:8"}, "a node of profile 'site' has 4", ""),
        (PlanError, SITE, {"gpus": "h100:1", "walltime_s": "24h"}, "longer than the 12:00:00", ""),
        (PlanError, SITE, {"gpus": "h100:1", "cpus": 97}, "has 96", ""),
        (PlanError, SITE, {"gpus": "h100:1", "memory_mb": "2T"}, "has 1024G", ""),
    ],
)
def test_what_cannot_be_is_refused_with_its_arithmetic_and_what_would_do(
    error: type[HpcrunError], profile: Profile, asked: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(error) as refused:
        plan(profile, **asked)
    assert message in refused.value.message
    assert hint in ("", refused.value.hint)


@given(st.integers(0, 12) | st.none(), st.integers(0, 6) | st.none(), st.integers(1, 6) | st.none())
def test_a_shape_always_is_what_was_asked_for(
    total: int | None, each: int | None, nodes: int | None
) -> None:
    asked = {"gpus": total, "gpus_per_node": each, "nodes": nodes}
    typed: dict[str, Any] = {
        name: value if name == "nodes" else str(value) for name, value in asked.items()
    }
    typed = {name: value for name, value in typed.items() if asked[name] is not None}
    try:
        shape = decide_shape(request(**typed), slurm_profile())
    except HpcrunError as error:
        assert error.message
        return
    assert shape.nodes >= 1
    assert shape.gpus == shape.nodes * shape.gpus_per_node
    assert total is None or shape.gpus == total
    assert each is None or shape.gpus_per_node == each
    assert nodes is None or shape.nodes == nodes
    assert shape.gpus_per_node <= 4


def test_the_gpu_type_is_the_one_named_else_the_profile_s(subtests: pytest.Subtests) -> None:
    for of_profile, typed, type_ in (
        ("a100", "4", "a100"),
        (None, "4", None),
        (None, "h100:4", "h100"),
    ):
        with subtests.test(of_profile=of_profile):
            profile = slurm_profile(gpu={"type": of_profile, "per_node": 4})
            assert decide_shape(request(gpus=typed), profile).gpu_type == type_


@pytest.mark.parametrize(
    ("asked", "launcher", "procs", "tasks"),
    [
        ({"gpus": "4", "nodes": 2}, "torchrun", 2, 1),
        ({"gpus": "4", "nodes": 2, "launcher": "srun"}, "srun", 2, 2),
        ({"gpus": "4", "nodes": 2, "launcher": "python"}, "python", 1, 1),
        ({"gpus": "4", "nproc_per_node": 2}, "torchrun", 2, 1),
        ({"gpus": "0"}, "python", 1, 1),
        ({"gpus": "0", "launcher": "torchrun", "nproc_per_node": 4}, "torchrun", 4, 1),
        ({"gpus": "0", "launcher": "srun"}, "srun", 1, 1),
        ({"gpus": "0", "launcher": "srun", "nproc_per_node": 3}, "srun", 3, 3),
        ({"gpus": "4", "launcher": "python", "nproc_per_node": 1}, "python", 1, 1),
    ],
)
def test_ranks_follow_from_the_launcher(
    asked: dict[str, Any], launcher: str, procs: int, tasks: int
) -> None:
    shape = decide_shape(request(**asked), slurm_profile())
    assert shape.launcher == launcher
    assert shape.procs_per_node == procs
    assert shape.tasks_per_node == tasks
    assert shape.world_size == shape.nodes * procs


def test_a_profile_s_launcher_is_taken_where_none_is_asked_for() -> None:
    assert decide_shape(request(gpus="4"), slurm_profile(launcher="srun")).launcher == "srun"
    assert (
        decide_shape(
            request(gpus="4", launcher="torchrun"), slurm_profile(launcher="srun")
        ).launcher
        == "torchrun"
    )


def test_a_local_job_takes_any_number_and_type_of_gpus() -> None:
    assert decide_shape(request(gpus="a100:8", nodes=2), laptop()) == Shape(
        2, 4, "a100", "torchrun", 4
    )
    assert decide_shape(request(), laptop()).gpus == 1


@pytest.mark.parametrize(
    ("asked", "directives"),
    [
        (
            {"gpus": "h100:4", "nodes": 2},
            {
                "partition": "h100",
                "qos": "big",
                "gres": "gpu:h100:2",
                "cpus-per-task": "24",
                "mem": "256G",
                "time": "01:00:00",
            },
        ),
        # what a type leaves out is the profile's, and its nodes are counted by its own GPUs
        (
            {"gpus_per_node": "l40s:2"},
            {"partition": "gpu", "gres": "gpu:l40s:2", "cpus-per-task": "32", "mem": "200G"},
        ),
        ({"gpus": "l40s:8"}, {"nodes": "2"}),
        ({"gpus": "h100:8"}, {"nodes": "1"}),
        ({"gpus": "h100:1", "partition": "preempt"}, {"partition": "preempt"}),
        ({"gpus": "0", "cpus": 8}, {"gres": None, "partition": "gpu"}),
    ],
)
def test_the_request_lies_over_its_type_and_the_type_over_the_profile(
    asked: dict[str, Any], directives: dict[str, str | None]
) -> None:
    made = plan(mixed(), **asked)
    assert {name: made.directive(name) for name in directives} == directives


def test_an_untyped_request_gets_the_profiles_own_type() -> None:
    assert plan(mixed(type="l40s"), gpus="2").directive("gres") == "gpu:l40s:2"
    own = mixed(type="a100", per_node=2)
    assert plan(own, gpus="2").directive("gres") == "gpu:a100:2"
    assert plan(own, gpus="a100:2").directive("partition") == "gpu"


def test_more_nodes_than_the_partition_has_are_refused_with_the_numbers() -> None:
    types = {**TYPES, "h100": {**TYPES["h100"], "nodes": 2}}
    with pytest.raises(PlanError) as refused:
        plan(mixed(types=types), gpus="h100:64")
    assert refused.value.message == (
        "8 nodes × 8 GPUs, but a job in partition h100 can have at most 2 nodes with h100 GPUs, 16 "
        "GPUs in all "
        "(profile 'site')"
    )
    assert (
        refused.value.hint
        == "request less: --gpus h100:16 --nodes 2; or another type: --gpus l40s:64 --nodes 16"
    )
    assert plan(mixed(types=types), gpus="h100:16").shape.nodes == 2
    assert plan(mixed(types=types), gpus="h100:64", partition="other").shape.nodes == 8
    with pytest.raises(PlanError, match="3 nodes × 8 GPUs"):  # the spare node counts as well
        plan(mixed(types=types), gpus="h100:16", restarts=1, spares=1)
    one = Profile(name="site", gpu={"per_node": 4, "nodes": 1}, card={"memory_gb": 80})
    with pytest.raises(
        PlanError, match="in the default partition can have at most 1 node with GPUs, 4 GPUs in all"
    ):
        plan(one, gpus="8")


def test_the_card_of_a_type_is_its_own_and_never_mixed_with_another() -> None:
    types = {"h100": {"per_node": 8, "card": {"memory_gb": 80}}, "l40s": {"per_node": 4}}
    profile = Profile(name="site", gpu={"types": types}, card={"memory_gb": 16, "power_w": 300})
    h100, l40s = (for_gpu_type(profile, request(gpus=f"{type_}:1")).card for type_ in types)
    assert h100.memory_gb == 80
    assert h100.power_w is None
    assert l40s.memory_gb == 16
    assert l40s.power_w == 300


@pytest.mark.parametrize("nodes", [3, 6, 9])
def test_segments_that_divide_the_nodes_are_used(nodes: int) -> None:
    made = plan(nodes=str(nodes), gpus_per_node="4", segment=3)
    assert made.directive("segment") == "3"


@pytest.mark.parametrize(
    ("nodes", "hint"), [(2, "--nodes 3"), (4, "--nodes 3 or 6"), (8, "--nodes 6 or 9")]
)
def test_segments_that_do_not_divide_the_nodes_are_refused(nodes: int, hint: str) -> None:
    with pytest.raises(UsageError, match="segments of 3 nodes do not divide") as caught:
        plan(nodes=str(nodes), gpus_per_node="4", segment=3)
    assert caught.value.hint == hint


def test_segments_of_a_profile_may_not_fit() -> None:
    made = plan(slurm_profile(segment=4), nodes="6", gpus_per_node="4")
    assert made.directive("segment") is None
    assert (
        "segments of 4 nodes do not divide 6 nodes: the profile's segment is not used" in made.notes
    )
    assert plan(slurm_profile(segment=4), nodes="8", gpus_per_node="4").directive("segment") == "4"
