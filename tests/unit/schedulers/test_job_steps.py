"""Steps beside a job: their srun, the answers of nvidia-smi, and the counters of a node's
network.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcrun.schedulers.job_steps import (
    READ_PORTS,
    GpuReading,
    NodeReading,
    PortReading,
    parse_gpu,
    parse_ports,
    parse_readings,
    query_command,
    shell_command,
    step_command,
)
from tests.shellcheck import complaints

A100 = "0, GPU-5f1e7c3a, NVIDIA A100-SXM4-80GB, 97, 71234, 81920, 402.35, 400.00, 61"


def test_a_line(subtests: pytest.Subtests) -> None:
    for line, expected in (
        (
            A100,
            GpuReading(
                0, "GPU-5f1e7c3a", "NVIDIA A100-SXM4-80GB", 97, 71234, 81920, 402.35, 400, 61
            ),
        ),
        # a GPU in MIG mode has no utilisation, a passive card no power
        (
            "3, GPU-1, NVIDIA H100, [N/A], 0, 81559, [Not Supported], [N/A], 33",
            GpuReading(3, "GPU-1", "NVIDIA H100", None, 0, 81559, None, None, 33),
        ),
        (
            "1, GPU-2, Tesla V100, [Unknown Error], [GPU requires reset], 32768, [Unknown Error], "
            "300.00, [Unknown Error]",
            GpuReading(1, "GPU-2", "Tesla V100", None, None, 32768, None, 300, None),
        ),
        ("0, GPU-5f1e7c3a, NVIDIA A100", None),  # cut off
        (f"{A100}, 5", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
        ("", None),
    ):
        with subtests.test(line=line):
            assert parse_gpu(line) == expected


def test_the_answers_of_all_nodes() -> None:
    text = f"Welcome to alpha\na100-2\tgpu\t{A100}\na100-1\tnone\tno nvidia-smi there\n"
    text += "a100-3\terror\tUnable to determine the device handle\n" * 2
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
    said = subprocess.run(
        query_command(), env=env, capture_output=True, text=True, check=True
    ).stdout
    ports = [line for line in said.splitlines() if line.startswith("n1\tport\t")]
    assert len(ports) >= 2, said  # the network's counters, twice: lo is everywhere
    return "".join(line for line in said.splitlines(keepends=True) if "\tport\t" not in line)


def test_a_node_asks_for_the_job_s_own_gpus_in_good_bash_and_says_what_goes_wrong(
    tmp_path: Path,
) -> None:
    assert ask(tmp_path, None, None) == "n1\tnone\tno nvidia-smi there\n"
    assert (
        ask(tmp_path, "echo No devices were found; exit 6", "0")
        == "n1\terror\tNo devices were found\n"
    )
    asked = ask(tmp_path, 'echo "$*"', "2,3")
    assert asked.startswith("n1\tgpu\t-i 2,3 --query-gpu=index,uuid,name,")
    assert "-i" not in ask(tmp_path, 'echo "$*"', "MIG-1c2d")
    program = tmp_path / "query.sh"
    program.write_text("#!/bin/bash\n" + query_command()[2])
    assert complaints(program) == ""


def test_steps_share_what_the_job_has() -> None:
    assert step_command("7", nodes=2, cpus=None) == [
        "srun",
        "--jobid=7",
        "--overlap",
        "--mem=0",
        "--nodes=2",
        "--ntasks=2",
        "--ntasks-per-node=1",
        "--quiet",
        "--kill-on-bad-exit=0",
    ]
    shell = shell_command("7", node="a100-2", cpus=8, workdir="/w", is_terminal=True)
    assert shell[-4:] == ["--kill-on-bad-exit=0", "--nodelist=a100-2", "--chdir=/w", "--pty"]
    assert "--cpus-per-task=8" in shell
    assert "--pty" not in shell_command("7", node=None, cpus=None, workdir=None, is_terminal=False)


def test_rates_lie_between_two_readings_and_a_node_without_rdma_reads_its_interfaces() -> None:
    lines = [
        "100.0\tmlx5_0/1\t200 Gb/sec (4X HDR)\t1000\t500",
        "100.0\tmlx5_1/1\t200 Gb/sec (4X HDR)\t7\t7",
        *("100.0\tlo\t\t0\t0", "100.0\teth0\t\t10\t10", "100.0\teth1\t\t5\t5"),
        # no readings
        *("", "1.0\teth2", "x\teth2\t\t1\t1", "1.0\teth2\t\tmany\t1", "1.0\teth3\t\t1\t1"),
        "102.0\tmlx5_0/1\t200 Gb/sec (4X HDR)\t5000\t500",
        "102.0\tmlx5_1/1\t200 Gb/sec (4X HDR)\t0\t7",  # it has begun anew
        # eth1 has no traffic
        *("102.0\tlo\t\t9\t9", "102.0\teth0\t\t10\t40", "102.0\teth1\t\t5\t5"),
    ]
    assert parse_ports(lines) == (
        PortReading("eth0", "", 0.0, 15.0),
        PortReading("mlx5_0/1", "200 Gb/sec (4X HDR)", 2000.0, 0.0),
        PortReading("mlx5_1/1", "200 Gb/sec (4X HDR)", 0.0, 0.0),
    )
    said = subprocess.run(
        ["bash", "-c", READ_PORTS + "read_ports"], capture_output=True, text=True, check=True
    ).stdout
    names = {
        line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]
    }
    assert {line.split("\t")[1] for line in said.splitlines()} == names
    assert all(len(line.split("\t")) == 5 for line in said.splitlines())


@pytest.mark.parametrize(
    ("port", "link", "traffic", "shown"),
    [
        ("eth0", "", 8, True),
        ("tun0", "", 8, True),
        ("tun0", "", 0, False),
        ("lo", "", 8, False),
        ("mlx5_0/1", "100 Gb/sec", 0, True),
    ],
)
def test_interfaces_with_traffic_are_shown_without_the_loopback(
    port: str, link: str, traffic: int, shown: bool
) -> None:
    lines = [f"100.0\t{port}\t{link}\t0\t0", f"102.0\t{port}\t{link}\t{traffic}\t0"]
    expected = (PortReading(port, link, traffic / 2, 0.0),) if shown else ()
    assert parse_ports(lines) == expected
