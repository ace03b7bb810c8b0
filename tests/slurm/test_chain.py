"""Jobs that wait for others on a real Slurm: --after, --chain, and a job that submits a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import refusing_sbatch

pytestmark = pytest.mark.slurm

CPU_JOB = ("submit", "-P", "a100", "--gpus", "0", "-p", "cpu")
# completes in the link that takes the second step
TRAIN = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["HPCRUN_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
steps = folder / "steps"
done = len(steps.read_text()) if steps.exists() else 0
steps.write_text("." * (done + 1))
print("step", done + 1)
sys.exit(0 if done + 1 >= 2 else 3)
"""
# saves a checkpoint and notes two steps; from then on it only repeats them
STUCK = """
import sys
from hpcrun_runtime import checkpoint_dir, log_metrics
for step in (1, 2):
    log_metrics(step=step, loss=1.0)
saved = checkpoint_dir() / "last"
if not saved.exists():
    saved.write_text("2")
sys.exit(3)
"""
# the third job is submitted when the chain has ended
SLOW_SBATCH = """echo x >>{calls}
ended() {{
    [ $(wc -l <{calls}) != 3 ] || grep -qs reason {runs}/*-broken-*/elements/0/chain/stopped
}}
until ended; do sleep 0.2; done
exec /usr/bin/sbatch "$@"
"""


def statuses(person: Hpcrun) -> dict[str, dict[str, Any]]:
    """Name → what status says in JSON."""
    return {run["name"]: run for run in person.document("status", "--all")["runs"]}


def test_jobs_wait_and_a_chain_ends_when_a_link_completes(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    as_researcher.write("train.py", TRAIN)
    as_researcher(*CPU_JOB, "-J", "first", "--sbatch", "hold", "true", check=True)
    as_researcher(*CPU_JOB, "-J", "second", "--after", "first", "true", check=True)
    as_researcher(*CPU_JOB, "-J", "never", "--after", "first:fail", "true", check=True)
    as_researcher(
        *CPU_JOB, "-J", "both", "--after", "first", "--after", "second:any", "true", check=True
    )
    chain = as_researcher(
        *CPU_JOB, "--after", "first:any", "--chain", "4", "train.py", check=True
    ).stdout
    for number in range(1, 5):
        assert f"submitted  {number}/4: job " in chain
    found = statuses(as_researcher)
    first, link = found["first"]["job_id"], found["train-2"]["job_id"]
    table = as_researcher("status", "--all").stdout
    assert f"after first ({first}): PENDING" in table
    assert f"link 3/4, after train-2 ({link}): PENDING" in table
    assert [said["state"] for said in found["both"]["after"]] == ["PENDING", "PENDING"]

    cluster.slurm("scontrol", "release", first)
    wait_for(
        lambda: all(run["final"] for run in statuses(as_researcher).values()),
        90,
        "all jobs to be over",
    )
    found = statuses(as_researcher)
    assert {name: run["state"] for name, run in found.items()} == {
        "first": "COMPLETED",
        "second": "COMPLETED",
        "never": "CANCELLED",
        "both": "COMPLETED",
        "train": "FAILED",
        "train-2": "COMPLETED",
        "train-3": "CANCELLED",
        "train-4": "CANCELLED",
    }
    table = as_researcher("status", "--all").stdout
    assert f"never started, after first ({first}): COMPLETED" in table
    assert table.count(f"never started, after train-2 ({link}): COMPLETED") == 2
    assert as_researcher("logs", "train-2", check=True).stdout == "step 2\n"
    folder = Path(found["train"]["folder"]) / "elements/0/checkpoints"
    assert (folder / "steps").read_text() == ".."

    # what is over is judged by its own record, and Slurm is not asked to remember it
    late = as_researcher(
        *CPU_JOB,
        "-J",
        "late",
        "--after",
        "first",
        "--after",
        "train:fail",
        "--sbatch",
        "hold",
        "true",
    )
    assert late.returncode == 0, late.stderr
    job = cluster.slurm("scontrol", "show", "job", statuses(as_researcher)["late"]["job_id"])
    assert "Dependency=(null)" in job
    refused = as_researcher(*CPU_JOB, "-J", "refused", "--after", "train", "true")
    assert refused.returncode == 4
    assert (
        f"would never start, since {found['train']['run_id']} has ended: FAILED" in refused.stderr
    )
    assert "refused" not in statuses(as_researcher)


def test_a_chain_that_gets_nowhere_ends(cluster: Cluster, as_researcher: Hpcrun) -> None:
    as_researcher.write("stuck.py", STUCK)
    calls = as_researcher.write("calls", "")
    calls.chmod(0o666)
    path = as_researcher.shims(
        "slow", sbatch=SLOW_SBATCH.format(calls=calls, runs=as_researcher.runs)
    )
    as_researcher(*CPU_JOB, "-J", "stuck", "--chain", "4:any", "stuck.py", check=True)
    as_researcher(
        *CPU_JOB, "-J", "anyway", "--chain", "3", "--chain-anyway", "stuck.py", check=True
    )
    # the second link ends the chain while the third one is being submitted
    late = as_researcher(*CPU_JOB, "-J", "broken", "--chain", "4", "false", env=path)
    assert "link 4 of 4 was not submitted" in late.stderr
    assert "the chain has ended already: link 2 failed after " in late.stderr
    wait_for(
        lambda: all(run["final"] for run in statuses(as_researcher).values()),
        60,
        "all jobs to be over",
    )

    runs = statuses(as_researcher)
    failed = ("stuck", "stuck-2", "anyway", "anyway-2", "anyway-3", "broken", "broken-2")
    assert {name for name, run in runs.items() if run["state"] == "FAILED"} - {"broken-3"} == {
        *failed
    }
    reason = "link 2 made no new checkpoint and no step since 2"
    assert [(runs[name]["state"], runs[name]["reason"]) for name in ("stuck-3", "stuck-4")] == [
        ("CANCELLED", f"because {reason}")
    ] * 2
    assert reason in runs["stuck-2"]["reason"]
    assert reason in as_researcher("logs", "stuck-2", "--batch", check=True).stdout
    assert (
        reason
        in as_researcher("explain", "stuck-3").stdout + as_researcher("explain", "stuck-3").stderr
    )
    assert "with exit status 1, as link 1 did" in runs["broken-2"]["reason"]


def test_a_link_that_is_refused_leaves_those_before_it(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    path = refusing_sbatch(as_researcher, after=2)
    done = as_researcher(
        *CPU_JOB, "-J", "long", "--chain", "3", "--sbatch", "hold", "true", env=path
    )
    assert done.returncode == 5
    assert (
        "link 3 of 3 was not submitted; the 2 jobs before it stay submitted:\nsbatch refused the "
        "job" in done.stderr
    )
    found = statuses(as_researcher)
    assert {name: run["state"] for name, run in found.items()} == {
        "long": "PENDING",
        "long-2": "PENDING",
    }
    # it may still write its checkpoints
    as_researcher("resubmit", "long-2", "--after", "long-2", check=True)
    cancelled = as_researcher("cancel", found["long"]["job_id"], check=True).stderr
    assert (
        f"may start now\nhint: to cancel them as well: hpcrun cancel {found['long-2']['job_id']}"
        in cancelled
    )
    assert (
        f"hint: hpcrun cancel {found['long']['job_id']} {found['long-2']['job_id']}" in done.stderr
    )
