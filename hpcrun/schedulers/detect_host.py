"""Facts about this host: GPUs, InfiniBand adapters, network interfaces, environment modules."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcrun.schedulers.process import run_command

_MODULE_SYSTEMS = {
    "Lmod": ("/etc/profile.d/lmod.sh", "/etc/profile.d/z00_lmod.sh", "/usr/share/lmod/lmod/init/bash"),
    "Environment Modules": ("/etc/profile.d/modules.sh", "/usr/share/modules/init/bash"),
}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host.

    Attributes:
        gpus: model → number.
        hcas: adapters of /sys/class/infiniband with an active port, each with its link and rate.
        interfaces: network interfaces that are up, without the loopback and virtual ones.
        modules: the module system, None if there is none.
        problem: the command that did not respond.
    """

    name: str
    gpus: dict[str, int]
    hcas: dict[str, str]
    interfaces: tuple[str, ...]
    modules: str | None
    problem: str | None = None


def look_at_host(name: str, env: Mapping[str, str], *, timeout_s: float, root: Path = Path("/")) -> HostFacts:
    """Return the facts about this host.

    Args:
        root: the folder that contains /sys and /etc.
    """
    gpus: dict[str, int] = {}
    problem = None
    if shutil.which("nvidia-smi", path=env.get("PATH")):
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = run_command(command, timeout_s=timeout_s, env=env)
        gpus = count_lines(answer.stdout) if answer.ok else {}
        problem = None if answer.ok else " ".join(answer.words().split())
    return HostFacts(
        name,
        gpus,
        _active_hcas(root / "sys/class/infiniband"),
        tuple(sorted(path.name for path in _entries(root / "sys/class/net") if _is_wired(path))),
        _module_system(env, root),
        problem,
    )


def count_lines(text: str) -> dict[str, int]:
    """Return how often each line occurs in a text."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        if line.strip():
            found[line.strip()] = found.get(line.strip(), 0) + 1
    return found


def _active_hcas(folder: Path) -> dict[str, str]:
    """Return adapter → link and rate of its active port (Documentation/ABI/stable/sysfs-class-infiniband)."""
    found = {}
    for adapter in sorted(_entries(folder)):
        for port in sorted(_entries(adapter / "ports")):
            if "ACTIVE" in _read(port / "state"):  # "4: ACTIVE"
                found[adapter.name] = f"{_read(port / 'link_layer')} {_read(port / 'rate')}".strip()
    return found


def _is_wired(interface: Path) -> bool:
    # bridges, veth pairs and the loopback have no device
    return _read(interface / "operstate") == "up" and (interface / "device").exists()


def _module_system(env: Mapping[str, str], root: Path) -> str | None:
    if "LMOD_CMD" in env:
        return "Lmod"
    if "MODULESHOME" in env:
        return "Environment Modules"
    for system, files in _MODULE_SYSTEMS.items():
        if any((root / file.lstrip("/")).exists() for file in files):
            return system
    return None


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:  # a port that is down refuses some of its files
        return ""
