"""Rendered scripts, byte for byte: a change to a template shows itself in a review."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpcrun import __version__
from hpcrun.job.batch.batch_script import read_batch_script
from hpcrun.job.plan.batch_plan import plan_script
from hpcrun.job.plan.job_plan import (
    PythonEnvironment,
    Snapshot,
    build_plan,
    flight_recorder_env,
)
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.read_request import read_request
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.script import LAUNCH, render_script
from hpcrun.job.text.quoting import quote_bash
from hpcrun.profiles.folders import load_templates, shipped_folder
from hpcrun.profiles.load import load_profile
from tests.shellcheck import complaints

SCRIPTS = Path(__file__).parent / "scripts"
VENV = PythonEnvironment("/home/me/venv/bin/python", "virtual environment", "/home/me/venv")
CONDA = PythonEnvironment(
    "/opt/conda/envs/x/bin/python", "conda environment", "/opt/conda/envs/x", "CONDA_PREFIX"
)
UV_FOLDER = "/tmp/hpcrun-uv-7/1f"
UV = PythonEnvironment(
    f"{UV_FOLDER}/bin/python",
    "uv.lock of /p x, installed on each node",
    UV_FOLDER,
    uv_project="/p x",
)
BARE = PythonEnvironment("python3", "the first on the job's PATH")
ODD_ARGS = [
    "",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "\\",
    "a\nb",
    "\t",
    "*",
    "#",
    "é",
    "\udcff",
    "--x=1",
    "\x01",
    "\x7f",
]


EIGHT_CPUS = Machine(cpus=8)


def render(
    script: str = "train.py",
    profile: Profile | str = "a100",
    python: PythonEnvironment = VENV,
    *,
    machine: Machine = EIGHT_CPUS,
    snapshot: Snapshot | None = None,
    batch: str | None = None,
    stage: tuple[tuple[str, str, int | None], ...] = (),
    keep_days: int | None = None,
    **asked: Any,
) -> str:
    """The script of a request, without hpcrun's version and folder: they change with a release, or
    with the machine.
    """
    if isinstance(profile, str):
        profile = load_profile(profile, [shipped_folder("cluster_profiles")]).profile
    request = read_request({"script": script, **asked})
    if batch is None:
        plan = build_plan(request, profile, python=python, machine=machine)
        plan = replace(plan, added=flight_recorder_env(dict(plan.env)))
    else:
        read = read_batch_script(request.script, batch, request.args)
        plan = plan_script(request, profile, read, python=python)
    whole = replace(plan, snapshot=snapshot, stage=stage, keep_days=keep_days)
    text = render_script(whole, load_templates([shipped_folder("templates")]))
    text = text.replace(f"Written by hpcrun {__version__} ", "Written by hpcrun ", 1)
    return text.replace(f"={quote_bash(str(LAUNCH))} ", "=/opt/hpcrun/launch ")


case = partial(partial, render)


def cluster(directive: str = "gres", **said: Any) -> Profile:
    gpu = {"type": "h100", "per_node": 4, "directive": directive}
    return Profile(**{"name": "site", "partition": "gpu", "gpu": gpu, **said})


LOCAL = Profile(name="local", scheduler="local")
H100 = {
    "per_node": 8,
    "partition": "h100",
    "cpu": {"per_node": 96, "per_gpu": 12},
    "memory": {"per_node": "1T", "per_gpu": "128G"},
    "time": {"max": "12:00:00"},
}
SEVERAL = cluster(gpu={"types": {"h100": H100, "l40s": {"per_node": 4}}})
BATCH = """#!/bin/bash -l
#SBATCH -J old -p gpu -N 2 --ntasks-per-node=1 --gres=gpu:a100:4 --time=4:00:00 --array=1-3%2
#SBATCH --output=logs/%j.out
set -e
export HF_TOKEN=hf_s3cr3t
srun torchrun --nnodes 2 --nproc-per-node 4 \\
    --rdzv-endpoint "$(hostname):29500" train.py --seed "$SLURM_ARRAY_TASK_ID" "$@" | tee 'a b.log'
