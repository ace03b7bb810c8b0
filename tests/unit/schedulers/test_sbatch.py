"""What a submission that failed tells: whether sbatch was called at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.job.run_paths import RunFolder
from hpcrun.schedulers.protocol import Submission
from hpcrun.schedulers.sbatch import submit_with_submitit
from tests.unit.builders import write


@pytest.mark.parametrize(
    ("workdir", "claim", "message"),
    [
        ("gone", "submit.ready", "sbatch was not called:\n.*gone"),
        (
            ".",
            "submit.revoked",
            "sbatch was not called:\n.*this run was abandoned before submission",
        ),
        (".", "submit.ready", r"sbatch refused the job \(exit status 1\):\nInvalid account"),
    ],
)
def test_only_a_called_sbatch_refuses_a_job(
    workdir: str, claim: str, message: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    write(run / claim, "")
    sbatch = write(tmp_path / "bin" / "sbatch", "#!/bin/sh\necho Invalid account >&2\nexit 1\n")
    sbatch.chmod(0o755)
    env = {"PATH": f"{sbatch.parent}:/usr/bin:/bin"}
    with pytest.raises(SchedulerError, match=f"(?s){message}"):
        submit_with_submitit(Submission(run, "#!/bin/sh\n", tmp_path / workdir, env, None), env)
    assert RunFolder(run).submit_claim("called").exists() == ("refused" in message)
