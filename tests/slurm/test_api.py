"""hpcrun.Executor on a real Slurm, as an ordinary user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm

START = """
import json, os, subprocess, time
import hpcrun, submitit
from submitit.core.utils import UncompletedJobError
def show(**said): print(json.dumps(said))
"""


def shown_by(person: Hpcrun, program: str, **more: Any) -> dict[str, Any]:
    return dict(json.loads(person.python(START + program, **more)))


def counting(person: Hpcrun, *commands: str) -> tuple[Path, dict[str, str | None]]:
    """A file that gets a line for each call of some commands, and the PATH on which that is so."""
    calls = person.write("calls", "")
    calls.chmod(0o666)
    return calls, person.shims(**{name: f'echo {name} >>{calls}\nexec /usr/bin/{name} "$@"' for name in commands})


def test_an_array_is_one_sbatch_one_run_and_our_own_script(as_researcher: Hpcrun) -> None:
    calls, env = counting(as_researcher, "sbatch")
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
show(ids=[job.job_id for job in jobs], results=[job.result() for job in jobs if job.exception() is None],
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
    assert (run["name"], run["job_id"]) == ("tenth", array)
    folder = as_researcher.runs / found["runs"][0]
    written = as_researcher.run("scontrol", "write", "batch_script", f"{array}_0", "-", check=True).stdout
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
    assert found["results"] == [[rank, rank % 2, f"a100-{1 + rank // 2}", 4, str(rank), "4"] for rank in range(4)]
    assert "ValueError: task 3 has had enough" in found["bad"]
    assert found["state"] == "FAILED"


def test_cancelled_elements_raise_and_many_jobs_are_one_question(as_researcher: Hpcrun) -> None:
    calls, env = counting(as_researcher, "squeue", "sacct")
    program = """
executor = hpcrun.Executor("cpu", time=5, array_parallelism=1)
jobs = executor.map_array(time.sleep, [300, 300, 300])
while jobs[0].state != "RUNNING":
    time.sleep(0.2)
states = [job.state for job in jobs]
began = time.time()
jobs[2].cancel()
jobs[0].cancel()
failures = [str(jobs[0].exception()), str(jobs[2].exception())]
took_s, after = time.time() - began, jobs[1].state
jobs[1].cancel()
show(states=states, failures=failures, after=after, took_s=took_s, id=jobs[0].job_id)
"""
    found = shown_by(as_researcher, program, env=env)
    assert found["states"] == ["RUNNING", "PENDING", "PENDING"]
    assert f"job {found['id']} (task 0" in found["failures"][0]
    assert "left no result: CANCELLED" in found["failures"][0]
    assert "left no result: CANCELLED" in found["failures"][1]
    assert found["failures"][1].endswith("the job has not started")
    assert found["after"] in ("PENDING", "RUNNING")
    assert calls.read_text().split().count("squeue") <= 2 + found["took_s"] // 10 + 2


def test_submitit_s_autoexecutor_takes_hpcrun_by_its_name_and_a_checkpoint_outlives_a_requeue(
    as_researcher: Hpcrun,
) -> None:
    program = """
class Count(submitit.helpers.Checkpointable):
    def __init__(self): self.reached = 0
    def __call__(self, to):
        import hpcrun_runtime
        first = self.reached
        while self.reached < to:
            self.reached += 1
            print("at", self.reached, flush=True)
            if self.reached == 3 and hpcrun_runtime.attempt() == 0:
                time.sleep(300)
        return first, self.reached, hpcrun_runtime.attempt()
    def checkpoint(self, to): return submitit.helpers.DelayedSubmission(self, to)
def half(n):
    here = submitit.JobEnvironment()
    if n == 1:
        raise ValueError("one has had enough")
    return here.cluster, here.job_id, here.num_tasks, list(here.hostnames) == [os.environ["SLURMD_NODENAME"]]
executor = submitit.AutoExecutor("logs", cluster="hpcrun", hpcrun_profile="cpu")
executor.update_parameters(timeout_min=5, cpus_per_task=1)
jobs = executor.map_array(half, [0, 1])
job = executor.submit(Count(), 5)  # with requeue=3, since there is a checkpoint
while "at 3" not in (job.stdout() or ""):
    time.sleep(0.2)
subprocess.run(["scontrol", "requeue", job.job_id], check=True)  # as a preemption does
show(count=job.result(), out=job.stdout(), id=jobs[0].job_id, result=jobs[0].result(),
     failure=str(jobs[1].exception()), log=open(f"logs/{jobs[0].job_id}_0_log.out").read())
"""
    found = shown_by(as_researcher, program)
    assert found["result"] == ["slurm", found["id"], 1, True]
    assert "ValueError: one has had enough" in found["failure"]
    assert f"Starting with JobEnvironment(job_id={found['id']}" in found["log"]
    assert found["count"] == [3, 5, 1]
    assert "at 5" in found["out"]
