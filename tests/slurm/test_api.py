"""hpcrun.Executor on a real Slurm, as an ordinary user."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness import Hpcrun
from tests.local.test_api import COUNT

pytestmark = pytest.mark.slurm

START = """
import json, os, subprocess, time
import hpcrun, submitit
from submitit.core.utils import UncompletedJobError
def show(**said): print(json.dumps(said))
"""


def shown_by(person: Hpcrun, program: str, **more: Any) -> dict[str, Any]:
    return dict(json.loads(person.python(START + program, **more)))


def test_an_array_is_one_sbatch_one_run_and_our_own_script(as_researcher: Hpcrun) -> None:
    calls = as_researcher.write("calls", "")
    env = as_researcher.shims(sbatch=f'echo sbatch >>{calls}\nexec /usr/bin/sbatch "$@"')
    program = """
def tenth(n):
    print("element", submitit.JobEnvironment().job_id, n)
    if n == 3:
        raise ValueError("three has had enough")
    return n / 10
executor = hpcrun.Executor("cpu", time=5)
try:
    executor.map_array(abs, range(100_000))
except hpcrun.errors.HpcrunError as error:  # sbatch's own words, and no run is left
    refusal = [error.message, error.hint]
jobs = executor.map_array(tenth, range(5))
failures = [job.exception() for job in jobs]
show(ids=[job.job_id for job in jobs],
     results=[job.result() for job in jobs if job.exception() is None],
     failures=[str(failure) for failure in failures if failure], out=jobs[2].stdout(),
     runs=[job.run_id for job in jobs], refusal=refusal)
"""
    found = shown_by(as_researcher, program, env=env)
    array = found["ids"][0].removesuffix("_0")
    assert found["ids"] == [f"{array}_{index}" for index in range(5)]
    assert found["results"] == [0.0, 0.1, 0.2, 0.4]
    (failure,) = found["failures"]
    assert "ValueError: three has had enough" in failure
    assert f"element {array}_2 2" in found["out"]
    assert len(set(found["runs"])) == 1
    assert "Invalid job array specification" in found["refusal"][0]
    assert "MaxArraySize" in found["refusal"][1]
    assert calls.read_text().split() == ["sbatch", "sbatch"]
    (run,) = as_researcher.document("status")["runs"]
    assert run["name"] == "tenth"
    assert run["job_id"] == array
    folder = as_researcher.runs / found["runs"][0]
    written = as_researcher.run(
        "scontrol", "write", "batch_script", f"{array}_0", "-", check=True
    ).stdout
    assert written.strip() == (folder / "script.sh").read_text().strip()


def test_every_task_on_two_nodes_runs_the_function(as_researcher: Hpcrun) -> None:
    program = """
def place(fail=None):
    here = submitit.JobEnvironment()
    if here.global_rank == fail:
        raise ValueError(f"task {fail} has had enough")
    if fail is not None:
        time.sleep(300)
    torch = os.environ["RANK"], os.environ["WORLD_SIZE"]
    return here.global_rank, here.local_rank, here.hostname, here.num_tasks, *torch
executor = hpcrun.Executor("a100", gpus=4, nodes=2, tasks_per_node=2, time=5)
job, bad = executor.submit(place), executor.submit(place, 3)
show(results=job.results(), bad=str(bad.exception()), state=bad.state)
"""
    found = shown_by(as_researcher, program)
    assert found["results"] == [
        [rank, rank % 2, f"a100-{1 + rank // 2}", 4, str(rank), "4"] for rank in range(4)
    ]
    assert "ValueError: task 3 has had enough" in found["bad"]
    assert found["state"] == "FAILED"


def test_submitit_s_autoexecutor_takes_hpcrun_by_its_name_and_a_checkpoint_outlives_a_requeue(
    as_researcher: Hpcrun,
) -> None:
    program = (
        COUNT
        + """
executor = submitit.AutoExecutor("logs", cluster="hpcrun", hpcrun_profile="cpu")
executor.update_parameters(timeout_min=5, cpus_per_task=1)
job_environment = executor.submit(lambda: submitit.JobEnvironment().cluster)
job = executor.submit(Count(), 5)  # with requeue=3, since there is a checkpoint
while "at 3" not in (job.stdout() or ""):
    time.sleep(0.2)
subprocess.run(["scontrol", "requeue", job.job_id], check=True)  # as a preemption does
show(count=job.result(), out=job.stdout(), cluster=job_environment.result())
"""
    )
    found = shown_by(as_researcher, program)
    assert found["cluster"] == "slurm"
    assert found["count"] == [3, 5, 1]
    assert "at 5" in found["out"]
