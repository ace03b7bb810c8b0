"""What status, logs and cancel say of waiting, running, ended and forgotten jobs."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, at_end, wait_for

pytestmark = pytest.mark.slurm

CPU_JOB = ("submit", "-P", "a100", "--gpus", "0", "-p", "cpu")


def statuses(
    person: Hpcrun, *args: str, env: Mapping[str, str | None] | None = None
) -> dict[str, dict[str, Any]]:
    """Name → what status says in JSON."""
    return {run["name"]: run for run in person.document("status", *args, env=env)["runs"]}


def wait_for_state(person: Hpcrun, name: str, state: str, timeout: float = 60) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        found = statuses(person)[name]
        return found if found["state"] == state else None

    return wait_for(reached, timeout, f"{name} to be {state}")


def test_a_waiting_job_says_why_and_can_be_cancelled(as_researcher: Hpcrun) -> None:
    as_researcher(*CPU_JOB, "-J", "held", "--sbatch", "hold", "true", check=True)
    table = as_researcher("status", check=True).stdout
    assert "PENDING" in table
    assert "JobHeldUser" in table
    logs = as_researcher("logs", "held")
    assert logs.stdout == ""
    assert "PENDING (JobHeldUser)" in logs.stderr
    as_researcher("cancel", "held", check=True)
    assert wait_for_state(as_researcher, "held", "CANCELLED")["final"]
    assert "has already ended" in as_researcher("cancel", "held", check=True).stderr


def test_who_waits_for_a_job_that_never_starts_is_told(
    as_researcher: Hpcrun, cluster: Cluster
) -> None:
    waits = as_researcher.terminal(
        *CPU_JOB, "-J", "wide", "--sbatch", "hold", "--wait", "true", size=(24, 300)
    )
    waits.expect("JobHeldUser")
    cluster.slurm("scontrol", "update", "partitionname=cpu", "maxtime=1")
    try:
        cluster.slurm("scontrol", "release", statuses(as_researcher)["wide"]["job_id"])
        waits.expect(
            r"is pending: requests more time than the partition allows \(PartitionTimeLimit\)"
        )
        waits.expect(r"It will never start: use a shorter --time")
        waits.expect(r"never starts, and is still pending\r\nhint: hpcrun cancel \d+")
        assert at_end(waits)[0] == 7
        shown = as_researcher("status", "wide", check=True)
        assert "never starts: requests more time than the partition allows" in shown.stdout
        assert "hint: hpcrun cancel" in shown.stderr
    finally:
        cluster.slurm("scontrol", "update", "partitionname=cpu", "maxtime=4-0")
    as_researcher("cancel", "--yes", "wide", check=True)
    two = ("-P", "cpu", "-p", "cpu", "-c", "1", "--launcher", "python", "--nodes", "2", "true")
    refused = as_researcher("submit", *two)
    assert refused.returncode == 4
    why = (
        "2 nodes are more than the 1 that partition cpu gives a job\nhint: use --partition gpu: "
        "up to"
    )
    assert why in refused.stderr


@pytest.mark.versions
def test_jobs_that_slurm_has_forgotten_are_known_from_their_folders(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    without = cluster.env_without_accounting(as_researcher.folder)
    as_researcher(*CPU_JOB, "-J", "good", "true", check=True)
    as_researcher(*CPU_JOB, "-J", "bad", "false", check=True)
    as_researcher(*CPU_JOB, "-J", "ended", "bash", "-c", "echo begun; sleep 300", check=True)
    as_researcher(*CPU_JOB, "-J", "killed", "bash", "-c", "echo begun; sleep 300", check=True)
    runs = statuses(as_researcher, env=without)

    def both_began() -> bool:  # Slurm says RUNNING before a job can hear a signal
        return all(as_researcher("logs", name).stdout == "begun\n" for name in ("ended", "killed"))

    wait_for(both_began, 60, "both programs to begin")
    assert "cancelled  job " in as_researcher("cancel", "ended", check=True).stdout
    cluster.slurm("scancel", runs["killed"]["job_id"])  # behind hpcrun's back

    records = [Path(run["folder"], "elements/0/attempts/0/exit") for run in runs.values()]

    def all_ended() -> bool:
        if not all(record.exists() for record in records):
            return False
        exits = [json.loads(record.read_text()) for record in records]
        # at SIGTERM a job records its end at once, and the reason when it has asked Slurm
        return all(exit_["reason"] or not exit_["signal"] for exit_ in exits)

    wait_for(all_ended, 60, "the jobs to end")
    # no status in between, which would have learned their ends; and slurmctld forgets a job a
    # minute after it
    forgetful = as_researcher.shims(squeue="")
    found = statuses(as_researcher, env={**without, **forgetful})
    assert {name: run["state"] for name, run in found.items()} == {
        "good": "COMPLETED",
        "bad": "FAILED",
        "ended": "CANCELLED",
        "killed": "CANCELLED",  # the job has asked Slurm why it was told to end
    }
    assert found["bad"]["exit_status"] == 1


@pytest.mark.versions
def test_an_ended_job_and_an_element_that_an_administrator_requeues_are_followed(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    again = as_researcher.folder / "again"
    job = (*CPU_JOB, "--requeue", "2", "-J")
    program = ("bash", "-c", f"[ -e {again} ] || exit 3; echo begun; sleep 300")
    as_researcher(*job, "one", *program, check=True)
    as_researcher(*job, "swept", "--sweep", "x=1,2", *program, check=True)
    exits = ("bash", "-c", f"[ -e {again} ] || exit 211")
    as_researcher(*job, "by-status", *exits, check=True)
    one = wait_for_state(as_researcher, "one", "FAILED")
    swept = wait_for_state(as_researcher, "swept", "FAILED")
    assert one["final"]
    assert swept["final"]
    by_status = wait_for_state(as_researcher, "by-status", "PENDING")  # by RequeueExit
    assert by_status["before"] == "exit status 211"
    element = f"{swept['job_id']}_{swept['elements'][1]['element']}"
    again.touch()
    for job_id in (one["job_id"], element):
        cluster.slurm("scontrol", "requeue", job_id)
    one, swept = (statuses(as_researcher)[name] for name in ("one", "swept"))
    assert (one["final"], one["attempt"]) == (False, 1)
    assert [each["final"] for each in swept["elements"]] == [True, False]
    assert "it is PENDING" in as_researcher("clean", "--yes", "one").stderr
    for job_id in (one["job_id"], element, by_status["job_id"]):
        cluster.slurm("scontrol", "update", f"JobId={job_id}", "StartTime=now")
    wait_for_state(as_researcher, "one", "RUNNING")
    wait_for_state(as_researcher, "swept", "RUNNING")
    as_researcher("clean", "--yes", "one", "swept")
    assert Path(one["folder"]).exists()
    assert Path(swept["folder"]).exists()
    cancelled = as_researcher("cancel", "one", element, check=True)
    assert cancelled.stdout.count("cancelled  job") == 2
    wait_for_state(as_researcher, "one", "CANCELLED")
    assert wait_for_state(as_researcher, "by-status", "COMPLETED")["attempt"] == 1
    swept = wait_for_state(as_researcher, "swept", "FAILED")
    assert [each["state"] for each in swept["elements"]] == ["FAILED", "CANCELLED"]


@pytest.mark.versions
def test_explain_of_a_completing_job_says_why_it_failed(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    go = as_researcher.folder / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.1; done; echo \"KeyError: 'recall'\" >&2; exit 3"
    as_researcher(*CPU_JOB, "-J", "ending", "bash", "-c", script, check=True)
    folder = Path(wait_for_state(as_researcher, "ending", "RUNNING")["folder"])
    wait_for((folder / "elements/0/attempts/0/rank-0.out").exists, 30, "its rank")
    cluster.stop("cpu-1")  # the node does not say that it is done
    go.touch()
    wait_for_state(as_researcher, "ending", "COMPLETING")
    said = as_researcher("explain", "ending", check=True).stdout
    assert said.startswith("the job is completing")
    assert "attempt 1 ended: rank 0 on cpu-1 failed first" in " ".join(said.split())
    cluster.start("cpu-1")
    assert wait_for_state(as_researcher, "ending", "FAILED")["final"]


def counting(person: Hpcrun) -> Path:
    """A file to which the person's commands can write."""
    path = person.write("calls", "")
    path.chmod(0o666)
    return path


