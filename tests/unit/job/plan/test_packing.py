"""Several elements of a sweep in one task: what the plan says, and what is refused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.job.plan.sweep import parts_of
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.run_paths import RunFolder
from hpcrun.profiles.folders import shipped_folder
from hpcrun.views.plan_text import sweep_text
from tests.unit import builders

EIGHT: dict[str, Any] = {"sweep": ["n=1,2,3,4,5,6,7,8"]}


def test_a_task_has_the_gpus_and_cpus_of_all_its_elements() -> None:
    plan = builders.plan(
        gpus="2", cpus=8, pack=4, pack_memory=True, max_parallel=1, elements="0-4,7", **EIGHT
    )
    assert plan.sweep is not None
    assert plan.directive("array") == "0-1%1"
    assert plan.sweep.tasks == 2
    assert plan.cpus_per_rank == 2
    assert plan.shape.launcher == "python"
    assert plan.shape.world_size == 1
    assert plan.sweep.memory_share == 0.45
    assert (
        sweep_text(plan.sweep, "slurm")
        == "6 elements (n 6 values), 2 tasks of 4, at most 1 at once"
    )
    parts = parts_of(replace(plan.sweep, max_parallel=None), 1)
    assert [(part.chosen, part.array) for part in parts] == [((0, 1, 2, 3), "0"), ((4, 7), "0")]
    assert builders.plan(gpus="0", pack=4, **EIGHT).cpus_per_node == 4


def test_on_this_machine_each_element_is_a_job_with_a_gpu_in_turn() -> None:
    plan = builders.plan(
        builders.laptop(), machine=Machine(8, ("0", "1")), gpus="2", pack=4, **EIGHT
    )
    assert plan.local_gpus == (("0", "1"),)
    assert plan.cpus_per_rank == 2
    assert plan.shape.world_size == 1
    assert plan.sweep is not None
    assert sweep_text(plan.sweep, "local") == "8 elements (n 8 values), at most 4 at once"


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
        builders.plan(**{**EIGHT, **asked})


def test_a_task_that_starts_again_begins_the_elements_that_have_not_ended(tmp_path: Path) -> None:
    ends = {
        0: '{"status": 0, "signal": "", "ended": 1.5, "message": "", "reason": "", "again": false}',
        1: '{"status": 7, "signal": "", "ended": 1.5, "message": "", "reason": "failure", "again": '
        "false}",
        2: '{"status": 124, "signal": "", "ended": 1.5, "message": "", "reason": "time_limit", '
        '"again": true}',
        3: '{"status": 143, "signal": "TERM", "ended": 1.5, "message": "", "reason": "", "again": '
        "false}",
        4: "",  # its node failed
        5: None,
    }
    for number, end in ends.items():
        attempt = RunFolder(tmp_path).element(number).attempt(0)
        for path, text in ((attempt.start, "{}"), (attempt.exit, end)) if end is not None else ():
            if text:
                builders.write(path, text)
    builders.write(RunFolder(tmp_path).element(6).cancelled, "")
    builders.write(RunFolder(tmp_path).element(7).cancelled, "")
    builders.write(RunFolder(tmp_path).element(7).attempt(0).start, "{}")
    template = shipped_folder("templates") / "allocation/pack-folder.sh.j2"
    program = (
        f"elements=(0 1 2 3 4 5 6 7); . {shlex.quote(str(template))}; "
        'echo "${pack[@]}/${tries[@]}/$failed"'
    )
    env = {"PATH": os.environ["PATH"], "HPCRUN_RUN_DIR": str(tmp_path), "HPCRUN_JOB_ID": "4711_0"}
    done = subprocess.run(["bash", "-c", program], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2 3 4 5/1 1 1 0/7\n", "")
    start = json.loads(RunFolder(tmp_path).element(3).attempt(1).start.read_text())
    assert start["job_id"] == "4711_0"
