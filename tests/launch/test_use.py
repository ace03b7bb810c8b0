"""The samples of a job of real processes, with a stand-in for nvidia-smi: they never change how the
job ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.use_samples import NodeUse, read_use, summarise
from tests.harness import wait_for
from tests.launch.jobs import LAUNCH, command, job, python

BUSY = "while :; do echo '0, 80, 1000, 80000, 300.5'; sleep 0.1; done"
IDLE = "while :; do echo '0, 0, 1000, 80000, 60'; sleep 0.1; done"

UNTIL_ENOUGH = (
    "import os, sys, time\nwhile not os.path.exists(os.environ['HPCRUN_ATTEMPT_DIR'] + "
    "'/enough'):\n"
)
UNTIL_ENOUGH += "    time.sleep(0.1)\n"


def with_gpu(folder: Path, stand_in: str, *more: str) -> dict[str, Any]:
    """Options and variables of a job with one GPU, and a stand-in for nvidia-smi."""
    program = folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/bash\n{stand_in}\n")
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    return {"options": ("--gpus", "0", "--sample", "0.2", *more), "env": path}


def uses(attempt: Path) -> tuple[NodeUse, ...]:
    return read_use(AttemptFolder(attempt))


def test_what_a_job_uses_is_in_the_attempts_folder(tmp_path: Path) -> None:
    program = python(tmp_path, UNTIL_ENOUGH.replace("time.sleep(0.1)", "sum(range(10_000))"))
    with job(tmp_path, program, **with_gpu(tmp_path, BUSY)) as running:
        first = wait_for(
            lambda: [use for use in uses(running.attempt) if any(it.gpus for it in use.samples)],
            20,
            "a GPU",
        )
        (running.attempt / "enough").touch()
        assert running.end() == 0
        found = summarise(uses(running.attempt))
        wait_for(lambda: not left(tmp_path), 20, "nvidia-smi to be gone")
    assert len(first) == 1
    assert found is not None
    assert found.gpus == 1
    assert found.gpu_busy == 0.8
    assert found.gpu_idle == 0
    assert found.cpus > 0.01  # more, unless the machine is busy
    assert found.memory_peak > 5 << 20


def left(folder: Path) -> list[str]:
    """What runs of the stand-in."""
    program = str(folder / "bin/nvidia-smi")
    return [
        name for name in filter(str.isdigit, os.listdir("/proc")) if program in command(int(name))
    ]


def test_sampling_can_be_switched_off(tmp_path: Path) -> None:
    gpu = with_gpu(tmp_path, f"touch {tmp_path}/started; {BUSY}")
    with job(
        tmp_path, ["sleep", "1.5"], options=("--gpus", "0", "--sample", "0"), env=gpu["env"]
    ) as running:
        assert running.end() == 0
        assert uses(running.attempt) == ()
    assert not (tmp_path / "started").exists()


def test_a_job_whose_gpus_are_idle_is_warned_and_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is not requeued, and its ranks can still save."""
    text = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved'), "
        "sys.exit(0)))\n"
    )
    program = python(tmp_path, f"{text}time.sleep(60)\n")
    options = ("--cancel-idle", "3", "--grace", "60", "--requeue", "2")
    with job(
        tmp_path, program, nodes=2, **with_gpu(tmp_path, IDLE, "--gpus", "0;1", *options)
    ) as running:
        wait_for((running.attempt / "idle").exists, 20, "the warning")
        said = json.loads((running.attempt / "idle").read_text())
        assert running.end(20) == 124
        assert said["ends"] > said["warned"] > said["since"]
        assert running.out() == "saved\n"
        record = running.record
    assert record["reason"] == "idle"
    assert record["again"] is False
    assert record["message"] == "cancelled: its GPUs were idle for 3 s"
    err = capfd.readouterr().err
    assert err.count("hpcrun: all GPUs have been idle for") == 1
    assert "hpcrun: cancelled: its GPUs were idle for 3 s; --cancel-idle" in err


def test_a_job_with_spares_whose_gpus_are_idle_ends_as_one_without(tmp_path: Path) -> None:
    options = ("--cancel-idle", "1", "--grace", "60", "--requeue", "2", "--spares", "1")
    with job(
        tmp_path, ["sleep", "60"], **with_gpu(tmp_path, IDLE, "--gpus", "0", *options)
    ) as running:
        assert running.end(20) == 143
        record = running.record
    # the job's own words before the end, which SIGKILL might prevent, are not the guard's
    assert record["reason"] == "idle"
    assert record["nodes"] == []
    assert record["signal"] == ""
    assert record["ended"] > json.loads((running.attempt / "rank-0.exit").read_text())["ended"]


def test_one_task_of_srun_samples_for_its_node(tmp_path: Path) -> None:
    """With srun as the launcher there is no process of the node: the first running task samples,
    and then the next.
    """
    program = python(tmp_path, UNTIL_ENOUGH.replace("enough'", "enough-' + os.environ['RANK']"))
    env = {
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "HPCRUN_HEAD_ADDR": "127.0.0.1",
        "HPCRUN_HEAD": "127.0.0.1",
        "HPCRUN_PORT": "1",
    }
    tasks = "import os, subprocess, sys\nranks = []\nfor rank in '01':\n"
    tasks += "    env = {**os.environ, 'SLURM_PROCID': rank, 'SLURM_LOCALID': rank}\n"
    tasks += "    ranks.append(subprocess.Popen(sys.argv[1:], env=env))\n"
    tasks += "sys.exit(max(rank.wait() for rank in ranks))\n"
    (tmp_path / "tasks.py").write_text(tasks)
    chain = [sys.executable, str(tmp_path / "tasks.py"), *LAUNCH, "rank", "--task", "--"]
    with job(tmp_path, program, chain=chain, options=("--sample", "0.2"), env=env) as running:
        wait_for(lambda: any(use.samples for use in uses(running.attempt)), 20, "a sample")
        (running.attempt / "enough-0").touch()
        wait_for((running.attempt / "rank-0.exit").exists, 20, "rank 0's end")
        ended = running.rank(0)["ended"]
        wait_for(
            lambda: uses(running.attempt)[0].samples[-1].time > ended, 20, "a sample of rank 1"
        )
        (running.attempt / "enough-1").touch()
        assert running.end() == 0
    assert (running.attempt / "node-local-0.use").read_text().count("started") == 1
