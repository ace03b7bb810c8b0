"""``--launcher ray`` on two nodes: one program, its actors on both nodes, and nothing of Ray left
behind.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness import Hpcrun

pytestmark = [pytest.mark.slurm, pytest.mark.recipes]

JOB = (
    "-P",
    "a100",
    "--nodes",
    "2",
    "--gpus-per-node",
    "2",
    "--cpus",
    "1",
    "--mem",
    "2G",
    "--launcher",
    "ray",
)
PROGRAM = """
import os, subprocess, sys
import ray

ray.init(log_to_driver=False)

@ray.remote(num_cpus=1, num_gpus=2)
class Actor:
    def start(self):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        return os.environ["HPCRUN_NODE"], os.environ.get("OMP_NUM_THREADS")

    def kill_raylet(self):
        os.kill(os.getppid(), 9)

actors = [Actor.options(lifetime="detached", name=name, namespace="x").remote() for name in "ab"]
started = sorted(ray.get([actor.start.remote() for actor in actors]))
print(started, {name: int(ray.cluster_resources()[name]) for name in ("CPU", "GPU")})
session = ray._private.worker._global_node.get_session_dir_path()
print(oct(os.stat(os.path.join(session, "..", "..")).st_mode))
if sys.argv[1:] == ["kill"]:
    for actor in actors:
        if ray.get(actor.start.remote())[0] != os.environ["HPCRUN_NODE"]:
            ray.get(actor.kill_raylet.remote())
stranger = {**os.environ, "RAY_AUTH_MODE": "disabled"}
command = [sys.executable, "-c", "import ray; ray.init()"]
print(subprocess.run(command, env=stranger, capture_output=True).returncode)
sys.exit(3)
"""

LOST = """
import os, ray

ray.init()

@ray.remote(num_cpus=1, num_gpus=2)
class Actor:
    def step(self, number):
        if number == 3 and os.environ["HPCRUN_NODE"] != HEAD:
            os.kill(os.getpid(), 9)
        return number

HEAD = os.environ["HPCRUN_NODE"]
actors = [Actor.options(name=name).remote() for name in "ab"]
for number in range(9):
    print("step", ray.get([actor.step.remote(number) for actor in actors])[0], flush=True)
"""


def left(run: Path) -> list[str]:
    """Return the processes whose environment names a run."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if bytes(run) in (process / "environ").read_bytes():
                lines.append((process / "cmdline").read_text())
    return lines


def test_two_jobs_on_the_same_two_nodes(person: Hpcrun) -> None:
    person.write("actors.py", PROGRAM)
    good, killed = (person.submit(*JOB, "actors.py", *args, check=True) for args in ([], ["kill"]))
    ends = [person.ended(run.name, 300) for run in (good, killed)]
    assert [end["state"] for end in ends] == ["FAILED", "FAILED"]
    lines = (good / "elements/0/attempts/0/rank-0.out").read_text().splitlines()
    assert lines == ["[('a100-1', '1'), ('a100-2', '1')] {'CPU': 2, 'GPU': 4}", "0o40700", "1"]
    assert [end["exit_status"] for end in ends] == [3, 1]
    assert (
        "Ray has ended on a100-2: raylet ended by signal 9"
        in person("explain", killed.name, check=True).stdout
    )
    assert [left(run) for run in (good, killed)] == [[], []]
    assert [*Path("/tmp").glob(f"hpcrun-node-{ends[0]['job_id']}.*")] == []


def test_an_actor_that_was_killed_on_another_node_is_named(person: Hpcrun) -> None:
    person.write("lost.py", LOST)
    run = person.submit(*JOB, "lost.py", check=True)
    assert person.ended(run.name, 300)["state"] == "FAILED"
    said = person("explain", run.name, check=True).stdout.splitlines()[0]
    lost = r"the process [ab] \(pid \d+ on a100-2\) ended; rank 0 on a100-1 failed first: ActorDied"
    assert re.match(lost, said), said
