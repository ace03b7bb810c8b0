"""Being started again, on a real Slurm: every reason at once, in threads, since each of them takes
Slurm a while.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, attempt, begun, let_end, without

pytestmark = pytest.mark.slurm

ON_CPU = (*SMALL, "-p", "cpu")

# Every script goes on until a file of its name lets it end, in its second attempt or later.
SCRIPTS = {
    # asks whether it should stop, and goes on where it was
    "asks.py": """
import sys, time
from pathlib import Path
from hpcrun_runtime import attempt, checkpoint_dir, log_metrics, should_stop
saved = checkpoint_dir() / "step"
step = int(saved.read_text()) if saved.exists() else 0
print(f"attempt {attempt()} begins at step {step}", flush=True)
while not (attempt() and Path(sys.argv[1]).exists()):
    step += 1
    log_metrics(step=step, loss=1 / step)
    if should_stop():
        saved.write_text(str(step))
        print(f"saved step {step}", flush=True)
        break
    time.sleep(0.2)
""",
    # knows nothing of signals or of hpcrun
    "plain.py": """
import os, sys, time
while not (os.environ["HPCRUN_ATTEMPT"] != "0" and os.path.exists(sys.argv[1])):
    print(time.time(), flush=True)
    time.sleep(0.2)
""",
    # one rank fails, the others wait
    "fails.py": """
import os, sys, time
if os.environ["NODE_RANK"] != sys.argv[1]:
    time.sleep(600)
sys.exit(3)
""",
    # fails twice with an exception that passes, and twice with one of its own; loads no checkpoint
    "fails_alike.py": """
