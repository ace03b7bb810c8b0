"""The environment of a submission: without what an enclosing job would add."""

from __future__ import annotations

import pytest

from hpcrun.schedulers.environment import clean_env


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_JOB_ID",
        "SLURM_NTASKS",
        "SBATCH_PARTITION",
        "SQUEUE_STATES",
        "RANK",
        "MASTER_ADDR",
        "LOCAL_RANK",
        "TORCHELASTIC_RUN_ID",
        "HPCRUN_RUN_DIR",
        "SUBMITIT_EXECUTOR",
        "PET_SIGNALS_TO_HANDLE",
    ],
)
def test_what_describes_an_enclosing_job_is_left_out(name: str) -> None:
    assert clean_env({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "name", ["SLURM_CONF", "HPCRUN_RUNS", "HPCRUN_PROFILE", "HPCRUN_SITE", "HF_TOKEN", "CUDA_VISIBLE_DEVICES"]
)
def test_all_else_is_kept(name: str) -> None:
    assert clean_env({name: "x"}) == {name: "x"}
