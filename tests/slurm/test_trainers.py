"""Programs that have Slurm start them again by themselves, as Lightning does under srun when it is
warned.
"""

from __future__ import annotations

import json

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import SMALL, Lab

pytestmark = pytest.mark.slurm

# What _SignalConnector of lightning.pytorch 2.6 does under srun: at SIGUSR1 it saves, and rank 0
# calls scontrol requeue; at SIGTERM it goes on.
LIKE_LIGHTNING = """
import os, pathlib, signal, subprocess, time
saved = pathlib.Path(os.environ["HPCRUN_CHECKPOINT_DIR"], "hpc.ckpt")
def save_and_requeue(*_):
    if os.environ["RANK"] == "0":
        saved.touch()
        command = ["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]
        print("requeue", subprocess.call(command), flush=True)
signal.signal(signal.SIGUSR1, save_and_requeue)
signal.signal(signal.SIGTERM, lambda *_: print("bypassing", flush=True))
print("up", flush=True)
if not saved.exists():
    time.sleep(60)
"""


def test_a_program_that_requeues_its_job_is_counted_once(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    lab = Lab(as_researcher, cluster)
    program = as_researcher.folder / "trainer.py"
    program.write_text(LIKE_LIGHTNING)
    folder = lab.submit("trainer", *SMALL, "-p", "cpu", "--launcher", "srun", str(program))
    first = folder / "elements/0/attempts/0"
    wait_for(
        lambda: (first / "rank-0.out").exists() and (first / "rank-0.out").read_text(),
        30,
        "the program",
    )
    lab.warn(folder)
    ended = lab.ended(folder, timeout=240)
    assert ended.state == "COMPLETED"
    assert ended.starts == 2
    # Slurm's SIGTERM may come before scontrol has ended
    assert (first / "rank-0.out").read_text() in (
        "up\nrequeue 0\nbypassing\n",
        "up\nbypassing\nrequeue 0\n",
    )
    assert json.loads((first / "exit").read_text())["reason"] == "time_limit"