import os, sys, time
attempt = int(os.environ["HPCRUN_ATTEMPT"])
for step in range(10 + attempt // 2):
    print(f"step {step}/100 loss {1 / (step + 1):.4f}", flush=True)
while attempt == 3 and not os.path.exists(sys.argv[1]):
    time.sleep(0.2)
if os.environ["RANK"] != "1":
    time.sleep(60)
if attempt < 2:
    raise RuntimeError("NCCL error: unhandled system error")
raise KeyError("recall")
""",
}


# --- the scenarios: each runs in a thread of its own ---------------------------------------------


def time_limit(lab: Lab) -> Ended:
    """The warning is Slurm's own; submit --wait stays over it."""
    end = str(lab.person.folder / "time-limit")
    with ThreadPoolExecutor(1) as waiter:
        # Slurm looks every thirty seconds, and warns half a minute early
        job = (
            "--requeue",
            "2",
            "--time",
            "2m",
            "--warn",
            "59s",
            "-J",
            "time-limit",
            "--wait",
            "asks.py",
            end,
        )
        waiting = waiter.submit(lab.person, "submit", *ON_CPU, *job)
        folder = wait_for(
            lambda: next(lab.person.runs.glob("2*-time-limit-*"), None), 30, "the run's folder"
        )
        try:
            # a minute and a half to the warning, two more where the credential is old
            begun(folder, 1, timeout=300)
            while_running = lab.person("status", folder.name, check=True).stdout
        finally:
            Path(end).touch()
        said = waiting.result()
    ended = lab.ended(folder)
    return Ended(
        folder,
        ended.status,
        ended.table,
        while_running,
        f"{said.returncode} {said.stdout}{said.stderr}",
    )


def unplugged(lab: Lab) -> Ended:
    """The only node of a job, and so that of its script; test_resume.py has one that loses its
    second node.
    """
    end = str(lab.person.folder / "lost")
    folder = lab.submit("lost", *without("h200-1", "a40-1"), "plain.py", end)
    node = (begun(folder) / "hosts").read_text().strip()
    lab.cluster.unplug(node)
    begun(folder, 1)
    while_running = lab.person("status", folder.name, check=True).stdout
    # Slurm now ends what is left of the first attempt on that node, which must leave the second
    # alone
    lab.cluster.plug(node)
    # and this is what its srun does where Slurm signals every process
    lab.person.run("scancel", "--signal=KILL", f"{lab.job(folder)}.0", check=False)
    wait_for(
        lambda: silent(attempt(folder, 0) / "rank-0.out"),
        60,
        "the rest of the first attempt to end",
    )
    time.sleep(3)
    Path(end).touch()
    ended = lab.ended(folder)
    return Ended(folder, ended.status, ended.table, while_running)


def silent(log: Path) -> bool:
    """Whether nothing more is written to a log of one that writes all the time."""
    return time.time() - log.stat().st_mtime > 2


def fails_twice(lab: Lab) -> Ended:
    """Its second rank fails; the node of that one is not used again."""
    options = ("--retry-on-failure", "--exclude-bad-nodes", "--nodes", "2")
    folder = lab.submit(
        "fails-twice", *without("a100-1", "a100-2", "h100-2"), *options, "fails.py", "1"
    )
    return lab.ended(folder)


def fails_alike(lab: Lab) -> Ended:
    """Four ranks on two nodes; one of them fails in each attempt."""
    end = lab.person.folder / "fails-alike"
    nodes = (*without("l40s-1", "l40s-2", "h100-1"), "--cpus", "2")
    ranks = ("--nodes", "2", "--launcher", "srun", "--nproc-per-node", "2")
    again = ("--restarts", "9", "--retry-on-failure")
    folder = lab.submit(
        "fails-alike", *nodes, *ranks, *again, "fails_alike.py", str(end), requeue=0
    )
    log = begun(folder, 3, ranks=4, timeout=240) / "rank-0.out"
    wait_for(lambda: "step 10/" in log.read_text(), 60, "its last step")
    while_running = lab.person("explain", folder.name, check=True).stdout
    end.touch()
    ended = lab.ended(folder)
    shown = lab.person("explain", folder.name, check=True).stdout
    return Ended(folder, ended.status, ended.table, while_running, shown)


def by_hand(lab: Lab) -> Ended:
    """Slurm's own requeues, one more than is allowed; with GPUs, whose hours are counted."""
    gpus = ("-P", "v100", "--gpus", "2", "--launcher", "python", "--cpus", "1", "--mem", "1G")
    folder = lab.submit("by-hand", *gpus, "plain.py", "never")
    job = lab.job(folder)
    begun(folder)
    time.sleep(3)
    lab.person.run("scontrol", "requeue", job)
    again = ("waits again", "attempt 1 ended: requeued by Slurm or an administrator")
    waits = wait_for(lambda: said_of(lab, folder, again), 60, "explain to say why it waits again")
    begun(folder, 1)
    while_running = lab.person("status", folder.name, check=True).stdout
    refused = lab.person.run("scontrol", "requeue", job, check=False)
    lab.person.run("scontrol", "update", f"JobId={job}", "Requeue=1")
    lab.person.run("scontrol", "requeue", job)
    ended = lab.ended(folder)
    asked = ("sacct", "-X", "--duplicates", "-n", "-P", "-j", job, "-o", "ElapsedRaw,AllocTRES,End")

    def allocations() -> list[list[str]] | None:
        rows = [line.split("|") for line in lab.cluster.slurm(*asked).splitlines()]
        return rows if len(rows) == 3 and "Unknown" not in {row[2] for row in rows} else None

    rows = wait_for(allocations, 60, "the accounting to know all three")
    said = {
        "waits": waits,
        "allocations": [(int(elapsed), "gres/gpu=2" in tres) for elapsed, tres, _ in rows],
        "status": lab.person.document("status", "-v", folder.name)["runs"][0],
        "details": lab.person("status", "-v", folder.name, check=True).stdout,
        "history": lab.person.document("history", "--by", "name")["rows"],
    }
    return Ended(
        folder, ended.status, ended.table, while_running, f"{refused.returncode} {json.dumps(said)}"
    )


def said_of(lab: Lab, folder: Path, words: tuple[str, ...]) -> str | None:
    """What explain says of a run, where these words are in it."""
    said = " ".join(lab.person("explain", folder.name, check=True).stdout.split())
    return said if all(word in said for word in words) else None


def unwarned(lab: Lab, requeue: int = 1) -> Ended:
    """The time is over in the moment of the warning."""
    for name in (f"unwarned{requeue}", f"unwarned{requeue}-again"):
        folder = lab.submit(name, *ON_CPU, "plain.py", let_end(lab, name), requeue=requeue)
        begun(folder)
        time.sleep(2)  # Slurm takes no end in the second of the start
        try:
            lab.cluster.slurm("scontrol", "update", f"jobid={lab.job(folder)}", "EndTime=now")
            break
        except AssertionError as error:
            # once, on a cluster that had just started, the job was over by then
            print(error, lab.status(folder), (folder / "batch.log").read_text())
    return lab.ended(folder)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "time limit": time_limit,
    "unwarned": unwarned,
    "over its time": lambda lab: unwarned(lab, requeue=0),
    "unplugged": unplugged,
    "by hand": by_hand,
    "fails twice": fails_twice,
    "fails alike": fails_alike,
}


@pytest.mark.versions
def test_at_its_time_limit_a_job_saves_and_goes_on(scenarios: Scenarios) -> None:
    run: Ended = scenarios["time limit"].result()
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    assert (attempt(run.folder, 0) / "stop/time_limit").exists()
    assert run.rank_exit(0)["heard"]
    assert run.exit(0)["reason"] == "time_limit"
    assert run.exit(0)["again"] is True
    step = run.log(0).split()[-1]
    assert int(step) > 20
    assert f"attempt 1 begins at step {step}\n" in run.log(1)
    metrics = (attempt(run.folder, 1) / "rank-0.metrics").read_text().splitlines()
    assert json.loads(metrics[0])["step"] == int(step) + 1
    assert "attempt 2/3 (before: time limit)" in run.while_running
    # submit --wait stays until the last attempt has ended
    assert run.said.startswith("0 ")
    assert "COMPLETED" in run.said


