"""The requests to Slurm from inside a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.in_job.launch import slurm_requests
from tests.unit.builders import write

FILTERS = "SCONTROL_ALL SCANCEL_STATE SQUEUE_STATES SINFO_FORMAT SACCT_FORMAT".split()


def test_a_request_is_without_the_filters_of_the_user_and_with_what_a_step_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scancel = write(tmp_path / "scancel", "#!/bin/sh\nenv\nexit 1\n")
    scancel.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in (*FILTERS, "SLURM_JOB_ID", "SRUN_DEBUG"):
        monkeypatch.setenv(name, "1")
    names = {
        line.partition("=")[0] for line in slurm_requests.cancel_pending(["4711"]).splitlines()
    }
    assert names.isdisjoint(FILTERS)
    assert {"SLURM_JOB_ID", "SRUN_DEBUG"} <= names


@pytest.mark.parametrize(
    ("answer", "removed"),
    [
        ("JobState=RUNNING NodeList=n[2-3]", ["n1"]),
        ("JobState=RUNNING NodeList=n[1-3]", []),
        ("JobState=PENDING NodeList=(null)", []),
        ("JobState=COMPLETING NodeList=n2", []),
        ("", []),
    ],
    ids=["one node less", "all", "requeued", "ending", "away"],
)
def test_a_node_that_slurm_has_removed_from_a_running_job_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, removed: list[str]
) -> None:
    write(tmp_path / "scontrol", f"#!/bin/sh\necho '{answer}'\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HPCRUN_JOB_ID", "4711")
    assert slurm_requests.removed_nodes(["n1", "n2"]) == removed
