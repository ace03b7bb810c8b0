"""profile detect on a real Slurm: what it writes is a profile whose jobs land on the right
nodes.
"""

from __future__ import annotations

import json

import pytest

from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm


def hosts_of(person: Hpcrun, *asked: str) -> set[str]:
    """The hosts on which a job of the detected profile ran."""
    person("submit", "-P", "dev", *asked, "--launcher", "python", "--wait", "hostname", check=True)
    return {
        line.split()[-1] for line in person("logs", "--all-ranks", check=True).stdout.splitlines()
    }


@pytest.mark.versions
def test_jobs_of_a_detected_profile_land_on_the_right_nodes(as_researcher: Hpcrun) -> None:
    done = as_researcher("profile", "detect", "--write", "dev", check=True)
    assert done.stderr == ""
    path = as_researcher.home / ".config/hpcrun/profiles/dev.yaml"
    assert f"written  {path}" in done.stdout
    text = path.read_text()
    assert "account: lab                        # sacctmgr show assoc: your only one" in text
    assert hosts_of(as_researcher, "--gpus", "h100:4", "--nodes", "2") == {"h100-1", "h100-2"}
    (l40s,) = hosts_of(as_researcher, "--gpus", "l40s:2")
    assert l40s in {"l40s-1", "l40s-2"}

    again = as_researcher("profile", "detect", "--write", "dev")
    assert again.returncode == 3
    assert "already exists" in again.stderr
    assert path.read_text() == text


@pytest.mark.versions
def test_a_fresh_account_submits_without_a_profile(as_researcher: Hpcrun) -> None:
    (as_researcher.folder / "train.py").write_text(
        "import os\nprint(os.environ['RANK'], os.uname().nodename)\n"
    )
    # torchrun would import torch on each node
    size = ("--gpus", "h100:4", "--nodes", "2", "--launcher", "srun")
    done = as_researcher("submit", *size, "--wait", "train.py", check=True)
    note = (
        "detected the cluster dev: partition gpu (the default), account lab; keep or change it "
        "with hpcrun init"
    )
    assert note in done.stdout
    logs = as_researcher("logs", "--all-ranks", check=True).stdout.splitlines()
    assert {line.split()[-1] for line in logs} == {"h100-1", "h100-2"}
    assert len(logs) == 4
    without = ("submit", "--gpus", "0", "--nodes", "1", "--launcher", "srun")
    job = {}
    for profile in ("detected", "a100"):  # a job without GPUs keeps none idle, with any profile
        submitted = json.loads(
            as_researcher(*without, "-P", profile, "--json", "hostname", check=True).stdout
        )
        job[profile] = as_researcher.run("scontrol", "show", "job", str(submitted["job_id"])).stdout
    assert ["Partition=cpu " in text for text in job.values()] == [True, True], job
    named = as_researcher(
        *without, "-P", "a100", "-p", "gpu", "--dry-run", "hostname", check=True
    ).stdout
    assert "#SBATCH --partition=gpu\n" in named
    assert "  1 node  " in as_researcher("status", check=True).stdout


def test_nodes_that_slurm_hides_have_gpus_that_slurm_decides(as_researcher: Hpcrun) -> None:
    # as with PrivateData=nodes
    denied = 'echo "slurm_load_node error: Access/permission denied" >&2; exit 1'
    env = as_researcher.shims(
        scontrol=f'case "$*" in *"show node"*) {denied};; esac\nexec /usr/bin/scontrol "$@"',
        sinfo=denied,
    )
    detect = as_researcher("profile", "detect", env=env, check=True).stdout
    assert "not known, Slurm decides; scontrol show node: slurm_load_node error" in detect
    program = ("--launcher", "python", "hostname")
    undecided = as_researcher("submit", *program, env=env)
    assert "does not say how many GPUs" in undecided.stderr
    as_researcher("submit", "--gpus", "h100:8", *program, env=env, check=True)
    many = as_researcher("submit", "--gpus", "9", *program, env=env)
    assert "Requested node configuration is not available" in many.stderr
    assert "has 0" not in many.stderr
