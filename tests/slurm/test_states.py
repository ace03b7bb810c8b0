"""What status, logs and cancel say of waiting, running, ended and forgotten jobs."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, cast

import pexpect
import pytest

from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm

CPU_JOB = ("submit", "-P", "a100", "--gpus", "0", "-p", "cpu")


def statuses(person: Hpcrun, *args: str, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Name → what status says in JSON."""
    document = json.loads(person("status", "--json", *args, env=env).stdout)
    return {run["name"]: run for run in document["runs"]}


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


def test_who_waits_for_a_job_that_never_starts_is_told(as_researcher: Hpcrun, cluster: Cluster) -> None:
    argv = [*as_researcher.become, *as_researcher.argv(*CPU_JOB, "-J", "wide", "--sbatch", "hold", "--wait", "true")]
    waits = pexpect.spawn(argv[0], argv[1:], env=cast("Any", as_researcher.environ), cwd=str(as_researcher.folder))
    waits.expect("JobHeldUser", timeout=60)
    cluster.slurm("scontrol", "update", "partitionname=cpu", "maxtime=1")
    try:
        cluster.slurm("scontrol", "release", statuses(as_researcher)["wide"]["job_id"])
        waits.expect(r"is pending: requests more time than the partition allows \(PartitionTimeLimit\)", timeout=60)
        waits.expect(r"It will never start: use a shorter --time", timeout=10)
        waits.expect(r"never starts, and is still pending\r\nhint: hpcrun cancel \d+", timeout=10)
        waits.expect(pexpect.EOF, timeout=10)
        shown = as_researcher("status", "wide", check=True)
        assert "never starts: requests more time than the partition allows" in shown.stdout
        assert "hint: hpcrun cancel" in shown.stderr
    finally:
        cluster.slurm("scontrol", "update", "partitionname=cpu", "maxtime=4-0")
    waits.close()
    assert waits.exitstatus == 7
    as_researcher("cancel", "wide", check=True)
    two = ("-P", "cpu", "-p", "cpu", "-c", "1", "--launcher", "python", "--nodes", "2", "true")
    refused = as_researcher("submit", *two)
    assert refused.returncode == 4
    assert (
        "2 nodes are more than the 1 that partition cpu gives a job\nhint: use --partition gpu: up to" in refused.stderr
    )


@pytest.mark.versions
def test_a_running_job_is_followed_and_cancelled(as_researcher: Hpcrun) -> None:
    as_researcher(*CPU_JOB, "-J", "long", "bash", "-c", "echo begun; sleep 300", check=True)
    running = wait_for_state(as_researcher, "long", "RUNNING")
    assert running["hosts"] == "cpu-1"
    wait_for(lambda: as_researcher("logs", "long").stdout == "begun\n", 10, "its first line")
    as_researcher("cancel", str(running["job_id"]), check=True)
    ended = as_researcher("logs", "-f", "long", check=True)  # ends, since the job does
    assert "begun" in ended.stdout
    assert wait_for_state(as_researcher, "long", "CANCELLED")["final"]


@pytest.mark.parametrize("command", ["submit", "logs"])
def test_who_follows_a_pending_job_is_told_why_it_waits_and_when_it_starts(as_researcher: Hpcrun, command: str) -> None:
    later = (*CPU_JOB, "-J", command, "--sbatch", "begin=now+1hour")
    if command == "logs":
        as_researcher(*later, "true", check=True)
    words = ("logs", "-f", command) if command == "logs" else (*later, "--follow", "true")
    argv = [*as_researcher.become, *as_researcher.argv(*words)]
    follows = pexpect.spawn(argv[0], argv[1:], env=cast("Any", as_researcher.environ), cwd=str(as_researcher.folder))
    follows.expect(r"job \d+ is PENDING: before its begin time \(BeginTime\), expected 20\S+ \S+, in ", timeout=30)
    as_researcher("cancel", command, check=True)
    follows.expect(pexpect.EOF, timeout=60)
    assert b"PENDING" not in follows.before


@pytest.mark.versions
def test_jobs_that_slurm_has_forgotten_are_known_from_their_folders(
    cluster: Cluster, as_researcher: Hpcrun, tmp_path: Path
) -> None:
    without = cluster.env_without_accounting(as_researcher.folder)
    as_researcher(*CPU_JOB, "-J", "good", "true", check=True)
    as_researcher(*CPU_JOB, "-J", "bad", "false", check=True)
    as_researcher(*CPU_JOB, "-J", "ended", "bash", "-c", "echo begun; sleep 300", check=True)
    as_researcher(*CPU_JOB, "-J", "killed", "bash", "-c", "echo begun; sleep 300", check=True)
    ids = {name: str(run["job_id"]) for name, run in statuses(as_researcher, env=without).items()}

    def both_began() -> bool:  # Slurm says RUNNING before a job can hear a signal
        return all(as_researcher("logs", name).stdout == "begun\n" for name in ("ended", "killed"))

    wait_for(both_began, 60, "both programs to begin")
    as_researcher("cancel", "ended", check=True)
    cluster.slurm("scancel", ids["killed"])  # behind hpcrun's back

    def forgotten() -> bool:
        known = cluster.slurm("squeue", "--states=all", "--noheader", "--format=%i").split()
        return not set(ids.values()) & set(known)

    # no status in between, which would have learned their ends
    wait_for(forgotten, 120, "slurmctld to forget the jobs (MinJobAge)")
    found = statuses(as_researcher, env=without)
    assert {name: run["state"] for name, run in found.items()} == {
        "good": "COMPLETED",
        "bad": "FAILED",
        "ended": "CANCELLED",
        "killed": "CANCELLED",  # the job has asked Slurm why it was told to end
    }
    assert found["bad"]["exit_status"] == 1


