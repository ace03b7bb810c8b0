"""Options of srun and torchrun, segments and expedited requeue, on a real Slurm."""

from __future__ import annotations

import json
import re

import pytest

from tests.harness import Cluster, Hpcrun

pytestmark = pytest.mark.slurm

STEP = """
import os
rank = os.environ["SLURM_PROCID"]
with open(f"step-{rank}", "w") as file:
    file.write(f"{os.environ.get('SLURM_CPU_BIND_TYPE')} {os.environ['SLURM_NTASKS']}")
"""
FAILS_ONCE = """
import os, time
rank, count = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} start {count}", flush=True)
is_first = not os.path.exists(f"started-{rank}")
open(f"started-{rank}", "w").close()
if is_first and rank == "1":
    raise ValueError("only the first time")
time.sleep(300 if is_first else 0)  # as one that waits for the other
"""
RANKS = ("-P", "a100", "--gpus", "0", "--cpus", "1", "--mem", "1G")


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    for name, text in (("step.py", STEP), ("fails_once.py", FAILS_ONCE)):
        as_researcher.write(name, text)
    return as_researcher


def test_srun_gets_its_options(person: Hpcrun) -> None:
    asked = ("--nodes", "2", "--launcher", "srun", "--srun", "cpu-bind=none", "--srun", "mpi=none", "--wait")
    done = person("submit", *RANKS, *asked, "step.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "srun       --cpu-bind=none --mpi=none" in done.stdout
    assert [(person.folder / f"step-{rank}").read_text() for rank in (0, 1)] == ["none 2"] * 2


@pytest.mark.parametrize(
    ("option", "said", "hint"),
    [
        ("cpu-bnd=none", "unrecognized option '--cpu-bnd=none'", "did you mean cpu-bind?"),
        ("wait=soon", 'Invalid numeric value "soon" for --wait.', "srun --help"),
        ("mpi=openmpy", "--mpi=openmpy is none of ", "srun --help"),
        ("mpi", "option '--mpi' requires an argument", "srun --help"),
        ("overlap=\n$(touch /tmp/never);x", None, ""),
    ],
)
def test_what_srun_does_not_know_is_refused_before_anything_is_submitted(
    option: str, said: str | None, hint: str, person: Hpcrun
) -> None:
    done = person("submit", *RANKS, "--launcher", "srun", "--srun", option, "--dry-run", "step.py")
    if said is None:
        assert done.returncode == 0, done.stderr
        assert "$'--overlap=\\x0a$(touch /tmp/never);x'" in done.stdout
        return
    assert done.returncode == 2
    assert f"--srun: srun refuses it: {said}" in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rank_that_fails_once_is_started_again_by_torchrun(person: Hpcrun) -> None:
    asked = ("--nodes", "2", "--launcher", "torchrun", "--nproc-per-node", "1", "--torchrun", "max-restarts=1")
    folder = person.submit(*RANKS, *asked, "--wait", "fails_once.py", check=True)
    attempt = folder / "elements/0/attempts/0"
    assert [json.loads((attempt / f"rank-{rank}.exit").read_text())["status"] for rank in (0, 1)] == [0, 0]
    assert json.loads((attempt / "rank-1.exit.1").read_text())["status"] == 1
    starts = [(attempt / f"rank-{rank}.out").read_text() for rank in (0, 1)]
    restart = "hpcrun: torchrun restart 1"
    # torchrun counts the failures of a node's own ranks
    assert starts == [f"rank 0 start 0\n{restart}\nrank 0 start 0\n", f"rank 1 start 0\n{restart}\nrank 1 start 1\n"]
    assert "only the first time" in (attempt / "rank-1.err").read_text()
    assert "torchrun starts the ranks of a100-1 again: restart 1" in (folder / "batch.log").read_text()


def test_what_sbatch_does_not_know_yet_is_refused_with_a_way_out(person: Hpcrun, cluster: Cluster) -> None:
    version = tuple(int(part) for part in re.findall(r"\d+", cluster.slurm("sbatch", "--version"))[:2])
    profile = person.write("again.yaml", "extends: a100\nrequeue: {times: 1, expedite: true}\n")
    for done, since, what in (
        (person("submit", *RANKS, "--nodes", "2", "--segment", "2", "step.py"), (23, 11), "segments need"),
        (person("submit", "-P", str(profile), *RANKS[2:], "step.py"), (25, 11), "expedited requeue needs"),
    ):
        if version >= since:  # which may not be set up for it
            assert done.returncode == 0 or "hint: this Slurm is not set up for it" in done.stderr, done.stderr
        else:
            assert done.returncode == 5
            assert f"hint: {what} Slurm {since[0]}.{since[1]}" in done.stderr
