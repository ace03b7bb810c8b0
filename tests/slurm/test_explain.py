"""hpcrun explain on a real Slurm: which of several ranks on several nodes is to blame, and what
Slurm itself did.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm

ONE_RANK_FAILS = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
if os.environ["RANK"] == "1":
    import apex_of_another_cluster
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.versions
def test_the_rank_that_failed_first_and_what_slurm_did(as_researcher: Hpcrun) -> None:
    as_researcher.write("train.py", ONE_RANK_FAILS)
    two = ("-P", "l40s", "-N", "2", "-G", "2", "--cpus", "1", "--mem", "1G", "-t", "5m")
    one = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--mem", "1G", "-t", "5m")
    as_researcher("submit", *one, "-J", "ended", "sleep", "300", check=True)
    waited = as_researcher("submit", *two, "--wait", "train.py")
    assert waited.returncode == 7
    assert (
        "hpcrun: rank 1 on l40s-2 failed first: the Python module apex_of_another_cluster"
        in waited.stderr
    )

    shown = as_researcher("explain", "train", check=True).stdout
    assert shown.startswith(
        "rank 1 on l40s-2 failed first: the Python module apex_of_another_cluster is not installed"
    )
    assert "train.py:8 in <module>: import apex_of_another_cluster" in shown
    assert "rank 0 on l40s-1 (another rank had already ended)" in shown
    assert "FAILED" in shown.splitlines()[-4]
    assert "(rank 1, l40s-2)" in as_researcher("status", "train", check=True).stdout
    logs = as_researcher("logs", "train", check=True)
    assert "apex_of_another_cluster" in logs.stdout
    assert "hpcrun: showing rank 1, which failed first" in logs.stderr

    state = '"state": "RUNNING"'
    wait_for(
        lambda: state in as_researcher("status", "--json", "ended").stdout,
        30,
        "the other job to run",
    )
    assert "the job is running" in as_researcher("explain", "ended", check=True).stdout
    as_researcher("cancel", "ended", check=True)

    def cancelled() -> bool:
        return bool(as_researcher.document("explain", "ended")["rule"] == "cancelled")

    wait_for(cancelled, 60, "explain to say that it was cancelled")


@pytest.mark.versions
def test_a_job_whose_output_could_not_be_opened(as_researcher: Hpcrun, cluster: Cluster) -> None:
    cpu = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--mem", "1G", "-t", "5m")
    as_researcher("submit", *cpu, "-J", "closed", "--sbatch", "hold", "true", check=True)
    run = as_researcher.document("status", "closed")["runs"][0]
    folder = Path(run["folder"])
    folder.chmod(0o500)
    cluster.slurm("scontrol", "release", run["job_id"])

    def explained() -> str:
        said = as_researcher.document("explain", "closed")
        return str(said["summary"]) if said["state"] == "FAILED" else ""

    try:
        summary = wait_for(explained, 30, "the job to fail")
    finally:
        folder.chmod(0o700)
    assert summary.startswith("cpu-1 ")
    assert f"{folder}/batch.log" in summary
    assert summary.endswith("the folder is not visible there, or not writable")
    assert summary in as_researcher("status", "-v", "closed", check=True).stdout.replace("\n", " ")


FOREIGN = """#!/bin/bash
#SBATCH --partition=cpu --time=5 --mem=100M --job-name=theirs
echo start
python3 train.py
"""


@pytest.mark.versions
def test_a_job_that_hpcrun_did_not_submit(as_researcher: Hpcrun, subtests: pytest.Subtests) -> None:
    folder = as_researcher.folder
    as_researcher.write(
        "train.py", "def main(split):\n    return {'train': 1}[split]\nmain('valid')\n"
    )
    as_researcher.write("theirs.sbatch", FOREIGN)
    sbatch = ("sbatch", "--parsable", "--chdir", str(folder))
    job = as_researcher.run(*sbatch, "theirs.sbatch").stdout.strip()
    split = as_researcher.run(
        *sbatch, "--output=out.%j", "--error=err.%j", "theirs.sbatch"
    ).stdout.strip()
    array = as_researcher.run(*sbatch, "--array=0-1", "theirs.sbatch").stdout.strip()
    waits = as_researcher.run(*sbatch, "--hold", "theirs.sbatch").stdout.strip()

    def ended(word: str) -> bool:
        return bool(
            json.loads(as_researcher("explain", "--json", word).stdout or "{}").get("state")
            == "FAILED"
        )

    for word in (job, split, f"{array}_1"):
        wait_for(lambda word=word: ended(word), 60, f"job {word} to end")  # type: ignore[misc]
    told = as_researcher("explain", job, check=True)
    assert f"{job} is a job that hpcrun did not submit" in told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == "the job ended as FAILED: KeyError: 'valid' at train.py:2"
    assert lines[2].startswith(f"output  {folder}/slurm-{job}.out:")
    assert lines[-1] == f"next  less {folder}/slurm-{job}.out"
    assert f"{folder}/err.{split}:" in as_researcher("explain", split, check=True).stdout
    for word in (f"{array}_1", f"{array}/1"):
        assert f"slurm-{array}_1.out:" in as_researcher("explain", word, check=True).stdout
    # the controller forgets a job after MinJobAge; a scontrol that has done so says nothing of it
    env = as_researcher.shims(
        scontrol="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    )
    forgotten = ("KeyError: 'valid' at train.py:2", f"slurm-{job}.out:")

    # the folder comes with the job's start, which the accounting may hear later
    def explained() -> bool:
        shown = as_researcher("explain", job, env=env).stdout
        return all(words in shown for words in forgotten)

    wait_for(explained, 60, "the accounting to have the end")
    held = as_researcher("explain", waits, check=True).stdout
    assert held.startswith("the job has not started: ")
    assert f"next  squeue --start --job {waits}" in held
    hint = (
        f"hint: hpcrun did not submit this job: hpcrun explain {waits} explains it, scancel "
        f"{waits} cancels it\n"
    )
    assert as_researcher("logs", waits).stderr.endswith(hint)
    as_researcher.run("scancel", waits)
    for command in ("explain", "logs", "cancel"):
        with subtests.test(command=command):  # nothing can be done with what nobody knows
            unknown = as_researcher(command, "99999999")
            assert (unknown.returncode, unknown.stderr.splitlines()[-1]) == (
                6,
                "hint: hpcrun submit creates one",
            )


ALONE = """
import sys, time
import torch
if sys.argv[1:] == ["together"]:
    torch.distributed.init_process_group("gloo")