def test_a_job_that_loses_the_node_of_its_script_goes_on_elsewhere(scenarios: Scenarios) -> None:
    run: Ended = scenarios["unplugged"].result()
    lost = (attempt(run.folder, 0) / "hosts").read_text().strip()
    assert f"attempt 2/2 (before: no heartbeat from {lost}: a node failed)" in " ".join(
        run.while_running.split()
    )
    # the rest of the lost attempt does not end the next
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account


@pytest.mark.versions
def test_a_failure_is_tried_again_as_often_as_said_and_on_another_node(
    scenarios: Scenarios,
) -> None:
    run: Ended = scenarios["fails twice"].result()
    assert (run.state, run.starts, run.status["exit_status"]) == ("FAILED", 2, 3)
    assert run.status["before"] == "exit status 3"
    assert "--requeue 1 is used up" in run.status["reason"]
    bad = run.rank_exit(0, 1)["node"]
    assert bad not in (attempt(run.folder, 1) / "hosts").read_text().split()
    assert f"hpcrun: {bad} is excluded from now on" in (run.folder / "batch.log").read_text()


@pytest.mark.versions
def test_all_attempts_count_in_times_and_gpu_hours(scenarios: Scenarios) -> None:
    said = json.loads(scenarios["by hand"].result().said.partition(" ")[2])
    assert all(has_gpus for _, has_gpus in said["allocations"])
    elapsed_s = sum(seconds for seconds, _ in said["allocations"])
    assert elapsed_s > said["allocations"][-1][0]
    assert said["status"]["usage"]["gpu_s"] == 2 * elapsed_s
    # a script begins and ends within its allocation
    assert abs(said["status"]["total_elapsed_s"] - elapsed_s) <= 6
    text = " ".join(said["details"].split())
    assert f"{2 * elapsed_s / 3600:.2f} (2 GPUs, all attempts together)" in text
    assert "all 3 attempts together; the limit is for each" in text
    (row,) = [row for row in said["history"] if row["group"] == "by-hand"]
    assert abs(row["gpu_hours"] * 3600 - 2 * elapsed_s) <= 12
    # while it waited, explain said why its attempt had ended
    assert said["waits"].startswith("the job waits again: ")
    assert "; attempt 1 ended: requeued by Slurm or an administrator" in said["waits"]


def test_slurms_own_requeues_count_as_well(scenarios: Scenarios) -> None:
    run: Ended = scenarios["by hand"].result()
    assert "attempt 2/2 (before: requeued by Slurm or an administrator)" in " ".join(
        run.while_running.split()
    )
    assert not run.said.startswith("0 ")  # the last attempt has Requeue=0
    assert (run.state, run.starts) == ("FAILED", 3), run.account
    assert "started once more than --requeue 1 allows" in run.status["reason"]


def test_a_job_that_was_ended_at_its_limit_with_no_time_to_stop(scenarios: Scenarios) -> None:
    run: Ended = scenarios["unwarned"].result()
    assert run.exit(0)["reason"] == "time_limit"
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    assert run.status["before"] == "time limit"


def test_a_job_over_its_time_is_a_timeout(scenarios: Scenarios) -> None:
    run: Ended = scenarios["over its time"].result()
    assert (run.state, run.starts) == ("TIMEOUT", 1), run.account


def test_a_failure_that_repeats_itself_is_not_retried_and_one_that_passes_is(
    scenarios: Scenarios,
) -> None:
    run: Ended = scenarios["fails alike"].result()
    assert (run.state, run.starts) == ("FAILED", 4), run.account
    assert run.status["exit_status"] == 1
    reason = "not retried: attempts 3 and 4 ended with the same KeyError at fails_alike.py:12"
    assert run.status["reason"] == f"{reason}, without a new step"
    assert reason in (run.folder / "batch.log").read_text()


def test_an_attempt_that_started_over_says_so_while_it_runs_and_afterwards(
    scenarios: Scenarios,
) -> None:
    run: Ended = scenarios["fails alike"].result()
    over = (
        "attempt 4 started over at step 0, although attempt 1 had come to step 9: the checkpoints "
        "are not loaded"
    )
    assert over in " ".join(run.while_running.split())
    assert over in " ".join(run.said.split())
    assert "elements/0/attempts/0/rank-0.out" in run.said