@pytest.mark.versions
def test_explain_of_a_completing_job_says_why_it_failed(cluster: Cluster, as_researcher: Hpcrun) -> None:
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


def half_a_minute_later(folder: Path) -> None:
    """Let the answer that left a run out have come half a minute ago."""
    path = folder / "status.json"
    status = json.loads(path.read_text())
    path.write_text(json.dumps({**status, "missed_s": status["missed_s"] - 31}))


@pytest.mark.versions
def test_sacct_is_asked_for_what_squeue_has_forgotten(cluster: Cluster, as_researcher: Hpcrun) -> None:
    as_researcher(*CPU_JOB, "-J", "bad", "bash", "-c", "exit 9", check=True)
    job_id = str(statuses(as_researcher)["bad"]["job_id"])
    wait_for(lambda: cluster.slurm("squeue", "-h", "-j", job_id, "-t", "all", "-o", "%T") == "FAILED\n", 30, "its end")
    known = ("sacct", "-X", "-n", "-P", "-j", job_id, "-o", "State,SubmitLine")  # the line may come a little later
    wait_for(lambda: cluster.slurm(*known).startswith("FAILED|sbatch"), 60, "accounting to know of its end")
    run_folder = Path(str(statuses(as_researcher)["bad"]["folder"]))
    (run_folder / "status.json").unlink()  # nothing was known of it
    (run_folder / "elements/0/attempts/0/exit").unlink()  # and it could not say
    (run_folder.parent / "active" / run_folder.name).touch()
    shim = forgetful_squeue(as_researcher)
    found = statuses(as_researcher, env={"PATH": f"{shim}:{as_researcher.environ['PATH']}"})["bad"]
    assert (found["state"], found["exit_status"]) == ("FAILED", 9)


def forgetful_squeue(person: Hpcrun) -> Path:
    """A folder whose squeue answers, and knows no job: what one sees after MinJobAge, or in a hiccup."""
    folder = person.folder / "forgetful"
    folder.mkdir()
    (folder / "squeue").write_text("#!/bin/sh\nexit 0\n")
    (folder / "squeue").chmod(0o755)
    return folder


def test_one_empty_answer_ends_no_running_job(cluster: Cluster, as_researcher: Hpcrun) -> None:
    as_researcher(*CPU_JOB, "-J", "alive", "sleep", "300", check=True)
    folder = Path(wait_for_state(as_researcher, "alive", "RUNNING")["folder"])
    wait_for(lambda: (folder / "elements/0/attempts/0/start").exists(), 20, "the script to begin")
    shim = forgetful_squeue(as_researcher)
    blind = {"PATH": f"{shim}:{as_researcher.environ['PATH']}", **cluster.env_without_accounting(as_researcher.folder)}
    assert statuses(as_researcher, env=blind)["alive"]["state"] == "RUNNING"  # its script has just given a sign of life
    hours_ago(folder)
    blinded = statuses(as_researcher, env=blind)["alive"]
    assert (blinded["state"], blinded["final"], blinded["stale"]) == ("RUNNING", False, True)
    shown = as_researcher("status", env=blind, check=True).stdout
    words = " ".join(shown.split())
    assert "Slurm does not list this job" in words
    assert "last seen running" in words
    assert "s ago" in words
    assert "█" not in as_researcher("status", "-v", "alive", env=blind, check=True).stdout
    half_a_minute_later(folder)
    assert statuses(as_researcher, env=blind)["alive"]["state"] == "UNKNOWN"
    again = statuses(as_researcher)["alive"]
    assert (again["state"], again["reason"], again["missed_s"]) == ("RUNNING", None, None)


def hours_ago(folder: Path) -> None:
    """Let a run have started hours ago, and not have been heard of since."""
    path = folder / "elements/0/attempts/0/start"
    start = json.loads(path.read_text(), strict=False)
    path.write_text(json.dumps({**start, "started": start["started"] - 7200}))


