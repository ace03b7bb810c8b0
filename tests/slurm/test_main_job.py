"""The main job on a real Slurm: four ranks on two hosts, as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.canaries import EXPORTED, TYPED, files_with_secrets, job_of_canaries
from tests.harness import RESEARCHER, Cluster, Hpcrun, inodes, wait_for, writable_by_others
from tests.receivers import http_server
from tests.slurm.test_notify import LOGIN

pytestmark = pytest.mark.slurm

FOUR_ON_TWO = ("submit", "--gpus", "4", "--nodes", "2", "-P", "a100")


def attempt(person: Hpcrun) -> Path:
    """The folder of the newest run's first attempt."""
    return Path(person.status()["folder"]) / "elements/0/attempts/0"


@pytest.mark.versions
def test_a_rank_that_raises_fails_the_job_and_is_named(as_researcher: Hpcrun) -> None:
    boom = (
        "if os.environ['RANK'] == '3':\n    raise RuntimeError('rank three has had "
        "enough')\ntime.sleep(600)\n"
    )
    as_researcher.write("boom.py", f"import os, time\n{boom}")
    # the limit is well below torchrun's 300 s barrier
    done = as_researcher(*FOUR_ON_TWO, "--wait", "boom.py")
    assert done.returncode == 7
    assert (
        "rank 3 on a100-2 failed first: RuntimeError: rank three has had enough at boom.py:3"
        in done.stderr
    )
    assert "rank 3 ended with exit status 1" in done.stderr
    logs = as_researcher("logs", "--rank", "3", check=True).stdout
    assert "Traceback (most recent call last)" in logs
    assert "RuntimeError: rank three has had enough" in logs
    found = as_researcher.status()
    assert (found["state"], found["exit_status"]) == ("FAILED", 1)
    record = json.loads((attempt(as_researcher) / "rank-3.exit").read_text())
    assert record["status"] == 1
    assert record["node"] == "a100-2"


@pytest.mark.versions
def test_a_run_leaves_few_files_that_no_other_user_can_write(as_researcher: Hpcrun) -> None:
    as_researcher.write("print.py", "import os\nprint(os.umask(0))\n")
    job = ("submit", "-P", "a100", "--gpus", "1", "--launcher", "srun", "--wait", "print.py")
    before = os.umask(0)
    try:
        as_researcher(*job, check=True)
    finally:
        os.umask(before)
    assert (attempt(as_researcher) / "rank-0.out").read_text() == "0\n"
    files, folders = inodes(Path(as_researcher.status()["folder"]))
    assert files <= 20
    assert folders <= 6
    assert writable_by_others(as_researcher.runs) == []


@pytest.mark.versions
def test_srun_starts_one_task_per_gpu_and_needs_no_accounting(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    env = cluster.env_without_accounting(as_researcher.folder)
    as_researcher.write(
        "ranks.py",
        "import os, socket\n"
        "names = 'RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR CUDA_VISIBLE_DEVICES "
        "OMP_NUM_THREADS'.split()\n"
        "print(socket.gethostname(), *(os.environ[name] for name in names))\n",
    )
    done = as_researcher(*FOUR_ON_TWO, "--launcher", "srun", "--follow", "ranks.py", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 nodes × 2 a100 GPUs, 4 ranks by srun" in done.stdout
    assert "a100-1 0 0 4 a100-1" in done.stdout
    lines = as_researcher("logs", "--all-ranks", env=env, check=True).stdout.splitlines()
    assert lines == [
        "[rank 0] a100-1 0 0 4 a100-1 0,1 16",
        "[rank 1] a100-1 1 1 4 a100-1 0,1 16",
        "[rank 2] a100-2 2 0 4 a100-1 0,1 16",
        "[rank 3] a100-2 3 1 4 a100-1 0,1 16",
    ]
    assert as_researcher.status(env=env)["state"] == "COMPLETED"
    assert "COMPLETED" in as_researcher("status", env=env, check=True).stdout


@pytest.mark.versions
def test_no_secret_of_a_job_is_in_a_file_a_message_a_process_list_or_slurm(
    as_researcher: Hpcrun,
) -> None:
    person = as_researcher
    job = job_of_canaries(person.folder, "a100")
    shutil.chown(job[1], RESEARCHER)
    with http_server(host="0.0.0.0") as hook:
        env = {**EXPORTED, "HOOK": f"json://{LOGIN}:{hook.port}/hush/hook"}
        small = ("--gpus", "0", "--cpus", "1", "--mem", "1G", "-p", "cpu", "--notify", "$HOOK")
        done = person("submit", "--wait", "--json", *small, *job, env=env)
        found = json.loads(done.stdout)
        # of what a job on a busy node had no time to send
        person("notify", "last", env={**env, **TYPED})
        wait_for(lambda: hook.messages, 30, "a message")
        bodies = hook.bodies()
    folder, job_id = Path(found["folder"]), str(found["job_id"])
    outputs = [
        done.stdout + done.stderr,
        *(
            person(*words, env={**env, **TYPED}, check=True).stdout
            for words in (
                ("status", "-v", "--json", "last"),
                ("explain", "--json"),
                ("share", "-o", "-"),
            )
        ),
        *(
            person.run(*words, check=True).stdout
            for words in (
                ("scontrol", "show", "job", "-dd", job_id),
                ("scontrol", "write", "batch_script", f"{job_id}_0", "-"),
                ("sacct", "-P", "--format=ALL", "-j", job_id),
            )
        ),
    ]
    assert [text for text in (*outputs, *bodies) if "hush" in text] == []
    assert any("RuntimeError: *** *** ***" in body for body in bodies)
    assert files_with_secrets(folder) == []
    assert "train.py" in (folder / "elements/0/attempts/0/ps").read_text()
    assert person("logs", "last/0", check=True).stdout.count("hush") > 20


def test_a_cpu_job_gets_its_cpus_in_a_runs_folder_with_an_odd_name(as_researcher: Hpcrun) -> None:
    env = {"HPCRUN_RUNS": str(as_researcher.runs / "100% of 'my' $runs")}
    job = (
        "-P",
        "a100",
        "-p",
        "cpu",
        "--gpus",
        "0",
        "--cpus",
        "8",
        "--output-dir",
        "results",
        "--wait",
    )
    folder = as_researcher.submit(
        *job, "printenv", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", check=True, env=env
    )
    assert as_researcher("logs", check=True, env=env).stdout == "8\n8\n"
    assert "rendezvous" in as_researcher("logs", "--batch", check=True, env=env).stdout
    # --output-dir holds the run, and status knows it
    assert [folder.resolve()] == list((as_researcher.folder / "results").resolve().iterdir())
    assert (folder / "elements/0/attempts/0/rank-0.out").read_text() == "8\n8\n"
    assert as_researcher.status(env=env)["state"] == "COMPLETED"
