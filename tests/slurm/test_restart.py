"""Restarts in the same allocation, on a real Slurm; tests/slurm/test_resume.py has a job without
spares requeued.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, attempt, begun, processes, without

pytestmark = pytest.mark.slurm

SPARE = ("--restarts", "1", "--spares", "1")
TWO = ("--nodes", "2", "--launcher", "torchrun", "--nproc-per-node", "1")
SCRIPTS = {
    # ends in a later attempt, when it is let
    "waits.py": """
import os, sys, time
print(time.time(), flush=True)
while not (os.environ["HPCRUN_ATTEMPT"] != "0" and os.path.exists(sys.argv[1])):
    time.sleep(0.2)
""",
}


def spare(lab: Lab) -> Ended:
    """Pull the cable of the second of two nodes; tests/slurm/test_resume.py trains and loses a node
    in the same way.
    """
    end = str(lab.person.folder / "spare")
    folder = lab.submit(
        "spare", *without("v100-1", "v100-2", "l40s-1"), *SPARE, *TWO, "waits.py", end, requeue=0
    )
    lab.cluster.unplug((begun(folder, ranks=2) / "hosts").read_text().split()[1])
    begun(folder, 1, timeout=240)
    while_running = lab.person("status", folder.name, check=True).stdout
    Path(end).touch()
    ended = lab.ended(folder)
    nodes = lab.person("nodes", check=True).stdout
    another = (*SMALL, "-p", "gpu", "--requeue", "1", "--exclude-bad-nodes", "--dry-run", "true")
    plan = lab.person("submit", *another, check=True).stdout
    return Ended(folder, ended.status, ended.table, while_running, nodes + plan)


def head(lab: Lab) -> Ended:
    """The node of the batch script: Slurm goes on without it, and the guard has the job requeued.

    The node then has no process of the first attempt, nor the guard's srun: two attempts would
    share the checkpoints.
    """
    end = str(lab.person.folder / "head")
    nodes = without("h200-1", "a40-1", "l40s-2", "h100-1")
    ranks = ("--nodes", "2", "--launcher", "srun", "--nproc-per-node", "1")
    folder = lab.submit("head", *nodes, *SPARE, "--exclude-bad-nodes", *ranks, "waits.py", end)
    node = (begun(folder, ranks=2) / "hosts").read_text().split()[0]
    lab.cluster.unplug(node)
    begun(folder, 1, ranks=2, timeout=240)
    Path(end).touch()
    ended = lab.ended(folder)
    wait_for(lambda: not processes(folder), 60, "what was left on the node to end")
    return ended


def set_down(lab: Lab, node: str) -> None:
    """Set a node down as an administrator does; its slurmd lives, and Slurm takes it back soon."""
    lab.cluster.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=PSU")


def down(lab: Lab) -> Ended:
    """A job of one node, which an administrator sets down: srun ends with status 0."""
    folder = lab.submit("down", *SMALL, "-p", "cpu", "sleep", "300", requeue=0)
    start = attempt(folder, 0) / "node-cpu-1.start"
    wait_for(start.exists, 60, "the rank to start")
    set_down(lab, "cpu-1")
    return lab.ended(folder)


def spare_for_down(lab: Lab) -> Ended:
    """The second of two nodes is set down, and may have returned before the job asks for it."""
    end = str(lab.person.folder / "down")
    nodes = without("a100-1", "a100-2", "h100-2")
    ranks = ("--nodes", "2", "--launcher", "srun", "--nproc-per-node", "1")
    folder = lab.submit("spared", *nodes, *SPARE, *ranks, "waits.py", end, requeue=0)
    set_down(lab, (begun(folder, ranks=2) / "hosts").read_text().split()[1])
    begun(folder, 1, ranks=2, timeout=240)
    Path(end).touch()
    return lab.ended(folder)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "spare": spare,
    "head": head,
    "down": down,
    "spare_for_down": spare_for_down,
}


def test_a_node_that_failed_is_replaced_by_the_spare_one(scenarios: Scenarios) -> None:
    run: Ended = scenarios["spare"].result()
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    before, after = (
        (attempt(run.folder, number) / "hosts").read_text().split() for number in (0, 1)
    )
    assert len(before) == len(after) == 2
    assert before[1] not in after
    ended = run.exit(0)
    assert ended["reason"] == "node_failure"
    assert ended["how"] == "restart"
    assert ended["nodes"] == [before[1]]
    assert "attempt 2/2 (before: a node failed, restarted in place)" in " ".join(
        run.while_running.split()
    )
    # another submission leaves the node out
    assert re.search(rf"^{before[1]} .*{run.folder.name}$", run.said, re.MULTILINE)
    assert re.search(rf"^#SBATCH --exclude=.*\b{before[1]}\b", run.said, re.MULTILINE)


def test_a_job_that_loses_the_node_of_its_script_does_not_idle(scenarios: Scenarios) -> None:
    run: Ended = scenarios["head"].result()
    lost = (attempt(run.folder, 0) / "hosts").read_text().split()[0]
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    # the guard's word, or that of the script itself once its node is back
    assert run.exit(0)["nodes"] in ([lost], [])
    assert lost not in (attempt(run.folder, 1) / "hosts").read_text().split()


def test_a_job_whose_node_an_administrator_sets_down_is_no_success(scenarios: Scenarios) -> None:
    run: Ended = scenarios["down"].result()
    assert run.state == "NODE_FAIL", run.account
    assert run.exit(0)["status"] == 143
    assert run.exit(0)["reason"] == "node_failure"


def test_a_node_that_an_administrator_sets_down_is_replaced(scenarios: Scenarios) -> None:
    run: Ended = scenarios["spare_for_down"].result()
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    lost = (attempt(run.folder, 0) / "hosts").read_text().split()[1]
    assert run.exit(0)["nodes"] == [lost]
    assert lost not in (attempt(run.folder, 1) / "hosts").read_text().split()
