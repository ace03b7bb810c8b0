"""Several elements of a sweep in one task: what the plan says, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.job.resources import Machine
from hpcrun.job.sweep import parts_of
from hpcrun.views.plan import sweep_text
from tests.unit import given

EIGHT: dict[str, Any] = {"sweep": ["n=1,2,3,4,5,6,7,8"]}


def test_a_task_has_the_gpus_and_cpus_of_all_its_elements() -> None:
    plan = given.plan(gpus="2", cpus=8, pack=4, pack_memory=True, max_parallel=1, elements="0-4,7", **EIGHT)
    assert plan.sweep is not None
    assert (plan.directive("array"), plan.sweep.tasks, plan.cpus_per_rank) == ("0-1%1", 2, 2)
    assert (plan.shape.launcher, plan.shape.world_size, plan.sweep.memory_share) == ("python", 1, 0.45)
    assert sweep_text(plan.sweep) == "6 elements (n 6 values), 2 tasks of 4, at most 1 at once"
    parts = parts_of(replace(plan.sweep, max_parallel=None), 1)
    assert [(part.chosen, part.array) for part in parts] == [((0, 1, 2, 3), "0"), ((4, 7), "0")]
    assert given.plan(gpus="0", pack=4, **EIGHT).cpus_per_node == 4


def test_on_this_machine_each_element_is_a_job_with_a_gpu_in_turn() -> None:
    plan = given.plan(given.laptop(), machine=Machine(8, ("0", "1")), gpus="2", pack=4, **EIGHT)
    assert (plan.local_gpus, plan.cpus_per_rank, plan.shape.world_size) == ((("0", "1"),), 2, 1)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sweep": [], "pack": 2}, "--pack has no effect without a sweep"),
        ({"pack_memory": True}, "no effect without --pack"),
        ({"pack": 2, "gpus": "0", "pack_memory": True}, "has no GPU"),
        ({"pack": 2, "gpus": "4"}, "--pack 2: 4 GPUs, and each of the elements uses one"),
        ({"pack": 8, "gpus": "4", "nodes": 2}, "share one node, and the job has 2"),
        (
            {"pack": 2, "launcher": "torchrun"},
            "--launcher torchrun and --pack 2: each element of a pack is one process",
        ),
        ({"pack": 2, "nproc_per_node": 2}, "--nproc-per-node 2 and --pack 2"),
        ({"pack": 2, "preflight": True}, "--preflight and --pack 2"),
        ({"pack": 2, "stage": ["/data"]}, "--stage and --pack 2"),
        ({"pack": 2, "srun": ["mpi=pmix"]}, "--srun and --pack 2"),
        ({"pack": 2, "restarts": 1, "spares": 1}, "--spares and --pack 2"),
    ],
)
def test_what_a_pack_cannot_do_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(HpcrunError, match=message):
        given.plan(**{**EIGHT, **asked})