if sys.argv[1:] == ["workers"]:
    torch.utils.data.DataLoader([1] * 64, num_workers=64)
time.sleep(9)
"""
ITSELF = """
exec python -m torch.distributed.run --nnodes=$SLURM_NNODES --node-rank=$SLURM_NODEID \\
    --nproc-per-node=1 --rdzv-id=1 --rdzv-backend=c10d --rdzv-endpoint=localhost:29517 \\
    train.py together
"""


def test_ranks_that_never_met_are_noted(as_researcher: Hpcrun) -> None:
    as_researcher.write("train.py", ALONE)
    as_researcher.write("launch.sh", ITSELF)
    two = ("-P", "a100", "-N", "2", "--gpus", "0", "--cpus", "1", "--mem", "1G", "-t", "5m")
    by_itself = ("--launcher", "command", "bash", "launch.sh")
    as_researcher("submit", *two, "-J", "itself", *by_itself, check=True)
    as_researcher("submit", *two, "-J", "alone", "train.py", "workers", check=True)
    by_torchrun = ("--launcher", "torchrun", "--nproc-per-node", "1")
    united = ("-J", "united", "--wait", "train.py", "together")
    as_researcher("submit", *two, *by_torchrun, *united, check=True)
    note = "none of the 2 ranks was seen connected to another: each seems to work alone"
    assert note not in json.dumps(as_researcher.document("explain", "united"))

    def ended(name: str) -> bool:
        return bool(as_researcher.document("status", name)["runs"][0]["final"])

    wait_for(lambda: ended("alone"), 60, "the ranks to end that do not meet")
    shown = as_researcher.document("explain", "alone")
    loader = "a DataLoader has 64 workers, and torch advises at most"
    assert f"{note}; {loader}" in as_researcher("status", "alone").stdout.replace("\n", " ")
    assert f"exit status 0; {note}; {loader}" in shown["summary"]
    assert not shown["fix"]
    as_researcher("cancel", "itself", check=True)  # each node waits for the other one at itself
    wait_for(lambda: ended("itself"), 60, "the job to be cancelled")
    assert note in as_researcher("explain", "itself").stdout


SEED = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=3
#SBATCH --cpus-per-task=1
#SBATCH --time=5
#SBATCH --mem=2G
srun --mpi=none python -m torch.distributed.run --nnodes=1 --nproc_per_node=2 --rdzv_backend=c10d \\
    --rdzv_endpoint=$SLURM_NODELIST:29533 train.py
"""


def test_a_script_that_starts_too_many_torchruns_and_its_fix(as_researcher: Hpcrun) -> None:
    as_researcher.write("train.py", "import time\ntime.sleep(9)\n")
    as_researcher.write("job.sbatch", SEED)
    script = ("-P", "a100", "--wait", "-J", "many", "job.sbatch")
    many = "srun ran torchrun several times on "
    assert as_researcher("submit", *script).returncode == 7
    shown = as_researcher.document("explain", "many")
    assert shown["summary"].startswith(many)
    assert "hpcrun submit --ntasks 1 " in shown["fix"]
    log = as_researcher.write("job.log", as_researcher("logs", "--batch", "many").stdout)
    assert as_researcher("explain", "--log", str(log)).stdout.startswith(many)
    mended = as_researcher("submit", "--ntasks", "1", *script, check=True)
    assert "starts torchrun" not in mended.stdout
