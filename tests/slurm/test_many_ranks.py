"""Thirty-two ranks by srun: every log, record and exit status. benchmarks/many_ranks.py does it
with 528.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness import Hpcrun, wait_for

pytestmark = pytest.mark.slurm

RANKS = 32
RANK = """
import os, sys, time
rank = os.environ["RANK"]
print(rank, "of", os.environ["WORLD_SIZE"], flush=True)
print("error of", rank, file=sys.stderr, flush=True)
def spoken():
    files = os.scandir(os.environ["HPCRUN_ATTEMPT_DIR"])
    return len([file for file in files if file.name.endswith(".err") and file.stat().st_size])
while rank == os.environ.get("FAILS") and spoken() < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.5)  # its failure ends the others, also those that have only begun
sys.exit(3 if rank == os.environ.get("FAILS") else 0)
"""


def test_every_one_of_32_ranks_is_accounted_for(as_researcher: Hpcrun) -> None:
    as_researcher.write("rank.py", RANK)
    shape = (
        "--gpus",
        "0",
        "--nodes",
        "2",
        "--cpus",
        "16",
        "--mem",
        "20G",
        "--nproc-per-node",
        "16",
    )
    job = ("-P", "a100", "--launcher", "srun", *shape, "--env", "FAILS=27", "rank.py")
    folder = as_researcher.submit(*job, check=True)
    assert as_researcher.ended(folder.name)["state"] == "FAILED"
    attempt = folder / "elements/0/attempts/0"

    # they may be written a moment after Slurm has shown the job's end
    def records() -> list[dict[str, Any]] | None:
        found = [json.loads(path.read_text()) for path in attempt.glob("rank-*.exit")]
        return found if len(found) == RANKS else None

    statuses = {
        record["rank"]: record["status"] for record in wait_for(records, 10, "every rank's record")
    }
    for rank in range(RANKS):
        assert (attempt / f"rank-{rank}.out").read_text() == f"{rank} of {RANKS}\n"
        assert (attempt / f"rank-{rank}.err").read_text() == f"error of {rank}\n"
        assert statuses[rank] in ({3} if rank == 27 else {0, 143})
    assert json.loads((attempt / "exit").read_text())["status"] == 3
    assert "rank 27" in as_researcher("explain", folder.name).stdout
