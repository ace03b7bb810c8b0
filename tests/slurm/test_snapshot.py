"""--snapshot on a real Slurm: what is edited after submission changes nothing in a job that
waits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Cluster, Hpcrun

pytestmark = pytest.mark.slurm


@pytest.mark.versions
def test_edits_after_submission_change_nothing_in_waiting_jobs(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    person = as_researcher.run
    person("git", "init", "-q", "project")
    project = as_researcher.write(
        "project/train.py", "import os, pkg\nprint(os.environ['RANK'], pkg.WORD)\n"
    ).parent
    as_researcher.write("project/src/pkg/__init__.py", "WORD = 'old'\n")
    # what pip install -e leaves in an environment
    venv = as_researcher.folder / "venv"
    person(
        f"{as_researcher.venv}/bin/python",
        "-m",
        "venv",
        "--without-pip",
        "--system-site-packages",
        str(venv),
    )
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "__editable__.pkg.pth").write_text(f"{project / 'src'}\n")

    job = (
        "submit",
        "-P",
        "a100",
        "--gpus",
        "4",
        "--nodes",
        "2",
        "--launcher",
        "srun",
        "--sbatch",
        "hold",
    )
    env = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{as_researcher.environ['PATH']}"}
    as_researcher(*job, "--snapshot", "-J", "copied", "train.py", cwd=project, env=env, check=True)
    as_researcher(*job, "-J", "plain", "train.py", cwd=project, env=env, check=True)
    (project / "src/pkg/__init__.py").write_text("WORD = 'new'\n")
    for name in ("copied", "plain"):
        cluster.slurm("scontrol", "release", as_researcher.status(name)["job_id"])
        as_researcher.ended(name)

    code = Path(as_researcher.status("copied")["folder"]) / "code"
    for name, word in (("copied", "old"), ("plain", "new")):
        logs = as_researcher("logs", name, "--all-ranks", check=True).stdout.splitlines()
        assert logs == [f"[rank {rank}] {rank} {word}" for rank in range(4)]
    verbose = as_researcher("status", "-v", "copied", check=True).stdout
    assert f"pkg from {code}/src/pkg/__init__.py" in verbose
    assert f"script       {code}/train.py" in verbose


def test_a_chain_shares_one_copy(as_researcher: Hpcrun) -> None:
    as_researcher.write("project/train.py", "import sys; print(__file__); sys.exit(1)\n")
    job = (
        "submit",
        "-P",
        "a100",
        "--gpus",
        "0",
        "-p",
        "cpu",
        "--snapshot",
        "--chain",
        "2",
        "train.py",
    )
    as_researcher(*job, cwd=as_researcher.folder / "project", check=True)
    (as_researcher.folder / "project/train.py").unlink()
    as_researcher.ended("train-2")
    folder = as_researcher.status("train")["folder"]
    assert as_researcher.status("train-2")["code_of"] == Path(folder).name
    assert as_researcher("logs", "train-2", check=True).stdout == f"{folder}/code/train.py\n"
