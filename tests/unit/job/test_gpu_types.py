"""Several GPU types in one profile: the one that is asked for decides, and an untyped request does not guess."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.profile import Profile
from hpcrun.job.shape import for_gpu_type
from tests.unit.given import cluster, plan, request

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


def test_the_way_out_of_a_limit_names_the_type_too() -> None:
    with pytest.raises(PlanError) as raised:
        plan(mixed(), gpus_per_node="l40s:8")
    assert raised.value.hint == "spread them over more nodes: --gpus l40s:8 --nodes 2"


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


def test_two_types_at_once() -> None:
    with pytest.raises(UsageError, match="two GPU types at once: h100 and l40s"):
        plan(mixed(), gpus="h100:2", gpus_per_node="l40s:2")


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
