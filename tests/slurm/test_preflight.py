"""A preflight on a real Slurm: it names the node whose cable is out or whose ports are blocked, within its time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.harness import NO_GPUS, Cluster, Completed, Hpcrun, torch_is_for_gpus, wait_for

pytestmark = pytest.mark.slurm

TWO = ("-P", "a100", "-p", "gpu", "--gpus", "0", "--nodes", "2", "-w", "a100-1,a100-2", "--mem", "2G")
PATIENT = ("--env", "HPCRUN_PREFLIGHT_S=90")
"""Where everything is well it must end well on a busy machine, too, which may need long for the import of torch."""
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
def test_an_unplugged_node_is_named(cluster: Cluster, as_researcher: Hpcrun, unplugged: str, other: str) -> None:
    cluster.unplug(unplugged)  # Slurm has not noticed: the job is given to it
    done = as_researcher("preflight", *TWO, timeout=100)
    assert done.returncode == 7
    assert f"bad: {unplugged} (did not respond" in done.stdout
    assert f"bad: {other}" not in done.stdout
    assert f"hint: add --exclude={unplugged}\n" in done.stderr
    if unplugged == "a100-2":
        assert seconds_in_job(as_researcher) < MOST_S


def test_a_node_that_nobody_may_connect_to_is_named(cluster: Cluster, as_researcher: Hpcrun) -> None:
    cluster.block("a100-2")
    done = as_researcher("preflight", *TWO)
    assert done.returncode == 7
    (bad,) = (line for line in done.stdout.splitlines() if line.startswith("bad: "))
    assert bad.startswith("bad: a100-2 (no node reaches its port 2")
    assert bad.endswith("(timed out))")
    assert "hint: add --exclude=a100-2\n" in done.stderr
    assert seconds_in_job(as_researcher) < MOST_S


def test_of_three_the_blocked_first_one_is_named(cluster: Cluster, as_researcher: Hpcrun) -> None:
    three = ("-P", "v100", "-p", "gpu", "--gpus", "0", "--nodes", "3", "-w", "l40s-2,v100-[1-2]", "--mem", "2G")
    cluster.block("l40s-2")
    document = json.loads(as_researcher("preflight", *three, "--json").stdout)
    assert (document["ok"], document["exclude"]) == (False, "l40s-2")
    assert [item["node"] for item in document["bad"]] == ["l40s-2"]
    assert seconds_in_job(as_researcher) < MOST_S


def python_that_hangs_on(person: Hpcrun, node: str) -> str:
    """A Python that works, but on one node, as where a file system does not answer."""
    path = person.folder / "python"
    path.write_text(f'#!/bin/sh\n[ "$HPCRUN_NODE" = {node} ] && exec sleep 600\nexec {person.venv}/bin/python "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_node_that_hangs_is_named_in_time(as_researcher: Hpcrun) -> None:
    done = as_researcher("preflight", *TWO, "--python", python_that_hangs_on(as_researcher, "a100-2"))
    assert done.returncode == 7
    (bad,) = (line for line in done.stdout.splitlines() if line.startswith("bad: "))
    # where its shell outlives its Python, which is killed at the end of the time, it says so
    assert bad in ("bad: a100-2 (did not respond)", "bad: a100-2 (its Python ends with status 137)")
    assert seconds_in_job(as_researcher) < MOST_S


def test_a_job_that_is_cancelled_in_its_preflight_does_not_train(as_researcher: Hpcrun) -> None:
    (as_researcher.folder / "train.py").write_text("print('trained')\n")
    python = python_that_hangs_on(as_researcher, "a100-2")
    as_researcher("submit", *TWO, "--preflight", "--python", python, "train.py", check=True)
    wait_for(lambda: any(as_researcher.runs.glob("*/elements/0/attempts/0/preflight/a100-1.json")), 30, "the checks")
    as_researcher("cancel", "last", check=True)
    wait_for(lambda: "CANCELLED" in as_researcher("status").stdout, 30, "the job to be cancelled")
    assert record(as_researcher, "exit")["status"] == 143
    assert not list(attempt(as_researcher).glob("rank-*"))


def submit(person: Hpcrun, *options: str) -> Completed:
    (person.folder / "train.py").write_text("print('trained')\n")
    return person("submit", *TWO, "--preflight", "--wait", *options, "train.py")


def test_a_job_with_a_bad_node_fails_before_it_trains(cluster: Cluster, as_researcher: Hpcrun) -> None:
    cluster.block("a100-1")
    done = submit(as_researcher)
    assert done.returncode == 7
    message = str(record(as_researcher, "exit")["message"])
    assert message.startswith("preflight: bad: a100-1 (no node reaches its port 2")
    assert message.endswith("; add --exclude=a100-1")
    assert message in done.stderr
    assert message in as_researcher("status").stdout
    assert not list(attempt(as_researcher).glob("rank-*")), "the training was started"


def test_a_job_whose_nodes_are_fine_trains_and_torchrun_takes_the_port_after_the_preflight(
    as_researcher: Hpcrun,
) -> None:
    """docs/guides/3-multi-node.md has a preflight without a job, of nodes that are fine."""
    done = submit(as_researcher, *PATIENT, "--launcher", "torchrun", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    assert as_researcher("logs", "--all-ranks").stdout == "".join(f"[rank {rank}] trained\n" for rank in range(4))
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


def test_ctrl_c_cancels_it(cluster: Cluster, as_researcher: Hpcrun) -> None:
    waiting = ("preflight", *TWO, "--sbatch", "hold")
    command = [*as_researcher.become, *as_researcher.argv(*waiting)]
    child = pexpect.spawn(
        command[0], command[1:], env=as_researcher.environ, cwd=str(as_researcher.folder), encoding="utf-8", timeout=60
    )
    child.expect("PENDING")
    child.sendintr()
    child.expect(r"interrupted; job (\d+) was cancelled")
    job = child.match.group(1)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    states = ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")
    wait_for(lambda: cluster.slurm(*states) == "CANCELLED\n", 30, "the job to be cancelled")


def test_a_rendered_script_says_that_it_lacks_the_programs(as_researcher: Hpcrun) -> None:
    as_researcher.write_script("job.sh", *TWO, "--preflight", "true")
    done = as_researcher.run("sbatch", "--wait", "job.sh", check=False)
    assert done.returncode == 1
    (log,) = as_researcher.folder.glob("slurm-*.out")
    assert "hpcrun: the programs of the preflight are put beside the script by hpcrun submit" in log.read_text()


def test_a_refused_job_is_the_schedulers_word(as_researcher: Hpcrun) -> None:
    done = as_researcher("preflight", "-P", "a100", "-p", "nowhere", "--gpus", "0")
    assert done.returncode == 5
    assert "hpcrun: sbatch refused the job" in done.stderr
