"""hpcrun.Executor on this machine: real jobs in the background, without Slurm."""

from __future__ import annotations

import json
from typing import Any

from tests.harness import Hpcrun

START = """
import json, os, pickle, signal, sys, threading, time
from pathlib import Path
import hpcrun, submitit
from submitit.core.utils import UncompletedJobError
executor = hpcrun.Executor("local", gpus=0, time="10m")
def show(**said): print(json.dumps(said))
"""


COUNT = """
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
"""


def shown_by(hpcrun: Hpcrun, program: str) -> dict[str, Any]:
    return dict(json.loads(hpcrun.python(START + program)))


def states(hpcrun: Hpcrun) -> dict[str, str]:
    return {run["name"]: run["state"] for run in hpcrun.document("status")["runs"]}


def test_results_of_functions_lambdas_and_arrays(hpcrun: Hpcrun) -> None:
    program = """
def add(a, b=1):
    print(f"adding {a} and {b}: žluť")
    return a + b
one, two = executor.submit(add, 1, b=2), executor.submit(lambda x: x * 2, 21)
many = executor.map_array(add, [1, 2, 3], [10, 20, 30])
with executor.batch():
    batch = [executor.submit(add, n) for n in range(2)]
show(one=one.result(), two=two.result(),
     many=[job.result() for job in many], batch=[job.result() for job in batch],
     none=one.exception(), done=one.done(), state=one.state, out=one.stdout(), run=one.run_id,
     args=one.submission().args, again=pickle.loads(pickle.dumps(one)).result())
"""
    found = shown_by(hpcrun, program)
    assert found["one"] == 3
    assert found["two"] == 42
    assert found["many"] == [11, 22, 33]
    assert found["batch"] == [1, 2]
    assert found["none"] is None
    assert found["done"] is True
    assert found["state"] == "COMPLETED"
    assert found["args"] == [1]
    assert found["again"] == 3
    assert "adding 1 and 2: žluť\n" in found["out"]
    assert found["out"] == hpcrun("logs", found["run"], check=True).stdout
    assert states(hpcrun) == {"add": "COMPLETED", "lambda": "COMPLETED"}


def test_what_goes_wrong_arrives_as_one_exception(hpcrun: Hpcrun) -> None:
    program = """
def boom(): raise ValueError("had enough")
def lock(): return threading.Lock()
def killed():
    print("last words", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)
jobs = {function.__name__: executor.submit(function) for function in (boom, lock, killed)}
sleeper = executor.submit(time.sleep, 300)
sleeper.cancel()
jobs["sleeper"] = sleeper
def raised(job):
    try:
        job.result()
    except UncompletedJobError as error:
        return [type(error).__name__, str(error)]
began = time.time()
show(**{name: raised(job) for name, job in jobs.items()}, took_s=time.time() - began)
"""
    found = shown_by(hpcrun, program)
    assert found["boom"][0] == "FailedJobError"
    assert "in boom" in found["boom"][1]
    assert "ValueError: had enough" in found["boom"][1]
    assert found["lock"][0] == "FailedJobError"
    assert "cannot pickle '_thread.lock' object" in found["lock"][1]
    assert "what the function returned cannot be written as a result" in found["lock"][1]
    assert found["killed"][0] == "UncompletedJobError"
    assert (
        "left no result: FAILED (rank 0 on local-0 failed first, with exit status 137)"
        in found["killed"][1]
    )
    assert found["killed"][1].endswith("last words")
    assert "left no result: CANCELLED" in found["sleeper"][1]
    assert found["took_s"] < 20
    assert states(hpcrun) == {
        "boom": "FAILED",
        "lock": "FAILED",
        "killed": "FAILED",
        "sleep": "CANCELLED",
    }


def test_a_function_that_is_started_again_goes_on_where_it_was_warned_and_its_last_result_counts(
    hpcrun: Hpcrun,
) -> None:
    program = (
        COUNT
        + """
def second_time_lucky():
    import hpcrun_runtime
    if hpcrun_runtime.attempt() == 0:
        raise ValueError("not yet")
    return "lucky"
executor.update_parameters(requeue=1)
job = executor.submit(Count(), 5)
executor.update_parameters(retry_on_failure=True)
lucky = executor.submit(second_time_lucky)
while "at 3" not in (job.stdout() or ""):
    time.sleep(0.1)
supervisor = job.job_id[1:]
script = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0]
# the supervisor's warning before the time limit, a little early
os.kill(int(script), signal.SIGUSR1)
show(result=job.result(), out=job.stdout(), lucky=lucky.result())
"""
    )
    found = shown_by(hpcrun, program)
    assert found["result"] == [3, 5, 1]
    assert found["lucky"] == "lucky"
    assert "at 4" in found["out"]


def test_as_many_elements_at_once_as_were_asked_for(hpcrun: Hpcrun) -> None:
    program = """
def begun_and_ended(n):
    began = time.time()
    time.sleep(0.5)
    if n == 2:
        raise ValueError("two has had enough")
    return began, time.time()
executor.update_parameters(array_parallelism=1)
jobs = executor.map_array(begun_and_ended, range(4))
waiting = jobs[3].state
jobs[3].cancel()
failure = str(jobs[2].exception())
patience = time.time() + 60
# its result is there a little before its end
while jobs[2].state == "RUNNING" and time.time() < patience:
    time.sleep(0.1)
show(times=[job.result() for job in jobs[:2]], runs=[job.run_id for job in jobs],
     waiting=waiting, failure=failure, cancelled=str(jobs[3].exception()),
     states=[job.state for job in jobs])
"""
    found = shown_by(hpcrun, program)
    (first_began, first_ended), (second_began, _) = found["times"]
    assert first_began < first_ended <= second_began
    assert len(set(found["runs"])) == 1
    assert found["waiting"] == "PENDING"
    assert "ValueError: two has had enough" in found["failure"]
    assert "left no result: CANCELLED" in found["cancelled"]
    assert found["states"] == ["COMPLETED", "COMPLETED", "FAILED", "CANCELLED"]
    # an array is one to every command, as a sweep is
    assert states(hpcrun) == {"begun_and_ended": "FAILED"}
    explained = hpcrun.document("explain", "last", check=True)
    assert "ValueError: two has had enough" in explained["summary"]
    assert "ValueError: two has had enough" in hpcrun("logs", "last/2", check=True).stdout
    again = hpcrun("resubmit", "last")
    assert (again.returncode, "hint: submit them again from Python" in again.stderr) == (4, True)
