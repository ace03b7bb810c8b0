"""Several elements of a sweep in one task, on real nodes.

All runs are submitted at once; each test reads its own.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, processes_with, wait_for
from tests.slurm.lab import Lab

pytestmark = pytest.mark.slurm

SMALL = ("-P", "a100", "--cpus", "4", "--mem", "1G", "--time", "5m")
SCRIPTS = {
    "sixty.py": """
import json, os, signal, sys
from hpcrun_runtime import log_metrics
env = os.environ
element, mended = int(env["HPCRUN_ELEMENT"]), "MENDED" in env
log_metrics(score=element)
names = ("CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "PYTORCH_ALLOC_CONF",
         "HPCRUN_ATTEMPT_DIR", "HPCRUN_CHECKPOINT_DIR", "MASTER_PORT")
print(json.dumps([*map(env.get, names), sys.argv[1:]]), flush=True)
if not mended:
    {3: lambda: sys.exit(7), 4: lambda: os.kill(os.getpid(), signal.SIGKILL), 21: os.abort,
     40: lambda: os.execvp("no-such-program", [""])}.get(element, int)()
""",
    "wait.sh": 'trap "echo terminated; exit 9" TERM\necho $$; for ((i = 0; i < 900; i++)); do '
    "sleep 0.1; done\n",
    "warned.sh": """
echo "$HPCRUN_ATTEMPT"
case $HPCRUN_ELEMENT$HPCRUN_ATTEMPT in
  0*) exit 0 ;;
  1*) exit 4 ;;
  20) trap 'exit 0' USR1; for ((i = 0; i < 900; i++)); do sleep 0.1; done ;;
