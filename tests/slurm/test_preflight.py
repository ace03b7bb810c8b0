"""A preflight on a real Slurm: it names the node whose cable is out or whose ports are blocked,
within its time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import NO_GPUS, Cluster, Completed, Hpcrun, torch_is_for_gpus, wait_for

pytestmark = pytest.mark.slurm

TWO = (
    "-P",
    "a100",
    "-p",
    "gpu",
    "--gpus",
    "0",
    "--nodes",
    "2",
    "-w",
    "a100-1,a100-2",
    "--mem",
    "2G",
)
PATIENT = ("--env", "HPCRUN_PREFLIGHT_S=90")
"""Where everything is well it must end well on a busy machine, too, which may need long for the
import of torch.
"""
MOST_S = 30.0


def attempt(person: Hpcrun) -> Path:
    """The attempt's folder of the only run."""
    (run,) = person.runs.glob("2*")
    return run / "elements/0/attempts/0"


def record(person: Hpcrun, name: str) -> dict[str, Any]:
    path = attempt(person) / name
    wait_for(path.exists, 30, f"the record {name}")
    return dict(json.loads(path.read_text()))


def seconds_in_job(person: Hpcrun) -> float:
    """How long the job's script took, by its own records."""
    return float(record(person, "exit")["ended"] - record(person, "start")["started"])


def rows(done: Completed) -> dict[str, str]:
    """Node → its line of the table."""
    lines = (line for line in done.stdout.splitlines() if line.startswith(("a100-", "v100-")))
    return {line.split()[0]: line for line in lines}


@pytest.mark.parametrize(("unplugged", "other"), [("a100-2", "a100-1"), ("a100-1", "a100-2")])
def test_an_unplugged_node_is_named(
    cluster: Cluster, as_researcher: Hpcrun, unplugged: str, other: str
) -> None:
    cluster.unplug(unplugged)  # Slurm has not noticed: the job is given to it
    done = as_researcher("preflight", *TWO, timeout=100)
    assert done.returncode == 7
    assert f"bad: {unplugged} (did not respond" in done.stdout
    assert f"bad: {other}" not in done.stdout
    assert f"hint: add --exclude={unplugged}\n" in done.stderr
    if unplugged == "a100-2":
        assert seconds_in_job(as_researcher) < MOST_S


def test_a_job_with_a_node_that_nobody_may_connect_to_fails_before_it_trains(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    cluster.block("a100-2")
    as_researcher.write("train.py", "print('trained')\n")
    done = as_researcher("submit", *TWO, "--preflight", "--wait", "train.py")
    assert done.returncode == 7
    message = str(record(as_researcher, "exit")["message"])
    assert message.startswith("preflight: bad: a100-2 (no node reaches its port 2")
    assert message.endswith("(timed out)); add --exclude=a100-2")
    assert message in done.stderr
    assert message in as_researcher("status").stdout
    assert not list(attempt(as_researcher).glob("rank-*")), "the training was started"
    assert seconds_in_job(as_researcher) < MOST_S


def python_that_hangs_on(person: Hpcrun, node: str) -> str:
    """A Python that works, but on one node, as where a file system does not answer."""
    line = f'[ "$HPCRUN_NODE" = {node} ] && exec sleep 600\nexec {person.python_word} "$@"'
    return str(person.program("python", line))


def test_a_job_that_is_cancelled_in_its_preflight_does_not_train(as_researcher: Hpcrun) -> None:
    as_researcher.write("train.py", "print('trained')\n")
    python = python_that_hangs_on(as_researcher, "a100-2")
    as_researcher("submit", *TWO, "--preflight", "--python", python, "train.py", check=True)
    wait_for(
        lambda: any(as_researcher.runs.glob("*/elements/0/attempts/0/preflight/a100-1.json")),
        30,
        "the checks",
    )
    as_researcher("cancel", "--yes", "last", check=True)
    wait_for(lambda: "CANCELLED" in as_researcher("status").stdout, 30, "the job to be cancelled")
    assert record(as_researcher, "exit")["status"] == 143
    assert not list(attempt(as_researcher).glob("rank-*"))


def test_a_job_whose_nodes_are_fine_trains_and_torchrun_takes_the_port_after_the_preflight(
    as_researcher: Hpcrun,
) -> None:
    """docs/guides/3-multi-node.md has a preflight without a job, of nodes that are fine."""
    as_researcher.write("train.py", "print('trained')\n")
    ranks = ("--launcher", "torchrun", "--nproc-per-node", "2")
    done = as_researcher("submit", *TWO, "--preflight", "--wait", *PATIENT, *ranks, "train.py")
    assert done.returncode == 0, done.stderr
    assert as_researcher("logs", "--all-ranks").stdout == "".join(
        f"[rank {rank}] trained\n" for rank in range(4)
    )
    log = as_researcher("logs", "--batch")
    assert "all nodes are ok" in log.stdout
    assert rows(log).keys() == {"a100-1", "a100-2"}
    for row in rows(log).values():
        assert "correct, on the CPU" in row
        assert row.count("GB/s") == 2, "within and across"
        assert "FAILED" not in row


def test_one_task_for_each_rank_follows_one_for_each_node(as_researcher: Hpcrun) -> None:
    ranks = ("--gpus", "2", "--launcher", "srun", "--preflight", "--wait", "printenv", "RANK")
    done = as_researcher("submit", "-P", "h100", *ranks)
    if torch_is_for_gpus():
        assert done.returncode == 7
        assert NO_GPUS in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert sorted(as_researcher("logs", "--all-ranks").stdout.split()[2::3]) == ["0", "1"]
    assert "no bad node; slow: h100-1\n" in as_researcher("logs", "--batch").stdout
