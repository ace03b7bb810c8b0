"""Thirty-two ranks by srun: every log, record and exit status. benchmarks/many_ranks.py does it with 528."""

from __future__ import annotations

import json
from pathlib import Path
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


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    as_researcher.write("rank.py", RANK)
    return as_researcher


def submit(person: Hpcrun, *more: str) -> Path:
    shape = ("--gpus", "0", "--nodes", "2", "--cpus", "16", "--mem", "20G", "--nproc-per-node", "16")
    return person.submit("-P", "a100", "--launcher", "srun", *shape, *more, "rank.py", check=True)


def records(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the record of each rank, which may be written a moment after Slurm has shown the job's end."""

    def paths() -> list[Path] | None:
        found = list(folder.glob("elements/0/attempts/0/rank-*.exit"))
        return found if len(found) == RANKS else None

    found = [json.loads(path.read_text()) for path in wait_for(paths, 10, "every rank's record")]
    return {record["rank"]: record for record in found}


def spoken(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("elements/0/attempts/0/rank-*.out"))


def test_every_one_of_32_ranks_is_accounted_for(person: Hpcrun) -> None:
    folder = submit(person, "--env", "FAILS=27")
    assert person.ended(folder.name)["state"] == "FAILED"
    attempt = folder / "elements/0/attempts/0"
    assert spoken(folder) == sorted(f"{rank} of {RANKS}\n" for rank in range(RANKS))
    for rank in range(RANKS):
        assert (attempt / f"rank-{rank}.err").read_text() == f"error of {rank}\n"
    statuses = {rank: record["status"] for rank, record in records(folder).items()}
    assert set(statuses) == set(range(RANKS))
    assert statuses[27] == 3
    assert {status for rank, status in statuses.items() if rank != 27} <= {0, 143}
    assert json.loads((attempt / "exit").read_text())["status"] == 3
    assert "rank 27" in person("explain", folder.name).stdout
