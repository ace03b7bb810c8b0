"""Every command of SKILL.md, run on the cluster in the order of a task: a bug on rank 3, a hang, a
sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcrun.features.skill.install import PLACES, skill_text
from tests.harness import REPO, RESEARCHER, Cluster, Completed, wait_for
from tests.slurm.lab import Lab

pytestmark = pytest.mark.slurm

TRAIN = """
import argparse, os
from hpcrun_runtime import checkpoint_dir, log_metrics

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
rank = int(os.environ["RANK"])
saved = checkpoint_dir() / "step"
first = int(saved.read_text()) if saved.exists() else 0
for step in range(first, 4):
    if rank == 0:
        log_metrics(step=step, loss=lr + 1 / (step + 1))
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").replace(saved)  # another rank reads it
"""
BUG = "    if rank == 3:\n        raise KeyError('recall')\n"
HANG = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"


@dataclass(frozen=True)
class Step:
    """A command of SKILL.md.

    ``of``: the job whose id takes the place of ID. ``makes``: the name of the job that it submits.
    """

    line: str
    words: str = ""  # a regular expression for what it prints
    of: str = ""
    status: int = 0
    makes: str = ""


@dataclass
class Done:
    """What the commands printed, and the job ids."""

    answers: dict[tuple[str, str], Completed] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)


SUBMIT = "hpcrun submit --gpus 4 --nodes 2 --time 10m --name NAME --snapshot"
SWEEP = "hpcrun submit --gpus 1 --time 10m --name lr --snapshot --max-parallel 4"
AGAIN = "hpcrun resubmit ID --snapshot --parsable"
WAIT = "hpcrun wait ID --timeout 100s"
ID = r"\A\d+\n\Z"

SET_UP = (
    Step("hpcrun init", status=2),
    Step("hpcrun init --account NAME --gpu-type TYPE", r"written +\S+\.yaml"),
)
BEFORE_CORRECTION = (
    Step("hpcrun submit -h", "--gpus"),
    Step("hpcrun submit --help", "--gpus"),
    Step(f"{SUBMIT} --dry-run train.py --lr 0.1 2>&1 >/dev/null", r"cost +at most 0\.7 GPU-hours"),
    Step("hpcrun where --gpus 4 --time 10m", "hpcrun submit -P"),
    Step(f"{SUBMIT} --parsable train.py --lr 0.1", ID, makes="bug"),
    Step(WAIT, of="bug", status=7),
    Step("hpcrun status --columns name,job,state", "NAME +.*FAILED"),
    Step("hpcrun status ID", "KeyError: 'recall'", of="bug"),
    Step("hpcrun logs ID -n 20", "KeyError: 'recall'", of="bug"),
    Step("hpcrun explain ID", r"rank 3\b.*KeyError: 'recall'", of="bug"),
)
AFTER_CORRECTION = (
    Step(AGAIN, ID, of="bug", makes="corrected"),
    Step(WAIT, of="corrected"),
    Step("hpcrun metrics ID --csv | sed -n '1p;$p'", r"loss.*\n.*0\.35", of="corrected"),
    Step(f"{AGAIN} --time 20m -- --lr 0.05", ID, of="bug", makes="slower"),
    Step("hpcrun resubmit ID --snapshot --parsable --time 20m", status=4, of="bug"),
    Step(WAIT, of="slower"),
    Step(f"{SWEEP} --sweep lr=0.001,0.01,0.1 --parsable train.py", ID, makes="sweep"),
    Step(WAIT, of="sweep"),
    Step("hpcrun sweep ID", r"\n +0 +COMPLETED +0\.001", of="sweep"),
    Step("hpcrun sweep ID --best loss", "--lr 0.001", of="sweep"),
)
AT_END = (
    Step("hpcrun status -v ID", "held|JobHeldUser", of="held"),
    Step("hpcrun explain ID", r"rank 0 on \S+: \d+ s ago: step 1", of="hang"),
    Step("hpcrun explain ID --stacks", "sleep", of="hang"),
    Step("hpcrun cancel ID", "cancelled", of="hang"),
    Step("hpcrun cancel ID", "cancelled", of="held"),
    Step("hpcrun status --state pending,running --columns name,job,state,why", r"\A(?!.*RUNNING)"),
    Step("hpcrun history --by name --since 1d", "NAME +"),
)
STEPS = (*SET_UP, *BEFORE_CORRECTION, *AFTER_CORRECTION, *AT_END)


def commands() -> set[str]:
    """The commands in SKILL.md: the lines of its blocks, and those between backquotes."""
    text = skill_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  # ")[0].rstrip() for line in "".join(blocks).splitlines()]
    prose = re.sub(r"^```sh\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return {*lines, *re.findall(r"`(hpcrun [^`]+)`", prose)}


def run(lab: Lab, steps: tuple[Step, ...], done: Done) -> None:
    for step in steps:
        line = re.sub(r"\bID\b", done.jobs.get(step.of, "ID"), step.line)
        line = line.replace("--account NAME", "--account lab").replace("TYPE", "a100")
        answer = lab.person.shell(line)
        done.answers[step.line, step.of] = answer
        if step.makes:
            done.jobs[step.makes] = answer.stdout.strip()


@pytest.fixture(scope="module")
def done(lab: Lab, slurm_cluster: Cluster) -> Iterator[Done]:
    before = slurm_cluster.jobs()
    done = Done()
    lab.person.write("train.py", TRAIN + BUG)
    run(lab, SET_UP, done)
    # torchrun would import torch on each node of each job
    lab.person("profile", "set", "launcher=srun", check=True)
    run(lab, BEFORE_CORRECTION, done)
    small = ("submit", "--gpus", "1", "--time", "10m", "--parsable")
    hang = lab.person.write("hang.py", HANG)
    done.jobs["hang"] = lab.person(*small, "--name", "hang", hang.name).stdout.strip()
    done.jobs["held"] = lab.person(*small, "--sbatch", "hold", hang.name).stdout.strip()
    lab.person.write("train.py", TRAIN)
    run(lab, AFTER_CORRECTION, done)
    job = done.jobs["hang"]
    wait_for(lambda: "step 1" in lab.person("logs", job).stdout, 60, "the job that hangs")
    run(lab, AT_END, done)
    yield done
    if left := slurm_cluster.jobs() - before:
        slurm_cluster.slurm("scancel", *left)


def test_every_command_of_the_skill_is_run_here() -> None:
    assert commands() == {step.line for step in STEPS}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.line} {step.of}")
def test_a_command_of_the_skill_does_what_the_skill_says(step: Step, done: Done) -> None:
    answer = done.answers[step.line, step.of]
    assert answer.returncode == step.status, answer.stdout + answer.stderr
    assert re.search(step.words, answer.stdout, re.DOTALL), answer.stdout + answer.stderr


def test_an_agent_s_task_leaves_no_job_behind(done: Done, slurm_cluster: Cluster) -> None:
    assert not set(done.jobs.values()) & slurm_cluster.jobs()


def test_the_qos_of_the_page_limits_gpus_at_a_time_and_counts_gpu_hours(
    lab: Lab, slurm_cluster: Cluster
) -> None:
    page = (REPO / "docs/agents.md").read_text("utf-8")
    lines = re.findall(r"^sacctmgr (.*)", page, re.MULTILINE)
    try:
        for line in lines:
            slurm_cluster.slurm(
                "sacctmgr", "--immediate", *line.replace("alice", RESEARCHER).split()
            )
        small = (
            "submit",
            "--qos",
            "agents",
            "--gpus",
            "h100:1",
            "--time",
            "5m",
            "--launcher",
            "srun",
        )
        lab.person(*small, "--wait", "true", check=True)
        large = ("--qos=agents", "--partition=gpu", "--nodes=2", "--gres=gpu:h100:8", "--time=5")
        refused = lab.person.run("sbatch", *large, "--wrap=true", check=False)
        assert "QOS" in refused.stderr
        budgets = lab.person.document("history")["budgets"]
        allowed = {
            (budget["holder"], budget["resource"]): budget["allowed_hours"] for budget in budgets
        }
        assert allowed["QOS agents", "gres/gpu"] == 200
    finally:
        slurm_cluster.slurm(
            "sacctmgr", "--immediate", "modify", "user", RESEARCHER, "set", "qos-=agents"
        )
        slurm_cluster.slurm("sacctmgr", "--immediate", "delete", "qos", "agents")


def test_the_skill_is_written_where_agents_read_it(lab: Lab) -> None:
    lab.person("skill", "--install", check=True)
    for place in PLACES:
        assert skill_text() in Path(lab.person.folder, place).read_text()
