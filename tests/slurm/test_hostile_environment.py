"""A person whose folders and variables would mislead Slurm's programs."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun
from tests.slurm.lab import SMALL

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    ("name", "options"),
    [("%a %A %j %%u", []), ("DOMAIN\\%a", []), ("DOMAIN\\user", ["--sweep", "A=1"])],
)
def test_the_folder_of_runs_may_have_any_name(
    as_researcher: Hpcrun, name: str, options: list[str]
) -> None:
    runs = as_researcher.folder / name
    env = {"HPCRUN_RUNS": str(runs)}
    command = ("submit", *SMALL, *options, "--wait", "--", "sh", "-c", "echo arrived")
    as_researcher(*command, env=env, check=True)
    assert as_researcher("logs", "last", env=env, check=True).stdout.endswith("arrived\n")
    log = "batch/0.log" if options else "batch.log"
    (folder,) = runs.glob("2*")
    assert (folder / log).exists()
