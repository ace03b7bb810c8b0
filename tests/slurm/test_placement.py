"""Where jobs run, on which GPUs and with which environment: what the record and the plan say is
what Slurm did.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.text.units import parse_time
from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm

SMALL = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--mem", "100M", "--time", "5m")
# ASCII() shows bytes that are no text as well
GO = "import os\nprint(ascii([{word!r}, os.getcwd(), os.environ['SLURM_SUBMIT_DIR']]))\n"
EXECUTOR = """
import os
import hpcrun
def go():
    print(ascii(["right", os.getcwd(), os.environ["SLURM_SUBMIT_DIR"]]))
hpcrun.Executor("cpu", cpus=1, mem="100M", time=5).submit(go)
"""


PROFILE = """
scheduler: slurm
partition: h100
gpu: {{type: {type}, per_node: 8, directive: {form}}}
cpu: {{per_node: 64, per_gpu: 2}}
memory: {{per_node: 500G, per_gpu: 100M}}
time: {{default: "10:00"}}
"""
# form of the directive, type, options: each of them at least once
ALLOCATIONS = (
    ("gres", "h100", ("--launcher", "srun")),
    ("gres", "null", ("--launcher", "python", "--sbatch", "mem-per-gpu=200M")),
    (
        "gpus-per-node",
        "h100",
        ("--launcher", "srun", "--sbatch", "mem-per-cpu=50M", "--sbatch", "time=7"),
    ),
    (
        "gpus-per-node",
        "null",
        ("--launcher", "srun", "--no-sbatch", "cpus-per-task", "--no-sbatch", "time"),
    ),
    ("gpus", "h100", ("--launcher", "srun", "--cpus", "12", "--sbatch", "mem=70M")),
    (
        "gpus",
        "null",
        ("--launcher", "python", "--sbatch", "exclusive", "--sbatch", "mem-per-cpu=10M"),
    ),
)
SEE = """
import json, os
names = ("CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "OMP_NUM_THREADS")
print(json.dumps({name: os.environ[name] for name in names}))
"""

SHOW_ENVIRONMENT = "import json, os\nprint(json.dumps(dict(os.environ)))\n"
IDS = frozenset(
    """
    HPCRUN_CHANCE HPCRUN_JOB_ID HPCRUN_NODE_DIR HPCRUN_PORT HPCRUN_PUT_MLFLOW_RUN_CONTEXT
    HPCRUN_PUT_WANDB_TAGS HPCRUN_TREE
    MASTER_PORT MLFLOW_RUN_CONTEXT WANDB_TAGS SLURM_JOBID SLURM_JOB_END_TIME SLURM_JOB_ID
    SLURM_JOB_SLUID SLURM_JOB_START_TIME SLURM_SRUN_COMM_PORT SLURM_STEP_LAUNCHER_PORT
    SLURM_SUBMIT_HOST SLURM_TASK_PID
    """.split()
)
SUBMIT_FROM_INSIDE = """
import os, subprocess, sys
if os.environ["RANK"] == "0":
    os.environ["MINE"] = "set by the program"
    subprocess.run([sys.executable, "-m", "hpcrun", *sys.argv[2:]], cwd=sys.argv[1], check=True)
"""


def runs(person: Hpcrun) -> list[dict[str, Any]]:
    return list(person.document("status", "--all", check=True)["runs"])


def all_over(person: Hpcrun) -> list[dict[str, Any]]:
    """The runs when every one of them has ended."""
    wait_for(lambda: all(run["final"] for run in runs(person)), 120, "all runs to be over")
    return runs(person)


def make_folder(person: Hpcrun, name: str, word: str) -> Path:
    return person.write(f"{name}/go.py", GO.format(word=word)).parent


def test_a_job_whose_folder_is_gone_says_so_and_a_script_by_hand_uses_the_caller_s(
    as_researcher: Hpcrun, cluster: Cluster
) -> None:
    gone = make_folder(as_researcher, "gone", "wrong")
    here = make_folder(as_researcher, "here", "right")
    as_researcher("submit", *SMALL, "--sbatch", "hold", "go.py", cwd=gone, check=True)
    as_researcher.write_script("job.sh", *SMALL, "go.py", cwd=gone)
    shutil.rmtree(gone)
    (waiting,) = runs(as_researcher)
    cluster.slurm("scontrol", "release", waiting["job_id"])
    as_researcher.run("sbatch", "--wait", "../job.sh", cwd=here)
    (by_hand,) = here.glob("hpcrun-*/elements/0/attempts/0/rank-0.out")
    assert by_hand.read_text() == ascii(["right", str(here), str(here)]) + "\n"
    (run,) = all_over(as_researcher)
    assert run["state"] == "FAILED"
    assert f"there is no folder {gone} on cpu-1" in as_researcher("explain", run["run_id"]).stdout


def test_every_job_runs_in_the_folder_that_its_record_names(as_researcher: Hpcrun) -> None:
    project = make_folder(as_researcher, "my 100%a $HOME \udcff", "right")
    elsewhere = make_folder(as_researcher, "elsewhere", "wrong")

    def project_runs(*args: str) -> None:
        as_researcher(*args, cwd=project, check=True)

    def elsewhere_runs(*args: str) -> None:
        as_researcher(*args, cwd=elsewhere, check=True)

    project_runs("submit", *SMALL, "-J", "plain", "go.py")
    elsewhere_runs("resubmit", "plain", "--force", "-J", "again")
    elsewhere_runs("resubmit", "plain", "--force", "-J", "link", "--chain", "2:any")
    elsewhere_runs("submit", *SMALL, "-J", "workdir", "--workdir", "../" + project.name, "go.py")
    elsewhere_runs("resubmit", "workdir", "--force", "-J", "workdir-again")
    project_runs("submit", *SMALL, "-J", "copied", "--snapshot", "go.py")
    elsewhere_runs("resubmit", "copied", "--force", "-J", "copied-again")
    project_runs("submit", *SMALL, "-J", "sweep", "--sweep", "n=1,2", "go.py")
    elsewhere_runs("resubmit", "sweep", "--force", "-J", "sweep-again")
    study = "scale run -P cpu --cpus 1 --time 5m --ranks 1 -J study --launcher srun go.py".split()
    assert (
        as_researcher(*study, cwd=project, env=as_researcher.shims(sbatch="exit 1")).returncode == 5
    )
    elsewhere_runs("scale", "run", "--resume", "study")
    as_researcher.run(f"{as_researcher.venv}/bin/python", "-c", EXECUTOR, cwd=project)
    project_runs("preflight", *SMALL, "--setup", "printf 'in %s\\n' \"$PWD\"", "-J", "nodes")

    found = all_over(as_researcher)
    assert len(found) == 13
    for run in found:
        folder = Path(run["folder"])
        record = json.loads((folder / "run.json").read_text())
        if record["request"].get("preflight") == "only":
            assert f"in {project}\n" in (folder / "batch.log").read_text(errors="surrogateescape")
            continue
        copy = folder / "code" if record["plan"]["snapshot"] else None
        where = Path(copy or record["plan"]["workdir"] or record["cwd"]).resolve()
        assert where == (copy or project).resolve(), run["name"]
        for log in folder.glob("elements/*/attempts/0/rank-0.out"):
            assert ascii(["right", str(where), str(project)]) in log.read_text().splitlines(), run[
                "name"
            ]
        assert run["state"] == "COMPLETED"
        assert run["name"] == run["name"]


def test_every_form_of_a_request_gets_what_the_plan_says(
    as_researcher: Hpcrun, cluster: Cluster
) -> None:
    as_researcher.write("see.py", SEE)
    plans: dict[str, dict[str, Any]] = {}
    for number, (form, type_, options) in enumerate(ALLOCATIONS):
        profile = as_researcher.folder / f"{number}.yaml"
        profile.write_text(PROFILE.format(form=form, type=type_))
        job = (
            "submit",
            "--json",
            "-P",
            f"./{profile.name}",
            "--gpus",
            "6",
            "--nodes",
            "2",
            *options,
            "see.py",
        )
        submitted = json.loads(as_researcher(*job, check=True).stdout)
        plans[submitted["job_id"]] = submitted["plan"]
    found = {run["job_id"]: run for run in all_over(as_researcher)}

    for job_id, plan in plans.items():
        shown = cluster.slurm("scontrol", "--oneliner", "show", "job", job_id)
        limit, tres = re.findall(r" (?:TimeLimit|TRES|AllocTRES)=(\S+)", shown)
        given = dict(item.split("=", 1) for item in tres.split(","))
        case = (plan["directives"], given)
        assert found[job_id]["state"] == "COMPLETED", case
        # the default of the partition
        assert parse_time(limit) == (plan["walltime_s"] or 12 * 3600), case
        exclusive = "exclusive" in dict(plan["directives"])
        # Slurm's default
        cpus = 64 if exclusive else plan["cpus_per_node"] or plan["shape"]["procs_per_node"]
        assert (int(given["cpu"]), int(given["gres/gpu"])) == (2 * cpus, 16 if exclusive else 6), (
            case
        )
        assert megabytes(given["mem"]) == 2 * plan["memory_mb"], case
        logs = Path(found[job_id]["folder"]).glob("elements/0/attempts/0/rank-*.out")
        ranks = [json.loads(log.read_text()) for log in logs]
        assert sorted(rank["SLURMD_NODENAME"] for rank in ranks) == sorted(
            ["h100-1", "h100-2"] * plan["shape"]["procs_per_node"]
        ), case
        assert {len(rank["CUDA_VISIBLE_DEVICES"].split(",")) for rank in ranks} == {3}, case
        threads = plan["cpus_per_rank"] or 1
        assert {rank["OMP_NUM_THREADS"] for rank in ranks} == {str(threads)}, case


def megabytes(text: str) -> float:
    """A size as Slurm writes it: 0.5G, 600M."""
    return float(text[:-1]) * {"M": 1, "G": 1024}[text[-1]]


def test_a_job_submitted_from_inside_a_job_has_the_environment_of_any_other(
    as_researcher: Hpcrun,
) -> None:
    project = as_researcher.write("project/show.py", SHOW_ENVIRONMENT).parent
    as_researcher.write("project/outer.py", SUBMIT_FROM_INSIDE)
    as_researcher.write("project/src/pkg/__init__.py", "")
    here = "extends: a100\nenv: {NCCL_DEBUG: WARN, MINE: profile}\n"
    as_researcher.write("home/.config/hpcrun/profiles/here.yaml", here)
    shell = {
        "OMP_NUM_THREADS": "5",
        "PYTHONPATH": f"/theirs:{as_researcher.environ.get('PYTHONPATH', '')}".strip(":"),
    }
    show = ("submit", *SMALL, "--launcher", "srun", "show.py")
    as_researcher(*show, cwd=project, env=shell, check=True)
    as_researcher(
        "submit",
        "-P",
        "here",
        "--gpus",
        "2",
        "--cpus",
        "4",
        "--mem",
        "2G",
        "--time",
        "9m",
        "--snapshot",
        "-J",
        "outer",
        "--requeue",
        "1",
        "--setup",
        "export FROM_SETUP=1 PATH=/setup:$PATH",
        "--env",
        "TORCH_CPP_LOG_LEVEL=ERROR",
        "--",
        "outer.py",
        str(project),
        *show,
        cwd=project,
        env=shell,
        check=True,
    )

    def ended() -> list[Path] | None:
        found = runs(as_researcher)
        assert [run["reason"] for run in found if run["state"] == "FAILED"] == []
        folders = sorted(
            Path(run["folder"]) for run in found if run["name"] == "show" and run["final"]
        )
        return folders if len(folders) == 2 else None

    folders = wait_for(ended, 90, "the jobs from the login shell and from inside a job to end")
    logs = [(folder / "elements/0/attempts/0/rank-0.out").read_text() for folder in folders]
    login, job = (
        json.loads(log.replace(str(folder), "RUN"))
        for log, folder in zip(logs, folders, strict=True)
    )
    different = {name for name in {*login, *job} if login.get(name) != job.get(name)}
    assert different - IDS == {"MINE"}, {
        name: (login.get(name), job.get(name)) for name in different - IDS
    }
    assert job["MINE"] == "set by the program"


def test_a_name_of_the_fast_network_that_does_not_resolve_is_replaced(
    as_researcher: Hpcrun,
) -> None:
    profile = "extends: h100\nlauncher: srun\nfabric: {host_suffix: -nowhere}\n"
    as_researcher.write("fast.yaml", profile)
    as_researcher.write("meet.py", "import os\nprint('meets at', os.environ['MASTER_ADDR'])\n")
    size = ("-P", "./fast.yaml", "--gpus", "2", "--nodes", "2")
    as_researcher("submit", *size, "--wait", "meet.py", check=True)
    assert "rendezvous h100-1-nowhere:" in as_researcher("logs", "--batch").stdout
    ranks = as_researcher("logs", "--all-ranks").stdout.splitlines()
    assert [line.split()[-1] for line in ranks] == ["h100-1", "h100-1"]