def test_an_sbatch_that_got_no_answer_is_found_again(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    controller = int((cluster.root / "run/slurmctld.pid").read_text())
    os.kill(controller, signal.SIGSTOP)
    try:
        done = as_researcher(*CPU_JOB, "-J", "lost", "sleep", "60")
    finally:
        os.kill(controller, signal.SIGCONT)
    assert done.returncode == 5
    assert "may have been submitted" in done.stderr
    found = wait_for_state(as_researcher, "lost", "RUNNING")
    assert found["job_id"].isdigit()
    as_researcher("cancel", "lost", check=True)


@pytest.mark.versions
def test_following_runs_that_start_and_end_costs_one_squeue_in_ten_seconds(
    as_researcher: Hpcrun,
) -> None:
    counted = counting(as_researcher)
    env = as_researcher.shims(squeue=f'date +%s.%N >>"{counted}"\nexec /usr/bin/squeue "$@"')
    go, began = as_researcher.folder / "go", time.time()
    let = f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done"
    as_researcher(*CPU_JOB, "-c", "1", "-J", "first", "bash", "-c", let, check=True)
    watch = as_researcher.terminal("status", "--watch", env=env, size=(40, 140))
    follow = as_researcher.terminal("logs", "-f", "first", env=env)
    follow.expect("begun")
    for name, end in (("second", "true"), ("third", "exit 3"), ("fourth", "true")):
        as_researcher(*CPU_JOB, "-c", "1", "-J", name, "bash", "-c", f"sleep 1; {end}", check=True)
        time.sleep(2)
    go.touch()
    ended = time.time()
    at_end(follow)
    watch.expect(r"first [^\n]*COMPLETED")
    # the script's own record has said it, long before squeue is called again
    assert time.time() - ended < 8
    watch.expect(r"third [^\n]*FAILED")
    watch.sendintr()
    at_end(watch)
    calls = [float(line) for line in counted.read_text().split()]
    pauses = [after - before for before, after in itertools.pairwise(calls)]
    assert calls
    assert not [pause for pause in pauses if pause < 9.9], (began, calls)
