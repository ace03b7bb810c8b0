"""Sweeps as real Slurm arrays. All are submitted at once, and each test looks at its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, Completed, Hpcrun, inodes, wait_for
from tests.slurm.lab import Lab, refusing_sbatch

pytestmark = pytest.mark.slurm

CPU_JOB = ("submit", "-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--time", "5m")
SAY = "import json, os, sys; print(json.dumps([os.environ['HPCRUN_ELEMENT'], *sys.argv[1:]]))\n"
ODD = ["a,b", "it's", "$HOME", "", "two\nlines", "-1", "{x}"]


class Sweeps:
    """A person who has submitted some sweeps."""

    def __init__(self, person: Hpcrun) -> None:
        self.person = person
        self.answers: dict[str, Completed] = {}

    def submit(self, name: str, *args: str, **said: Any) -> None:
        self.answers[name] = self.person(*CPU_JOB, "-J", name, *args, check=True, **said)

    def run(self, name: str) -> dict[str, Any]:
        return self.person.status(name)

    def ended(self, name: str, within_s: float = 90) -> dict[str, Any]:
        return self.person.ended(name, within_s)


# says that an array may have three elements
SMALL_ARRAYS = """
real=/usr/bin/scontrol
if [ "$*" = "show config" ]; then
    $real "$@" | sed 's/^MaxArraySize.*/MaxArraySize = 3/'
else
    exec $real "$@"