"""
TWO: dict[str, Any] = {"gpus": "4", "nodes": 2}
FOUR_GPUS = Machine(16, ("0", "1", "2", "GPU-3f"))
RATES: dict[str, Any] = {
    "card": {"tflops": {"bf16": 989, "fp16": 989}, "nvlink_gb_s": 900},
    "fabric": {"bandwidth_gbit_s": 400},
}
CASES = {
    "torchrun-1-node": case(args=["--lr", "1e-3"], gpus="4"),
    "torchrun-2-nodes": case(**TWO, walltime_s="36h"),
    "torchrun-2-to-4-nodes": case(
        nodes="2-4", gpus_per_node="4", restarts=1, spares=1, launcher="torchrun"
    ),
    "command-1-or-2-nodes": case(
        "accelerate", launcher="command", nodes="1,2", gpus_per_node="4", preflight=True
    ),
    "srun-2-nodes": case("lit.py", python=CONDA, gpus="8", nodes=2, launcher="srun"),
    "python-2-nodes": case("recbole.run", module=True, **TWO, launcher="python"),
    "command-2-nodes": case(
        "bash",
        args=["-c", "accelerate launch --machine_rank $NODE_RANK train.py"],
        **TWO,
        launcher="command",
    ),
    "ray-2-nodes": case(args=["--lr", "1e-3"], **TWO, launcher="ray"),
    "cpu": case("./prepare", python=BARE, gpus="0", cpus=16, memory_mb="64G"),
    "cpu-torchrun": case(gpus="0", launcher="torchrun", nproc_per_node=4, nodes=2),
    "modules-setup-env-secret": case(
        profile=cluster(
            modules=["cuda/12.6"],
            setup=["ulimit -c 0"],
            env={"NCCL_SOCKET_IFNAME": "=ib0"},
            sbatch={"comment": "my project", "exclusive": True},
        ),
        gpus="1",
        load=["nccl/2.20"],
        setup=["export SITE=1 && echo ready", "echo 'café'"],
        env=["HF_HOME=/data/hf cache", "HF_TOKEN=hf_s3cr3t", "EMPTY="],
        workdir="/data/my project",
    ),
    "uv": case(python=UV, **TWO),
    "uv-local": case(profile=LOCAL, python=UV, gpus="0"),
    "odd-arguments": case("my train.py", cluster(), args=ODD_ARGS, gpus="1"),
    "directive-gres": case(profile=cluster("gres"), **TWO),
    "directive-gpus-per-node": case(profile=cluster("gpus-per-node"), **TWO),
    "directive-gpus": case(profile=cluster("gpus"), **TWO),
    "gpu-type-of-several": case(profile=SEVERAL, gpus="h100:4", nodes=2, walltime_s="2h"),
    "requeue-torchrun-2-nodes": case(
        **TWO, requeue=3, warn_s="5m", retry_on_failure=True, exclude_bad_nodes=True
    ),
    "requeue-srun": case("lit.py", gpus="4", launcher="srun", requeue=1),
    "warn-only": case(gpus="4", warn_s="2m"),
    "requeue-local": case(profile=LOCAL, **TWO, requeue=1, walltime_s="1h"),
    "preflight-first": case(
        profile=cluster(**RATES), gpus="8", nodes=2, preflight=True, exclude="h100-[3-4]"
    ),
    "preflight-only": case(
        script="preflight", profile=cluster(), gpus="8", nodes=2, preflight="only"
    ),
    "preflight-only-local": case(
        script="preflight", profile=LOCAL, machine=FOUR_GPUS, **TWO, preflight="only"
    ),
    "preflight-first-local-cpu": case(
        profile=LOCAL,
        python=BARE,
        gpus="0",
        nodes=2,
        launcher="torchrun",
        nproc_per_node=2,
        preflight=True,
    ),
    "snapshot": case(
        "train me.py",
        gpus="1",
        snapshot=Snapshot("tools", ("tools", "src", "a b"), "tools/train me.py"),
    ),
    "snapshot-module-local": case(
        "pkg.train", LOCAL, module=True, gpus="0", snapshot=Snapshot(".", (".",))
    ),
    "sweep": case(
        args=["--epochs", "3", "--out", "runs/{lr}"],
        gpus="4",
        sweep=["lr=1e-3,1e-4", "text=a b,it's,$HOME"],
        max_parallel=2,
        requeue=1,
    ),
    "sweep-local": case(profile=LOCAL, gpus="2", sweep=["lr=1,2,3"], elements="0,2"),
    "pack": case(
        gpus="2",
        sweep=["lr=1,2,3,4,5,6", "text=a b"],
        elements="0-2,4-5",
        pack=3,
        pack_memory=True,
        requeue=1,
    ),
    "pack-local": case(profile=LOCAL, machine=FOUR_GPUS, gpus="2", sweep=["lr=1,2,3"], pack=2),
    "local-1-node": case(profile=LOCAL, gpus="2"),
    "local-2-nodes-cpu": case(profile=LOCAL, **TWO, workdir="/data/my project"),
    "local-2-nodes-gpu": case(profile=LOCAL, machine=FOUR_GPUS, **TWO),
    "container-apptainer": case(
        profile=cluster(container={"mounts": ["/data", "/my scratch:/mnt:ro"]}),
        gpus="8",
        nodes=2,
        container="/images/my torch.sif",
        preflight=True,
        snapshot=Snapshot("src", ("src",), "src/train.py"),
    ),
    "container-pyxis-srun": case(
        "lit.py",
        cluster(
            container={
                "runtime": "pyxis",
                "image": "nvcr.io#nvidia/pytorch:26.01-py3",
                "mounts": ["/data"],
            }
        ),
        gpus="8",
        nodes=2,
        launcher="srun",
        env=["HF_HOME=/data/hf"],
    ),
    "batch-array-requeue": case(
        "old.sbatch",
        python=replace(VENV, prefix=None),
        batch=BATCH,
        args=["a b", "$HOME"],
        gpus="8",
        walltime_s="1h",
        requeue=2,
    ),
    "batch-nodes-srun": case(
        "old.sbatch",
        python=replace(VENV, prefix=None),
        batch="#!/bin/bash\n#SBATCH -N 1 --ntasks-per-node=2 --gres=gpu:4\nsrun -l python x.py\n",
        nodes="2-4",
        ntasks_per_node=4,
        srun=["mpi=pmi2", "label"],
        walltime_s="30",
    ),
    "stage": case(
        stage=(("-name", "/data/a b", None), ("c's", "/c's", 8)),
        keep_days=7,
        **TWO,
        container="/my x.sif",
        restarts=1,
    ),
    "roles": case(
        "vllm serve M --port {port}",
        gpus_per_node="4",
        roles=["server:1,ready=http:{port}/health"],
        args=["--role", "trainer:2", "train.py", "--url", "{server.url}"],
    ),
    "roles-local-gpus": case(
        "serve {port}",
        LOCAL,
        machine=FOUR_GPUS,
        roles=["my-server:1gpu"],
        args=["--role", "trainer:3gpu", "train.py", "{my-server.host}:{my-server.port}"],
        sweep=["lr=1,2"],
    ),
    "local-python": case("prepare.py", LOCAL, BARE, gpus="0"),
}


def golden(name: str) -> Path:
    path = SCRIPTS / f"{name}.sh"
    if not path.exists():
        pytest.fail(f"{path.name} is not there; `make golden` writes it")
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_script_is_as_it_was(name: str, update_golden: bool) -> None:
    text = CASES[name]()
    if update_golden:
        SCRIPTS.mkdir(exist_ok=True)
        (SCRIPTS / f"{name}.sh").write_bytes(text.encode("ascii"))
    assert text == golden(name).read_bytes().decode("ascii"), (
        "`make golden` writes it anew: then look at git diff"
    )


def test_every_golden_file_belongs_to_a_case(update_golden: bool) -> None:
    orphans = [path for path in sorted(SCRIPTS.iterdir()) if path.stem not in CASES]
    if update_golden:
        for path in orphans:
            path.unlink()
    else:
        assert orphans == []


@pytest.mark.parametrize("name", CASES)
def test_bash_and_shellcheck_read_a_script_of_ascii_lines_without_a_secret(name: str) -> None:
    assert (
        subprocess.run(["bash", "-n", str(golden(name))], capture_output=True, text=True).stderr
        == ""
    )
    # '\\' and '$HOME' are a person's arguments, and right
    assert complaints(golden(name), without="SC1003,SC2016") == ""
    raw = golden(name).read_bytes()
    assert raw.isascii()
    assert raw.startswith(b"#!/bin/bash\n")
    assert raw.endswith(b"\n")
    assert not set(b"\r\0") & set(raw)
    assert b"hf_s3cr3t" not in raw
