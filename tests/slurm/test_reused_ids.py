"""A run whose job id is another job's by now: it is not taken for the run's, and not cancelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.decide_status import MISSED_FOR_S
from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm


def give_id(folder: Path, number: str) -> None:
    """Let a run's record name another job, as if its own had been forgotten and the id used
    again.
    """
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "job_id": number}))
    (folder / "status.json").write_text(
        json.dumps({"state": "RUNNING", "asked_s": 1000.0, "elapsed_s": 60})
    )


def test_another_job_of_the_same_id_is_left_alone(cluster: Cluster, as_researcher: Hpcrun) -> None:
    job = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--sbatch", "hold")
    swept = ("--sweep", "x=1,2")
    old, sweep, new, other = (
        as_researcher.submit(*job, *more, "true", check=True) for more in ((), swept, (), swept)
    )
    ids = {
        folder: str(json.loads((folder / "run.json").read_text())["job_id"])
        for folder in (old, sweep, new, other)
    }
    wrapped = as_researcher.run(
        "sbatch", "--parsable", "-H", "-p", "cpu", "-o", "/dev/null", "--wrap=true"
    )
    plain = wrapped.stdout.strip()
    living = {plain, ids[new], ids[other]}
    cluster.slurm("scancel", ids[old], ids[sweep])
    give_id(sweep, ids[other])
    for number in (plain, ids[new]):
        give_id(old, number)
        done = as_researcher("cancel", old.name)
        assert (done.returncode, done.stdout) == (6, "")
        assert f"Slurm does not know job {number}: nothing was cancelled" in done.stderr
        assert not (old / "cancelled").exists()
    shown = " ".join(as_researcher("status", old.name, check=True).stdout.split())
    assert "Slurm does not list this job, last seen running" in shown
    for word in (sweep.name, f"{sweep.name}/1"):
        assert as_researcher("cancel", word).returncode == 6
    every = as_researcher("cancel", "--yes", "--state", "running,unknown")
    assert (every.returncode, every.stdout) == (6, "")
    last = json.loads((old / "status.json").read_text())
    (old / "status.json").write_text(
        json.dumps({**last, "missed_s": last["missed_s"] - MISSED_FOR_S - 1})
    )
    (run,) = json.loads(as_researcher("status", "--json", old.name).stdout)["runs"]
    assert run["state"] == "UNKNOWN"
    assert run["final"] is False
    assert as_researcher("cancel", old.name).returncode == 6

    def left() -> set[str]:
        return set(cluster.slurm("squeue", "--states=PENDING", "--noheader", "--format=%F").split())

    assert living <= left()
    as_researcher("cancel", new.name, f"{other.name}", check=True)  # their own runs do
    wait_for(lambda: living & left() == {plain}, 20, "the two jobs to end")
