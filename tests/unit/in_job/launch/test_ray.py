"""What Ray gets of a node, and what is left of its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder, ray


@pytest.fixture
def on_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "CUDA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    (tmp_path / "hosts").write_text("a\nb\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ({}, ["--num-cpus=4", "--num-gpus=0"]),  # two nodes of one machine
        ({"SLURM_CPUS_ON_NODE": "6", "SLURM_GPUS_ON_NODE": "2"}, ["--num-cpus=6", "--num-gpus=2"]),
        ({"SLURM_CPUS_PER_TASK": "2", "SLURM_CPUS_ON_NODE": "6"}, ["--num-cpus=2", "--num-gpus=0"]),
        # of which this step may use 8
        ({"SLURM_CPUS_ON_NODE": "64"}, ["--num-cpus=8", "--num-gpus=0"]),
        (
            {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,GPU-3f"},
            ["--num-cpus=4", "--num-gpus=2"],
        ),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": ""}, ["--num-cpus=4", "--num-gpus=0"]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("on_node")
def test_ray_gets_the_share_of_the_job(
    env: dict[str, str], options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert ray.resources() == options


@pytest.mark.parametrize(
    "env", [{"SLURM_MEM_PER_NODE": "200"}, {"SLURM_MEM_PER_CPU": "50"}], ids=str
)
@pytest.mark.usefixtures("on_node")
def test_the_object_store_is_a_part_of_the_job_s_memory(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    memory, store = (int(option.partition("=")[2]) for option in ray.resources()[2:])
    assert memory == 120 << 20
    assert store == 80 << 20  # Ray's minimum, which is more than its 30 %


def test_a_folder_with_folders_is_removed_and_what_links_lead_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/data").write_text("x")
    monkeypatch.setattr(node_folder, "PLACES", (str(tmp_path),))
    folder = node_folder.enter("hpcrun-node-7.0")
    (tmp_path / "hpcrun-node-7.0/r/session/logs").mkdir(parents=True)
    (tmp_path / "hpcrun-node-7.0/r/session/logs/raylet.out").write_text("x")
    (tmp_path / "hpcrun-node-7.0/r/latest").symlink_to("session")
    (tmp_path / "hpcrun-node-7.0/mine").symlink_to(tmp_path / "mine")
    other = node_folder.enter("hpcrun-node-7.0")  # another node on this machine
    folder.leave()
    assert (tmp_path / "hpcrun-node-7.0/r/session").exists()
    other.leave()
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "data"]