def test_any_number_of_runs_costs_one_squeue_and_one_sacct(cluster: Cluster, as_researcher: Hpcrun) -> None:
    for number in range(5):
        as_researcher(*CPU_JOB, "-J", f"run{number}", "--sbatch", "hold", "true", check=True)
    ids = [str(run["job_id"]) for run in statuses(as_researcher).values()]
    accounted = ("sacct", "--allocations", "--noheader", "--format=jobid", f"--jobs={','.join(ids)}")
    wait_for(lambda: len(cluster.slurm(*accounted).split()) == 5, 30, "the accounting database to know the jobs")
    counted = as_researcher.folder / "counted"
    counted.mkdir()
    counted.chmod(0o777)
    for command in ("squeue", "sacct", "scontrol", "sinfo"):
        # squeue forgets three of the five, so that sacct is needed
        filter_ = "| tail -n 2" if command == "squeue" else ""
        (counted / command).write_text(
            f'#!/bin/sh\necho {command} >>"{counted}/calls"\n/usr/bin/{command} "$@" {filter_}\n'
        )
        (counted / command).chmod(0o755)
    found = statuses(as_researcher, env={"PATH": f"{counted}:{as_researcher.environ['PATH']}"})
    assert {run["state"] for run in found.values()} == {"PENDING"}
    assert (counted / "calls").read_text().split() == ["squeue", "sacct"]


def test_with_the_controller_away_the_last_known_states_are_shown(cluster: Cluster, as_researcher: Hpcrun) -> None:
    as_researcher(*CPU_JOB, "-J", "long", "bash", "-c", "echo begun; sleep 300", check=True)
    # the job needs the controller for its step, and would wait: not before the rank runs
    wait_for(lambda: as_researcher("logs", "long").stdout == "begun\n", 30, "its first line")
    wait_for_state(as_researcher, "long", "RUNNING")
    cluster.stop("ctld")
    shown = as_researcher("status")
    assert shown.returncode == 5
    assert "RUNNING" in shown.stdout
    assert "ago" in shown.stdout
    assert "squeue" in shown.stderr
    piped = as_researcher("status", "--json")
    document = json.loads(piped.stdout)  # one document, the failure in it
    assert (piped.returncode, document["error"]["exit_code"]) == (5, 5)
    assert (document["runs"][0]["state"], document["runs"][0]["stale"]) == ("RUNNING", True)
    assert "may still be" in as_researcher("clean", "--yes", "long").stderr
    assert Path(document["runs"][0]["folder"]).is_dir()
    refused = as_researcher(*CPU_JOB, "-J", "late", "true")
    assert refused.returncode == 5
    assert "Unable to contact slurm controller" in refused.stderr
    assert "hint: the controller does not respond, and nothing was submitted" in refused.stderr
    assert "late" not in as_researcher("status").stdout


def test_an_sbatch_that_got_no_answer_is_found_again(cluster: Cluster, as_researcher: Hpcrun) -> None:
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


def test_runs_of_another_cluster_are_not_asked_about(as_researcher: Hpcrun) -> None:
    as_researcher(*CPU_JOB, "-J", "here", "--sbatch", "hold", "true", check=True)
    path = Path(str(statuses(as_researcher)["here"]["folder"])) / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "cluster": "elsewhere"}))
    (path.parent / "status.json").unlink()
    found = statuses(as_researcher)["here"]
    assert found["state"] == "UNKNOWN"
    assert found["reason"] == "ask on cluster elsewhere"


@pytest.mark.versions
def test_following_runs_that_start_and_end_costs_one_squeue_in_ten_seconds(as_researcher: Hpcrun) -> None:
    shims, counted = as_researcher.folder / "bin", as_researcher.folder / "calls"
    shims.mkdir()
    counted.touch(mode=0o666)
    counted.chmod(0o666)
    (shims / "squeue").write_text(f'#!/bin/sh\ndate +%s.%N >>"{counted}"\nexec /usr/bin/squeue "$@"\n')
    (shims / "squeue").chmod(0o755)
    env = {**as_researcher.environ, "PATH": f"{shims}:{as_researcher.environ['PATH']}"}

    def at_terminal(*args: str) -> pexpect.spawn[str]:
        command, *rest = [*as_researcher.become, *as_researcher.argv(*args)]
        return pexpect.spawn(
            command, rest, env=cast("Any", env), cwd=str(as_researcher.folder), encoding="utf-8", timeout=40,
            dimensions=(40, 140),
        )  # fmt: skip

    go, began = as_researcher.folder / "go", time.time()
    let = f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done"
    as_researcher(*CPU_JOB, "-c", "1", "-J", "first", "bash", "-c", let, check=True)
    watch, follow = at_terminal("status", "--watch"), at_terminal("logs", "-f", "first")
    follow.expect("begun")
    for name, end in (("second", "true"), ("third", "exit 3"), ("fourth", "true")):
        as_researcher(*CPU_JOB, "-c", "1", "-J", name, "bash", "-c", f"sleep 1; {end}", check=True)
        time.sleep(2)
    go.touch()
    ended = time.time()
    follow.expect(pexpect.EOF)
    watch.expect(r"first [^\n]*COMPLETED")
    assert time.time() - ended < 5  # the script's own record has said it, long before squeue is called again
    watch.expect(r"third [^\n]*FAILED")
    watch.sendintr()
    watch.expect(pexpect.EOF)
    calls = [float(line) for line in counted.read_text().split()]
    pauses = [after - before for before, after in itertools.pairwise(calls)]
    assert calls
    assert not [pause for pause in pauses if pause < 9.9], (began, calls)
