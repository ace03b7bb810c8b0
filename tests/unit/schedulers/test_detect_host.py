"""What a host says of itself, read from a tree as the kernel lays it out."""

from __future__ import annotations

from pathlib import Path

from hpcrun.schedulers.host import host_facts
from tests.unit.given import write


def look(root: Path, **env: str) -> tuple[dict[str, int], dict[str, str], tuple[str, ...], str | None, str | None]:
    facts = host_facts("n1", {"PATH": f"{root}/bin:/usr/bin:/bin", **env}, timeout_s=10, root=root)
    return facts.gpus, facts.hcas, facts.interfaces, facts.modules, facts.problem


def nvidia_smi(root: Path, line: str) -> None:
    write(root / "bin/nvidia-smi", f"#!/bin/sh\n{line}\n").chmod(0o755)


def adapter(root: Path, name: str, state: str, link: str) -> None:
    port = root / "sys/class/infiniband" / name / "ports/1"
    for file, text in (("state", state), ("link_layer", link), ("rate", "200 Gb/sec (4X HDR)")):
        write(port / file, f"{text}\n")


def interface(root: Path, name: str, state: str, *, device: bool) -> None:
    folder = root / "sys/class/net" / name
    write(folder / "operstate", f"{state}\n")
    if device:
        (folder / "device").mkdir()


def test_a_bare_host_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert look(tmp_path, PATH=f"{tmp_path}/bin") == ({}, {}, (), None, None)


def test_gpus_are_counted_by_model(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, "echo NVIDIA H100; echo NVIDIA H100")
    assert look(tmp_path)[0] == {"NVIDIA H100": 2}


def test_a_driver_that_fails_is_said(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, "echo 'no driver' >&2; exit 9")
    gpus, *_, problem = look(tmp_path)
    assert gpus == {}
    assert problem is not None
    assert "exit status 9" in problem
    assert "no driver" in problem
    assert "\n" not in problem


def test_only_active_adapters_and_real_interfaces_count(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_1", "1: DOWN", "Ethernet")
    adapter(tmp_path, "mlx5_0", "4: ACTIVE", "InfiniBand")
    interface(tmp_path, "ib0", "up", device=True)
    interface(tmp_path, "eth1", "down", device=True)
    interface(tmp_path, "docker0", "up", device=False)
    _, hcas, interfaces, *_ = look(tmp_path)
    assert hcas == {"mlx5_0": "InfiniBand 200 Gb/sec (4X HDR)"}
    assert interfaces == ("ib0",)


def test_the_module_system(tmp_path: Path) -> None:
    assert look(tmp_path, LMOD_CMD="/opt/lmod")[3] == "Lmod"
    assert look(tmp_path, MODULESHOME="/usr/share/modules")[3] == "Environment Modules"
    write(tmp_path / "etc/profile.d/lmod.sh", "")
    assert look(tmp_path)[3] == "Lmod"
