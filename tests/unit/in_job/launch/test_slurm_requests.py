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
