"""Nodes × GPUs × ranks: every way to say it, every way to contradict oneself, and several types of GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import HpcrunError, PlanError, UsageError
from hpcrun.job.profile import Profile
from hpcrun.job.shape import Shape, decide_shape, for_gpu_type
from tests.unit.given import cluster, cpu_cluster, laptop, plan, request


@pytest.mark.parametrize(
    ("asked", "nodes", "each"),
    [
        ({}, 1, 1),
        ({"nodes": 1}, 1, 1),
        ({"gpus": "1"}, 1, 1),
        ({"gpus": "4"}, 1, 4),
        ({"gpus": "4", "nodes": 2}, 2, 2),
        ({"gpus": "4", "nodes": 4}, 4, 1),
        ({"gpus": "8"}, 2, 4),  # the fewest nodes that four per node allow
        ({"gpus": "6"}, 2, 3),
        ({"gpus": "9"}, 3, 3),
        ({"gpus_per_node": "3"}, 1, 3),
        ({"gpus_per_node": "2", "nodes": 3}, 3, 2),
        ({"gpus": "8", "gpus_per_node": "2"}, 4, 2),
        ({"gpus": "4", "nodes": 2, "gpus_per_node": "2"}, 2, 2),
        ({"gpus": "0"}, 1, 0),
        ({"gpus": "0", "nodes": 3}, 3, 0),
        ({"gpus_per_node": "0", "nodes": 2}, 2, 0),
        ({"gpus": "0", "gpus_per_node": "0"}, 1, 0),
    ],
)
def test_nodes_and_gpus_per_node_follow_from_what_was_said(asked: dict[str, Any], nodes: int, each: int) -> None:
    shape = decide_shape(request(**asked), cluster())
    assert (shape.nodes, shape.gpus_per_node, shape.gpus) == (nodes, each, nodes * each)


@pytest.mark.parametrize(
    ("asked", "arithmetic"),
    [
        ({"gpus": "3", "nodes": 2}, "3 GPUs do not divide by 2 nodes: 3 / 2 = 1.50"),
        ({"gpus": "1", "nodes": 2}, "1 GPU cannot be split over 2 nodes"),
        ({"gpus": "5"}, "5 GPUs do not divide by 2 nodes: 5 / 2 = 2.50 (a node has 4)"),
        (
            {"gpus": "4", "nodes": 2, "gpus_per_node": "4"},
            "--gpus 4 contradicts --nodes 2 --gpus-per-node 4: 2 × 4 = 8",
        ),
        ({"gpus": "4", "gpus_per_node": "3"}, "--gpus 4 does not divide by --gpus-per-node 3: 4 / 3 = 1.33"),
        ({"gpus": "4", "gpus_per_node": "0"}, "--gpus 4 contradicts --gpus-per-node 0"),
        ({"gpus": "0", "gpus_per_node": "2"}, "--gpus 0 contradicts --gpus-per-node 2"),
        ({"gpus": "0", "gpus_per_node": "2", "nodes": 2}, "2 × 2 = 4"),
        ({"nodes": 2}, "--nodes 2 does not say how many GPUs"),
        ({"gpus": "a100:4", "gpus_per_node": "h100:2"}, "two GPU types at once: a100 and h100"),
    ],
)
def test_a_contradiction_is_refused_and_shows_its_arithmetic(asked: dict[str, Any], arithmetic: str) -> None:
    with pytest.raises(UsageError) as refused:
        decide_shape(request(**asked), cluster())
    assert arithmetic in refused.value.message


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ({"gpus": "3", "nodes": 2}, "use --nodes 1, or ask for 2 or 4 GPUs"),
        ({"gpus": "5", "nodes": 2}, "use --nodes 5, or ask for 4 or 6 GPUs"),
        ({"gpus": "5"}, "ask for 4 or 6 GPUs"),
        ({"gpus": "1", "nodes": 2}, "use --nodes 1"),
        ({"gpus": "3", "nodes": 4}, "use --nodes 1"),
        ({"gpus": "5", "gpus_per_node": "3"}, "ask for 3 or 6 GPUs"),
        ({"gpus": "2", "gpus_per_node": "4"}, "ask for 4 GPUs"),
    ],
)
def test_gpus_that_do_not_divide_come_with_numbers_that_do(asked: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        decide_shape(request(**asked), cluster())
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(hint)


def test_more_gpus_than_a_node_has_are_refused_with_nodes_that_have_them() -> None:
    with pytest.raises(PlanError) as refused:
        decide_shape(request(gpus="8", nodes=1), cluster())
    assert refused.value.message == "8 GPUs per node, but a node of profile 'big' has 4"
    assert refused.value.hint == "spread them over more nodes: --gpus 8 --nodes 2"
    with pytest.raises(PlanError, match="5 GPUs per node"):
        decide_shape(request(gpus_per_node="5"), cluster())


@pytest.mark.parametrize(
    ("gpus", "hint"),
    [
        ("a100:8", "spread them over more nodes: --gpus a100:8 --nodes 2"),
        ("a100:16", "request less: --gpus a100:8 --nodes 2; or another type: --gpus h100:16 --nodes 2"),
        ("a100:64", "request less: --gpus a100:8 --nodes 2"),
    ],
)
def test_more_gpus_than_the_nodes_of_a_type_have_name_the_type_that_has_them(gpus: str, hint: str) -> None:
    types = {name: {"per_node": each, "nodes": 2} for name, each in (("a100", 4), ("h100", 8), ("l40s", 1))}
    asked = request(gpus=gpus, nodes=1)
    with pytest.raises(PlanError) as refused:
        decide_shape(asked, for_gpu_type(cluster(gpu={"types": types}), asked))
    assert refused.value.hint == hint


def test_gpus_on_a_cluster_without_any_are_refused() -> None:
    with pytest.raises(PlanError, match="a node of profile 'thin' has 0") as refused:
        decide_shape(request(gpus="4"), cpu_cluster())
    assert refused.value.hint is not None
    assert "--gpus 0" in refused.value.hint


@given(st.integers(0, 12) | st.none(), st.integers(0, 6) | st.none(), st.integers(1, 6) | st.none())
def test_a_shape_always_is_what_was_asked_for(total: int | None, each: int | None, nodes: int | None) -> None:
    asked = {"gpus": total, "gpus_per_node": each, "nodes": nodes}
    typed: dict[str, Any] = {name: value if name == "nodes" else str(value) for name, value in asked.items()}
    typed = {name: value for name, value in typed.items() if asked[name] is not None}
    try:
        shape = decide_shape(request(**typed), cluster())
    except HpcrunError as error:
        assert error.message
        return
    assert shape.nodes >= 1
    assert shape.gpus == shape.nodes * shape.gpus_per_node
    assert total is None or shape.gpus == total
    assert each is None or shape.gpus_per_node == each
    assert nodes is None or shape.nodes == nodes
    assert shape.gpus_per_node <= 4


@pytest.mark.parametrize(
    ("profile_type", "typed", "type_"),
    [("a100", "4", "a100"), ("a100", "a100:4", "a100"), (None, "4", None), (None, "h100:4", "h100")],
)
def test_the_gpu_type_is_the_one_named_else_the_profile_s(
    profile_type: str | None, typed: str, type_: str | None
) -> None:
    profile = cluster(gpu={"type": profile_type, "per_node": 4})
    assert decide_shape(request(gpus=typed), profile).gpu_type == type_


@pytest.mark.parametrize("typed", ["h100:4", "a10:4"])
def test_a_gpu_type_the_cluster_does_not_have_is_refused_with_the_one_it_has(typed: str) -> None:
    with pytest.raises(UsageError, match="profile 'big' has GPUs of type 'a100', not") as refused:
        decide_shape(request(gpus=typed), cluster())
    assert refused.value.hint is not None
    assert "a100" in refused.value.hint or "profile list" in refused.value.hint


@pytest.mark.parametrize(
    ("asked", "launcher", "procs", "tasks"),
    [
        ({"gpus": "4", "nodes": 2}, "torchrun", 2, 1),
        ({"gpus": "4", "nodes": 2, "launcher": "srun"}, "srun", 2, 2),
        ({"gpus": "4", "nodes": 2, "launcher": "python"}, "python", 1, 1),
        ({"gpus": "4", "nproc_per_node": 2}, "torchrun", 2, 1),
        ({"gpus": "0"}, "python", 1, 1),
        ({"gpus": "0", "nodes": 2}, "python", 1, 1),
        ({"gpus": "0", "launcher": "torchrun", "nproc_per_node": 4}, "torchrun", 4, 1),
        ({"gpus": "0", "launcher": "srun"}, "srun", 1, 1),
        ({"gpus": "0", "launcher": "srun", "nproc_per_node": 3}, "srun", 3, 3),
        ({"gpus": "4", "launcher": "python", "nproc_per_node": 1}, "python", 1, 1),
    ],
)
def test_ranks_follow_from_the_launcher(asked: dict[str, Any], launcher: str, procs: int, tasks: int) -> None:
    shape = decide_shape(request(**asked), cluster())
    assert (shape.launcher, shape.procs_per_node, shape.tasks_per_node) == (launcher, procs, tasks)
    assert shape.world_size == shape.nodes * procs


def test_a_profile_s_launcher_is_taken_where_none_is_asked_for() -> None:
    assert decide_shape(request(gpus="4"), cluster(launcher="srun")).launcher == "srun"
    assert decide_shape(request(gpus="4", launcher="torchrun"), cluster(launcher="srun")).launcher == "torchrun"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"gpus": "0", "launcher": "torchrun"}, "--gpus 0 with torchrun does not say how many ranks"),
        ({"gpus": "4", "launcher": "python", "nproc_per_node": 4}, "contradicts --launcher python"),
        ({"gpus": "0", "nproc_per_node": 4}, "the launcher without GPUs is python, with one process per node"),
        ({"gpus": "2", "nproc_per_node": 4}, "--nproc-per-node 4 is more than the 2 GPUs of a node"),
    ],
)
def test_ranks_that_cannot_be_are_refused_with_what_to_do(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        decide_shape(request(**asked), cluster())
    assert message in refused.value.message
    assert refused.value.hint


def test_ranks_on_cpus_without_a_launcher_are_told_which_to_add() -> None:
    with pytest.raises(UsageError) as refused:
        decide_shape(request(gpus="0", nproc_per_node=2), laptop())
    assert "--launcher" not in refused.value.message
    assert refused.value.hint == "for 2 ranks on CPUs add --launcher torchrun"


def test_srun_on_a_machine_without_slurm_is_refused() -> None:
    with pytest.raises(PlanError, match="there is no srun"):
        decide_shape(request(gpus="2", launcher="srun"), laptop())


def test_a_local_job_takes_any_number_and_type_of_gpus() -> None:
    assert decide_shape(request(gpus="a100:8", nodes=2), laptop()) == Shape(2, 4, "a100", "torchrun", 4)
    assert decide_shape(request(), laptop()).gpus == 1


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
    return Profile(
        name="site",
        partition="gpu",
        gpu={"types": TYPES, **gpu},
        cpu={"per_node": 64, "per_gpu": 16},
        memory={"per_gpu": "100G"},
        time={"default": "1:00:00", "max": "2-00:00:00"},
    )


def test_the_type_asked_for_lies_over_the_profile() -> None:
    made = plan(mixed(), gpus="h100:4", nodes=2)
    asked = {name: made.directive(name) for name in ("partition", "qos", "gres", "cpus-per-task", "mem", "time")}
    assert asked == {
        "partition": "h100",
        "qos": "big",
        "gres": "gpu:h100:2",
        "cpus-per-task": "24",
        "mem": "256G",
        "time": "01:00:00",
    }
    assert made.shape.gpu_type == "h100"


def test_what_a_type_leaves_out_is_the_profiles() -> None:
    made = plan(mixed(), gpus_per_node="l40s:2")
    assert made.directive("partition") == "gpu"
    assert made.directive("gres") == "gpu:l40s:2"
    assert (made.cpus_per_node, made.memory_mb) == (32, 200 * 1024)


def test_what_is_asked_for_lies_over_the_type() -> None:
    assert plan(mixed(), gpus="h100:1", partition="preempt").directive("partition") == "preempt"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"gpus_per_node": "l40s:8"}, "a node of profile 'site' has 4"),
        ({"gpus": "h100:1", "walltime_s": "24h"}, "longer than the 12:00:00"),
        ({"gpus": "h100:1", "cpus": 97}, "has 96"),
        ({"gpus": "h100:1", "memory_mb": "2T"}, "has 1024G"),
    ],
)
def test_the_limits_are_the_types(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan(mixed(), **asked)


def test_nodes_are_counted_by_the_types_own_gpus() -> None:
    assert plan(mixed(), gpus="l40s:8").shape.nodes == 2
    assert plan(mixed(), gpus="h100:8").shape.nodes == 1


@pytest.mark.parametrize("asked", [{}, {"gpus": "2"}, {"gpus_per_node": "2"}], ids=str)
def test_an_untyped_request_must_choose(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        plan(mixed(), **asked)
    assert raised.value.message == "profile 'site' has GPUs of several types: h100, l40s"
    assert raised.value.hint is not None
    assert "--gpus h100:" in raised.value.hint


def test_an_untyped_request_gets_the_profiles_own_type() -> None:
    assert plan(mixed(type="l40s"), gpus="2").directive("gres") == "gpu:l40s:2"
    own = mixed(type="a100", per_node=2)
    assert plan(own, gpus="2").directive("gres") == "gpu:a100:2"
    assert plan(own, gpus="a100:2").directive("partition") == "gpu"


def test_an_unknown_type_is_told_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        plan(mixed(), gpus="h10:2")
    assert raised.value.message == "profile 'site' has no GPUs of type 'h10'"
    assert raised.value.hint == "did you mean 'h100'? there are: h100, l40s"


def test_gpus_of_any_type_need_a_profile_without_types() -> None:
    with pytest.raises(UsageError) as raised:
        plan(mixed(), gpus="any:2")
    assert raised.value.hint == "there are: h100, l40s; for GPUs of any type: docs/profiles.md, Several GPU types"
    assert plan(cluster(gpu={"per_node": 4, "directive": "gres"}), gpus="2").directive("gres") == "gpu:2"


def test_a_job_without_gpus_needs_no_type() -> None:
    made = plan(mixed(), gpus="0", cpus=8)
    assert made.directive("gres") is None
    assert made.directive("partition") == "gpu"


def test_more_nodes_than_the_partition_has_are_refused_with_the_numbers() -> None:
    types = {**TYPES, "h100": {**TYPES["h100"], "nodes": 2}}
    with pytest.raises(PlanError) as refused:
        plan(mixed(types=types), gpus="h100:64")
    assert refused.value.message == (
        "8 nodes × 8 GPUs, but a job in partition h100 can have at most 2 nodes with h100 GPUs, 16 GPUs in all "
        "(profile 'site')"
    )
    assert refused.value.hint == "request less: --gpus h100:16 --nodes 2; or another type: --gpus l40s:64 --nodes 16"
    assert plan(mixed(types=types), gpus="h100:16").shape.nodes == 2
    assert plan(mixed(types=types), gpus="h100:64", partition="other").shape.nodes == 8
    with pytest.raises(PlanError, match="3 nodes × 8 GPUs"):  # the spare node counts as well
        plan(mixed(types=types), gpus="h100:16", restarts=1, spares=1)
    one = Profile(name="site", gpu={"per_node": 4, "nodes": 1}, card={"memory_gb": 80})
    with pytest.raises(PlanError, match="in the default partition can have at most 1 node with GPUs, 4 GPUs in all"):
        plan(one, gpus="8")


def test_the_card_of_a_type_is_its_own_and_never_mixed_with_another() -> None:
    types = {"h100": {"per_node": 8, "card": {"memory_gb": 80}}, "l40s": {"per_node": 4}}
    profile = Profile(name="site", gpu={"types": types}, card={"memory_gb": 16, "power_w": 300})
    h100, l40s = (for_gpu_type(profile, request(gpus=f"{type_}:1")).card for type_ in types)
    assert (h100.memory_gb, h100.power_w) == (80, None)
    assert (l40s.memory_gb, l40s.power_w) == (16, 300)
