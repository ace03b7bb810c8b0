"""Slurm's controller is away: what commands say, and a job that asks it for its step at this
moment.
"""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import SMALL, Lab, attempt, parent_of, processes

pytestmark = pytest.mark.slurm

LET = "while [ ! -e %s ]; do sleep 0.2; done"
PROGRAM = "import os; print(os.environ.get('SLURM_EXIT_ERROR'))"


def job_before_its_step(lab: Lab, name: str, *args: str) -> Path:
    """A job whose script waits for the file ``let``; returns the run's folder."""
    (lab.person.folder / "go.py").write_text(PROGRAM)
    let = LET % (lab.person.folder / "let")
    folder = lab.submit(
        name, *SMALL, "-p", "cpu", "--launcher", "srun", "--setup", let, *args, "go.py", requeue=0
    )
    wait_for((attempt(folder, 0) / "start").exists, 60, "the script to begin")
    return folder


def asks_again(folder: Path) -> bool:
    return "has not begun: asking again" in (folder / "batch.log").read_text()


def test_a_step_that_slurm_refuses_is_asked_for_once(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    lab = Lab(as_researcher, cluster)
    folder = job_before_its_step(lab, "refused", "--srun", "--mem=900G")
    (lab.person.folder / "let").touch()
    ended = lab.ended(folder)
    assert (ended.state, ended.exit(0)["status"]) == ("FAILED", 1), ended.account
    assert (folder / "batch.log").read_text().count("srun: error: Unable to create step") == 1, (
        ended.account
    )
    assert not (attempt(folder, 0) / "rank-0.out").exists()


@pytest.mark.versions
def test_with_the_controller_away_every_command_says_so_and_jobs_wait_for_their_steps(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    person, lab = as_researcher, Lab(as_researcher, cluster)
    job = ("submit", *SMALL, "-p", "cpu", "-J")
    person(*job, "long", "bash", "-c", "echo begun; sleep 300", check=True)
    # the job needs the controller for its step, and would wait: not before the rank runs
    wait_for(lambda: person("logs", "long").stdout == "begun\n", 60, "its first line")
    wait_for(lambda: person.status("long")["state"] == "RUNNING", 60, "status to know it")
    goes_on, is_told = job_before_its_step(lab, "goes-on"), job_before_its_step(lab, "is-told")
    cluster.stop("ctld")
    try:
        (lab.person.folder / "let").touch()
        commands = (
            "status long",
            "status long --json",
            "clean --yes long",
            "profile detect --write dev",
            "where --gpus 1",
            "where --gpus 1 --json",
            "doctor -P a100 --json",
        )
        with ThreadPoolExecutor() as pool:
            refused = pool.submit(person, *job, "late", "true")
            done = dict(
                zip(commands, pool.map(lambda line: person(*line.split()), commands), strict=True)
            )
        wait_for(
            lambda: all(asks_again(folder) for folder in (goes_on, is_told)), 60, "srun to give up"
        )
        running = processes(is_told)
        (script,) = [pid for pid in running if parent_of(pid) not in running]  # not its canary
        os.kill(script, signal.SIGTERM)  # what slurmd sends, which knows the time limit
        wait_for((attempt(is_told, 0) / "exit").exists, 20, "its record")
    finally:
        cluster.start("ctld")
    shown = done["status long"]  # the last known state
    assert shown.returncode == 5
    assert "RUNNING" in shown.stdout
    assert "ago" in shown.stdout
    assert "squeue" in shown.stderr
    document = json.loads(done["status long --json"].stdout)  # one document, the failure in it
    assert document["error"]["exit_code"] == 5
    assert document["runs"][0]["state"] == "RUNNING"
    assert document["runs"][0]["stale"] is True
    assert "may still be" in done["clean --yes long"].stderr
    assert Path(document["runs"][0]["folder"]).is_dir()
    assert refused.result().returncode == 5
    assert "Unable to contact slurm controller" in refused.result().stderr
    assert (
        "hint: the controller does not respond, and nothing was submitted"
        in refused.result().stderr
    )
    assert not list(person.runs.glob("*-late-*"))
    for line in ("profile detect --write dev", "where --gpus 1"):
        assert (done[line].returncode, "Slurm does not respond" in done[line].stderr) == (
            5,
            True,
        ), done[line]
        assert "Traceback" not in done[line].stderr
    assert not (person.home / ".config/hpcrun/profiles/dev.yaml").exists()
    assert json.loads(done["where --gpus 1 --json"].stdout)["error"]["exit_code"] == 5
    checks = json.loads(done["doctor -P a100 --json"].stdout)["checks"]
    errors = {check["name"] for check in checks if check["level"] == "red"}
    # torch may be without CUDA
    assert "controller" in errors and errors <= {"controller", "torch"}, errors
    assert [check["name"] for check in checks if check["seen"].startswith("not checked")] == [
        "cluster"
    ]
    assert {check["group"] for check in checks} >= {"Slurm", "Profile", "Runs folder", "Python"}
    ended = lab.ended(goes_on)
    assert (ended.state, ended.starts) == ("COMPLETED", 1), ended.account
    assert ended.log(0) == "None\n"  # the program's own srun ends as Slurm's manual says
    assert lab.ended(is_told).exit(0)["status"] == 143
    assert not (attempt(is_told, 0) / "rank-0.out").exists()