esac
""",
}


@pytest.fixture(scope="module")
def folders(lab: Lab) -> dict[str, Path]:
    def submit(name: str, elements: int, *args: str) -> Path:
        values = f"n={','.join(map(str, range(elements)))}"
        return lab.person.submit("-J", name, *SMALL, "--sweep", values, *args, check=True)

    return {
        "sixty": submit("sixty", 64, "--gpus", "1", "--pack", "8", "--pack-memory", "sixty.py"),
        "ends": submit("ends", 4, "--gpus", "0", "--pack", "4", "bash", "wait.sh"),
        "held": submit("held", 4, "--gpus", "0", "--pack", "2", "--sbatch", "hold", "true"),
        "killed": submit("killed", 2, "--gpus", "0", "--pack", "2", "bash", "wait.sh"),
        "warned": submit(
            "warned", 3, "--gpus", "0", "--pack", "4", "--requeue", "1", "bash", "warned.sh"
        ),
    }


def states(run: dict[str, Any]) -> list[str]:
    return [element["state"] for element in run["elements"]]


def log(folder: Path, element: int) -> Path:
    return folder / f"elements/{element}/attempts/0/rank-0.out"


def started(folder: Path, elements: int) -> list[int]:
    """The process ids that the elements have printed."""

    def numbers() -> list[int] | None:
        texts = [
            log(folder, number).read_text() if log(folder, number).exists() else ""
            for number in range(elements)
        ]
        return [int(text.split()[0]) for text in texts] if all(texts) else None

    return wait_for(numbers, 60, "the start of all elements")


@pytest.mark.versions
def test_64_elements_share_8_gpus_of_2_nodes_and_those_that_fail_leave_the_others(
    lab: Lab, folders: dict[str, Path], slurm_cluster: Cluster
) -> None:
    person, folder = lab.person, folders["sixty"]
    run = person.ended("sixty", 120)
    assert run["reason"] == "64 elements: 60 completed, 4 failed"
    failed = {
        element["element"]: element["exit_status"]
        for element in run["elements"]
        if element["exit_status"]
    }
    assert failed == {3: 7, 4: 137, 21: 134, 40: 1}
    assert [element["job_id"] for element in run["elements"]] == [
        f"{run['job_id']}_{n // 8}" for n in range(64)
    ]
    lines = [json.loads(log(folder, number).read_text().splitlines()[0]) for number in range(64)]
    uses = Counter((node, gpu) for gpu, node, *_ in lines)
    assert len(uses) == 8
    assert {*uses.values()} == {8}
    assert {node for node, _ in uses} == {"a100-1", "a100-2"}
    for number, (_, _, memory, attempt, checkpoints, port, args) in enumerate(lines):
        assert memory == "per_process_memory_fraction:0.1125"
        assert attempt.endswith(f"/elements/{number}/attempts/0")
        assert checkpoints.endswith(f"/elements/{number}/checkpoints")
        assert args == ["--n", str(number)]
        assert port
    ended = slurm_cluster.slurm("sacct", "-XnP", "-j", run["job_id"], "-o", "jobid,state").split()
    assert sorted(line.split("_")[1] for line in ended if "FAILED" in line) == [
        "0|FAILED",
        "2|FAILED",
        "5|FAILED",
    ]
    table = json.loads(person("sweep", "sixty", "--sort", "score:max", "--json", check=True).stdout)
    assert [row["element"] for row in table["elements"][:3]] == [63, 62, 61]
    assert "rank 0 on a100" in person("explain", f"{run['job_id']}/3", check=True).stdout
    again = person("resubmit", "sixty", "--failed", "--wait", env={"MENDED": "1"}, check=True)
    assert "4 elements (n 4 values), 1 task of 8" in again.stderr + again.stdout
    assert [element["element"] for element in person.status("last")["elements"]] == [3, 4, 21, 40]


def test_one_element_is_cancelled_and_then_all_and_nothing_is_left(
    lab: Lab, folders: dict[str, Path]
) -> None:
    person = lab.person
    pids = started(folders["ends"], 4)
    person("cancel", "ends/2", check=True)
    wait_for(
        lambda: person.status("ends")["elements"][2]["state"] == "CANCELLED" or None, 30, "its end"
    )
    assert states(person.status("ends")) == ["RUNNING", "RUNNING", "CANCELLED", "RUNNING"]
    held = person("cancel", f"{lab.job(folders['ends'])}_0")
    assert "runs the elements 0-3" in held.stderr
    person("cancel", "ends", check=True)
    run = person.ended("ends", 60)
    assert states(run) == ["CANCELLED"] * 4
    wait_for(
        lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()] or None,
        20,
        "the end of all processes",
    )
    # a job is CANCELLED before its processes have ended
    for element in range(4):
        assert "terminated" in log(folders["ends"], element).read_text(), element


def test_a_task_all_of_whose_elements_are_cancelled_leaves_the_queue(
    lab: Lab, folders: dict[str, Path]
) -> None:
    lab.person("cancel", "held/0", check=True)
    lab.person("cancel", "held/2", "held/3", check=True)
    job = lab.job(folders["held"])
    assert lab.person.run("squeue", "-rho", "%i", "-t", "PENDING", "-j", job).stdout.split() == [
        f"{job}_0"
    ]
    assert states(lab.person.status("held")) == ["CANCELLED", "PENDING", "CANCELLED", "CANCELLED"]
    lab.person("cancel", "held", check=True)


def test_a_killed_task_leaves_no_process(lab: Lab, folders: dict[str, Path]) -> None:
    started(folders["killed"], 2)
    for pid, line in processes_with(
        f"{folders['killed'].name}/programs/launch/__main__.py"
    ).items():
        if " pack " in line:
            os.kill(pid, signal.SIGKILL)
    wait_for(
        lambda: not processes_with(folders["killed"].name) or None, 20, "the end of all processes"
    )
    assert states(lab.person.ended("killed", 60)) == ["FAILED"] * 2


def test_a_warned_task_is_requeued_and_what_has_ended_does_not_run_again(
    lab: Lab, folders: dict[str, Path]
) -> None:
    wait_for(
        lambda: (folders["warned"] / "elements/1/attempts/0/exit").exists() or None,
        60,
        "the end of two elements",
    )
    wait_for(
        lambda: (folders["warned"] / "elements/2/attempts/0/rank-0.out").exists() or None,
        30,
        "the third",
    )
    lab.person.run("scancel", "--batch", "--signal=USR1", f"{lab.job(folders['warned'])}_0")
    wait_for(
        lambda: (folders["warned"] / "elements/2/attempts/0/exit").exists() or None, 30, "its end"
    )
    run = lab.person.ended("warned", 150)
    assert [(element["state"], element["attempt"]) for element in run["elements"]] == [
        ("COMPLETED", 0),
        ("FAILED", 0),
        ("COMPLETED", 1),
    ]
