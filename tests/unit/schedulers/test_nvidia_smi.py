"""What nvidia-smi says, in its own forms, and what is made of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcrun.schedulers.job_steps import (
    GpuReading,
    NodeReading,
    parse_gpu,
    parse_readings,
    query_command,
    shell_command,
    step_command,
)
from tests.shellcheck import complaints

A100 = "0, GPU-5f1e7c3a, NVIDIA A100-SXM4-80GB, 97, 71234, 81920, 402.35, 400.00, 61"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (A100, GpuReading(0, "GPU-5f1e7c3a", "NVIDIA A100-SXM4-80GB", 97, 71234, 81920, 402.35, 400, 61)),
        # a GPU in MIG mode has no utilisation, a passive card no power
        ("3, GPU-1, NVIDIA H100, [N/A], 0, 81559, [Not Supported], [N/A], 33",
         GpuReading(3, "GPU-1", "NVIDIA H100", None, 0, 81559, None, None, 33)),
        ("1, GPU-2, Tesla V100, [Unknown Error], [GPU requires reset], 32768, [Unknown Error], 300.00, [Unknown Error]",
         GpuReading(1, "GPU-2", "Tesla V100", None, None, 32768, None, 300, None)),
        ("No devices were found", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_line(line: str, expected: GpuReading | None) -> None:
    assert parse_gpu(line) == expected


def test_the_answers_of_all_nodes() -> None:
    text = f"Welcome to alpha\na100-2\tgpu\t{A100}\na100-1\tnone\tno nvidia-smi there\n"
    text += (
        "a100-3\terror\tUnable to determine the device handle\na100-3\terror\tUnable to determine the device handle\n"
    )
    found = parse_readings(text)
    assert found["a100-1"] == NodeReading("a100-1", (), "no nvidia-smi there")
    assert [gpu.busy_percent for gpu in found["a100-2"].gpus] == [97]
    assert found["a100-3"].words == "Unable to determine the device handle"
    assert list(found) == ["a100-1", "a100-2", "a100-3"]


def ask(folder: Path, program: str | None, visible: str | None) -> str:
    """Run what nodes run, with this program for nvidia-smi."""
    if program is not None:
        (folder / "nvidia-smi").write_text(f"#!/bin/bash\n{program}\n")
        (folder / "nvidia-smi").chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "SLURMD_NODENAME": "n1"}
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    said = subprocess.run(query_command(), env=env, capture_output=True, text=True, check=True).stdout
    ports = [line for line in said.splitlines() if line.startswith("n1\tport\t")]
    assert len(ports) >= 2, said  # the network's counters, twice: lo is everywhere
    return "".join(line for line in said.splitlines(keepends=True) if "\tport\t" not in line)


def test_only_the_job_s_own_gpus_are_asked_for(tmp_path: Path) -> None:
    asked = ask(tmp_path, 'echo "$*"', "2,3")
    assert asked.startswith("n1\tgpu\t-i 2,3 --query-gpu=index,uuid,name,")
    assert "-i" not in ask(tmp_path, 'echo "$*"', None)
    assert "-i" not in ask(tmp_path, 'echo "$*"', "MIG-1c2d")


def test_what_goes_wrong_on_a_node_is_said(tmp_path: Path) -> None:
    assert ask(tmp_path, None, None) == "n1\tnone\tno nvidia-smi there\n"
    assert ask(tmp_path, "echo No devices were found; exit 6", "0") == "n1\terror\tNo devices were found\n"


def test_the_program_is_good_bash(tmp_path: Path) -> None:
    program = tmp_path / "query.sh"
    program.write_text("#!/bin/bash\n" + query_command()[2])
    assert complaints(program) == ""


def test_steps_share_what_the_job_has() -> None:
    assert step_command("7", nodes=2, cpus=None) == [
        "srun", "--jobid=7", "--overlap", "--mem=0", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--quiet",
        "--kill-on-bad-exit=0",
    ]  # fmt: skip
    shell = shell_command("7", node="a100-2", cpus=8, workdir="/w", is_terminal=True)
    assert shell[-4:] == ["--kill-on-bad-exit=0", "--nodelist=a100-2", "--chdir=/w", "--pty"]
    assert "--cpus-per-task=8" in shell
    assert "--pty" not in shell_command("7", node=None, cpus=None, workdir=None, is_terminal=False)
