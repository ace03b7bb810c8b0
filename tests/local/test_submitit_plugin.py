"""submitit.AutoExecutor(cluster="hpcrun") on this machine: real jobs in the background, without
Slurm.
"""

from __future__ import annotations

import json
from typing import Any

from tests.harness import Hpcrun, wait_for

START = """
import json, os, pickle, sys
from pathlib import Path
import submitit
from submitit.core.utils import FailedJobError
executor = submitit.AutoExecutor("logs/%j", cluster="hpcrun", hpcrun_profile="local")
executor.update_parameters(timeout_min=10, hpcrun_gpus=0)
def show(**said): print(json.dumps(said))
"""


def shown_by(hpcrun: Hpcrun, program: str) -> dict[str, Any]:
    return dict(json.loads(hpcrun.python(START + program)))


def test_calls_results_and_logs_are_where_submitit_has_them(hpcrun: Hpcrun) -> None:
    program = """
factor = 3
def scaled(by):
    def closure(n):
        print("out", n); print("err", n, file=sys.stderr)
        if n == 2: raise ValueError("two has had enough")
        return factor * by * n, submitit.JobEnvironment().job_id
    return closure
jobs = executor.map_array(scaled(7), [1, 2])
with executor.batch():
    batch = [executor.submit(lambda: 5), executor.submit(pow, 2, exp=5)]
executor.update_parameters(stderr_to_stdout=True)
merged = executor.submit(scaled(1), 4)
result, failure = jobs[0].result(), jobs[1].exception()
first = jobs[0].job_id
folder = Path("logs", first)
logs = [(folder / f"{first}_0_log.{end}").read_text() for end in ("out", "err")]
show(result=result, failure=[type(failure).__name__, str(failure)],
     batch=[job.result() for job in batch], ids=[job.job_id for job in jobs],
     again=pickle.loads(pickle.dumps(jobs[0])).result(),
     logs=logs, own=[jobs[0].stdout(), jobs[0].stderr()],
     merged=[merged.result()[0], merged.stdout(), merged.stderr()],
     script=(folder / (first[:-2] + "_submission.sh")).read_text()[:11])
"""
    found = shown_by(hpcrun, program)
    assert found["result"] == found["again"] == [21, found["ids"][0]]
    assert found["failure"][0] == "FailedJobError"
    assert "ValueError: two has had enough" in found["failure"][1]
    assert found["batch"] == [5, 32]
    assert found["logs"] == found["own"]
    assert "out 1\n" in found["logs"][0]
    assert found["logs"][1] == "err 1\n"
    assert found["merged"][0] == 12
    assert "out 4\nerr 4\n" in found["merged"][1]
    assert found["merged"][2] is None
    assert found["script"] == "#!/bin/bash"

    def states() -> list[str]:  # a result is there a moment before the end of its job
        rows = hpcrun.document("status")["runs"]
        return [row["state"] for row in rows if row["name"] == "lambda" and row["final"]]

    assert set(wait_for(states, 60, "the end of the jobs")) == {"COMPLETED"}


def test_a_checkpointable_function_is_requeued_unless_the_program_says_otherwise(
    hpcrun: Hpcrun,
) -> None:
    program = """
class Steps(submitit.helpers.Checkpointable):
    def __call__(self): return 1
def times(function, **said):
    executor.update_parameters(**said)
    job = executor.submit(function)
    record = json.loads((job.run_folder.path / "run.json").read_text())
    return job.result(), (record["plan"]["requeue"] or {}).get("times")
show(unsaid=times(Steps()), function=times(int), none=times(Steps(), hpcrun_requeue=0))
"""
    found = shown_by(hpcrun, program)
    assert found == {"unsaid": [1, 3], "function": [0, None], "none": [1, None]}