fi
"""
SCRIPTS = {
    "say.py": SAY,
    "odd.yaml": json.dumps({"product": {"x": ODD}}),
    "again.py": "import os; exit(5 if os.environ['HPCRUN_ELEMENT'] + os.environ['HPCRUN_ATTEMPT'] "
    "== '10' else 0)",
}


@pytest.fixture(scope="module")
def sweeps(slurm_cluster: Cluster, lab: Lab) -> Iterator[Sweeps]:
    person = lab.person
    before = slurm_cluster.jobs()
    found = Sweeps(person)
    found.submit("again", "--sweep", "seed=1,2", "--requeue", "1", "--retry-on-failure", "again.py")
    found.submit("odd", "--sweep-file", "odd.yaml", "say.py", "--first", "in {x}", "{{x}}")
    bad = 'test "$2" != 2 && test "$2" != 4 || exit 9'
    found.submit("grid", "--sweep", "n=1,2,3,4", "--max-parallel", "2", "bash", "-c", bad, "bash")
    found.submit("chosen", "--sweep", "n=a,b,c,d", "--elements", "1,3", "say.py")
    found.submit(
        "waiting", "--sweep", f"n={','.join(map(str, range(1000)))}", "--sbatch", "hold", "true"
    )
    found.submit(
        "split",
        "--sweep",
        "n=a,b,c,d,e",
        "say.py",
        env=person.shims("small", scontrol=SMALL_ARRAYS),
    )
    yield found
    if left := slurm_cluster.jobs() - before:
        slurm_cluster.slurm("scancel", *left)


@pytest.mark.versions
def test_every_value_reaches_its_element_untouched(sweeps: Sweeps) -> None:
    run = sweeps.ended("odd")
    assert run["state"] == "COMPLETED"
    for index, value in enumerate(ODD):
        said = sweeps.person("logs", f"odd/{index}", check=True).stdout
        assert json.loads(said) == [str(index), "--first", f"in {value}", "{x}"]
    assert [element["parameters"]["x"] for element in run["elements"]] == ODD
    for element in Path(run["folder"], "elements").iterdir():
        files, folders = inodes(element)
        assert files + 1 <= 5  # with its batch log
        assert folders <= 4
    assert sorted(path.name for path in Path(run["folder"], "batch").iterdir()) == [
        f"{i}.log" for i in range(7)
    ]
    assert "rendezvous" in sweeps.person("logs", "--batch", "odd/3", check=True).stdout
    chosen = sweeps.ended("chosen")
    assert [element["element"] for element in chosen["elements"]] == [1, 3]
    assert json.loads(sweeps.person("logs", "chosen/3").stdout) == ["3", "--n", "d"]


@pytest.mark.versions
def test_each_element_has_a_row_and_the_sweep_one_line(sweeps: Sweeps) -> None:
    run = sweeps.ended("grid")
    assert (run["state"], run["exit_status"], run["reason"]) == (
        "FAILED",
        9,
        "4 elements: 2 completed, 2 failed",
    )
    rows = sweeps.person("status", "grid", check=True).stdout.splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [
        [f"grid/{index}", f"{run['job_id']}_{index}"] for index in range(4)
    ]
    assert "n=2, rank 0 on cpu-1 failed first with exit status 9" in rows[1]
    lines = sweeps.person("status", check=True).stdout.splitlines()
    assert len([line for line in lines if line.startswith("grid ")]) == 1
    (row,) = sweeps.person("status", f"{run['job_id']}_3", check=True).stdout.splitlines()[1:]
    assert row.startswith("grid/3")


def test_an_element_is_started_again_and_the_others_are_not(sweeps: Sweeps) -> None:
    run = sweeps.ended("again", within_s=150)
    assert [element["attempt"] for element in run["elements"]] == [0, 1]
    assert [element["state"] for element in run["elements"]] == ["COMPLETED", "COMPLETED"]
    assert run["elements"][1]["before"] == "exit status 5"


def test_a_sweep_over_the_cluster_s_limit_is_several_runs(sweeps: Sweeps) -> None:
    assert "requires 2 runs, split-1 to split-2" in sweeps.answers["split"].stderr
    first, second = sweeps.ended("split-1"), sweeps.ended("split-2")
    assert [element["element"] for element in first["elements"]] == [0, 1, 2]
    assert [element["element"] for element in second["elements"]] == [3, 4]
    assert [element["job_id"] for element in second["elements"]] == [
        f"{second['job_id']}_{task}" for task in (0, 1)
    ]
    assert json.loads(sweeps.person("logs", "split-2/4", check=True).stdout) == ["4", "--n", "e"]
    assert "rendezvous" in sweeps.person("logs", "--batch", "split-2/4", check=True).stdout


def test_an_array_that_is_refused_leaves_those_before_it(sweeps: Sweeps) -> None:
    shims = refusing_sbatch(sweeps.person, after=1)["PATH"]
    path = f"{sweeps.person.folder}/small:{shims}"
    asked = (*CPU_JOB, "-J", "half", "--sweep", "n=a,b,c,d", "--sbatch", "hold", "true")
    done = sweeps.person(*asked, env={"PATH": path})
    first = sweeps.run("half-1")["job_id"]
    assert done.returncode == 5
    assert f"submitted  job {first}, run " in done.stdout
    assert (
        "array 2 of 2 was not submitted; the job before it stays submitted:\nsbatch refused the job"
        in done.stderr
    )
    assert f"hint: hpcrun cancel {first} cancels the submitted jobs" in done.stderr
    assert sweeps.person("status", "half-2").returncode == 6
    sweeps.person("cancel", first, check=True)


def test_a_thousand_that_wait_are_one_line_and_one_can_be_cancelled(
    cluster: Cluster, sweeps: Sweeps
) -> None:
    assert sweeps.run("waiting")["reason"] == "1000 elements: 1000 pending"
    sweeps.person("cancel", "waiting/7", "waiting/501", check=True)
    wait_for(
        lambda: sweeps.run("waiting")["reason"] == "1000 elements: 998 pending, 2 cancelled",
        30,
        "them to be cancelled",
    )
    run = sweeps.run("waiting")
    assert [element["element"] for element in run["elements"] if element["final"]] == [7, 501]
    assert "has already ended" in sweeps.person("cancel", "waiting/7", check=True).stderr
    assert cluster.slurm("squeue", "-h", "-j", run["job_id"], "-o", "%i").startswith(
        f"{run['job_id']}_[0-6,8-500,502-"
    )
    sweeps.person("cancel", "waiting", check=True)
    assert sweeps.ended("waiting")["reason"] == "1000 elements: 1000 cancelled"


def test_the_script_is_complete_when_it_is_sbatched_by_hand(
    cluster: Cluster, sweeps: Sweeps
) -> None:
    person = sweeps.person
    person.write_script("by-hand.sh", *CPU_JOB[1:], "--sweep", "n=a,b", "say.py")
    job_id = person.run("sbatch", "by-hand.sh").stdout.split()[-1]
    wait_for(
        lambda: (
            f" {job_id}_" not in f" {' '.join(cluster.slurm('squeue', '-h', '-o', '%i').split())}"
        ),
        60,
        "its end",
    )
    logs = [
        person.folder / f"hpcrun-{job_id}/elements/{index}/attempts/0/rank-0.out"
        for index in (0, 1)
    ]
    assert [json.loads(log.read_text()) for log in logs] == [["0", "--n", "a"], ["1", "--n", "b"]]
