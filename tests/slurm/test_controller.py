"""Slurm's controller is away in the moment when a job asks it for its step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import SMALL, Lab, attempt, processes

pytestmark = pytest.mark.slurm

LET = "while [ ! -e %s ]; do sleep 0.2; done"
PROGRAM = "import os; print(os.environ.get('SLURM_EXIT_ERROR'))"


def job_before_its_step(lab: Lab, name: str, *args: str) -> Path:
    """A job whose script waits for the file ``let``; returns the run's folder."""
    (lab.person.folder / "go.py").write_text(PROGRAM)
    let = LET % (lab.person.folder / "let")
    folder = lab.submit(name, *SMALL, "-p", "cpu", "--launcher", "srun", "--setup", let, *args, "go.py", requeue=0)
    wait_for((attempt(folder, 0) / "start").exists, 60, "the script to begin")
    return folder


def asks_again(folder: Path) -> bool:
    return "has not begun: asking again" in (folder / "batch.log").read_text()


@pytest.mark.versions
def test_jobs_that_cannot_have_their_steps_ask_again_when_the_controller_is_back(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    lab = Lab(as_researcher, cluster)
    goes_on, is_told = job_before_its_step(lab, "goes-on"), job_before_its_step(lab, "is-told")
    cluster.stop("ctld")
    try:
        (lab.person.folder / "let").touch()
        wait_for(lambda: all(asks_again(folder) for folder in (goes_on, is_told)), 60, "srun to give up")
        (job,) = processes(is_told)
        os.kill(job, signal.SIGTERM)  # what slurmd sends, which knows the time limit
        wait_for((attempt(is_told, 0) / "exit").exists, 20, "its record")
    finally:
        cluster.start("ctld")
    ended = lab.ended(goes_on)
    assert (ended.state, ended.starts) == ("COMPLETED", 1), ended.account
    assert ended.log(0) == "None\n"  # the program's own srun ends as Slurm's manual says
    assert lab.ended(is_told).exit(0)["status"] == 143
    assert not (attempt(is_told, 0) / "rank-0.out").exists()


def test_a_step_that_slurm_refuses_is_asked_for_once(cluster: Cluster, as_researcher: Hpcrun) -> None:
    lab = Lab(as_researcher, cluster)
    folder = job_before_its_step(lab, "refused", "--srun", "--mem=900G")
    (lab.person.folder / "let").touch()
    ended = lab.ended(folder)
    assert (ended.state, ended.exit(0)["status"]) == ("FAILED", 1), ended.account
    assert (folder / "batch.log").read_text().count("srun: error: Unable to create step") == 1, ended.account
    assert not (attempt(folder, 0) / "rank-0.out").exists()
