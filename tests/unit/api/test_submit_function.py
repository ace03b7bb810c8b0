"""Submitting functions: their calls are in the folder of the run, and their jobs are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hpcrun
from hpcrun.errors import SchedulerError
from tests.unit.builders import write

SBATCH = "cat >/dev/null; echo Submitted batch job 7"


def sbatch(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str = SBATCH) -> None:
    """Let Slurm's sbatch be this program."""
    write(folder / "bin/sbatch", f"#!/bin/sh\n{program}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", str(write(folder / "slurm.conf", "ClusterName=alpha\n")))


@pytest.mark.parametrize(
    ("said", "minutes", "requeues"),
    [
        ({"time": "2h"}, 120, 0),
        ({"time": "2h", "requeue": 3}, 120, 3),
        ({"no_sbatch": ["time"]}, 0, 0),
    ],
    ids=["time", "requeues", "no limit"],
)
def test_a_call_travels_with_its_limits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: dict[str, Any],
    minutes: int,
    requeues: int,
) -> None:
    sbatch(monkeypatch, tmp_path)
    job = hpcrun.Executor("a100", gpus=1, **said).submit(max, 3, 5)
    assert job.job_id == "7"
    call = job.submission()
    assert (call.function, call.args) == (max, (3, 5))
    assert (call._timeout_min, call._timeout_countdown) == (minutes, requeues)


def test_several_calls_are_elements_of_one_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch(monkeypatch, tmp_path)
    jobs = hpcrun.Executor("a100", gpus=1).map_array(max, [1, 2], [3, 0])
    assert [job.job_id for job in jobs] == ["7_0", "7_1"]
    assert [job.submission().args for job in jobs] == [(1, 3), (2, 0)]


def test_a_refused_function_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch(monkeypatch, tmp_path, "echo Invalid account >&2; exit 1")
    with pytest.raises(SchedulerError, match="sbatch refused the job"):
        hpcrun.Executor("a100", gpus=1).submit(max, 3, 5)
    names = [path.name for path in (tmp_path / "runs").iterdir()]
    assert not any(name.startswith("2") for name in names)
