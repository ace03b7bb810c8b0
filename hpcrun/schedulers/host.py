"""This host: its GPUs, adapters, network interfaces and environment modules, and the quota of a user."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.schedulers.process import clean_env, run_command

_MODULE_SYSTEMS = {
    "Lmod": ("/etc/profile.d/lmod.sh", "/etc/profile.d/z00_lmod.sh", "/usr/share/lmod/lmod/init/bash"),
    "Environment Modules": ("/etc/profile.d/modules.sh", "/usr/share/modules/init/bash"),
}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host."""

    name: str
    gpus: dict[str, int]  # model → number
    hcas: dict[str, str]  # adapters of /sys/class/infiniband with an active port, each with its link and rate
    interfaces: tuple[str, ...]  # network interfaces that are up, without the loopback and virtual ones
    modules: str | None  # the module system, None if there is none
    problem: str | None = None  # the command that did not respond


def host_facts(name: str, env: Mapping[str, str], *, timeout_s: float, root: Path = Path("/")) -> HostFacts:
    """Return the facts about this host.

    Args:
        root: the folder that contains /sys and /etc.
    """
    gpus: dict[str, int] = {}
    problem = None
    if shutil.which("nvidia-smi", path=env.get("PATH")):
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = run_command(command, timeout_s=timeout_s, env=env)
        gpus = dict(Counter(filter(None, map(str.strip, answer.stdout.splitlines())))) if answer.ok else {}
        problem = None if answer.ok else " ".join(answer.words().split())
    return HostFacts(
        name,
        gpus,
        _active_hcas(root / "sys/class/infiniband"),
        tuple(sorted(path.name for path in _entries(root / "sys/class/net") if _is_wired(path))),
        _module_system(env, root),
        problem,
    )


def _active_hcas(folder: Path) -> dict[str, str]:
    """Return adapter → link and rate of its active port (Documentation/ABI/stable/sysfs-class-infiniband)."""
    adapters = {}
    for adapter in sorted(_entries(folder)):
        for port in sorted(_entries(adapter / "ports")):
            if "ACTIVE" in _read(port / "state"):  # "4: ACTIVE"
                adapters[adapter.name] = f"{_read(port / 'link_layer')} {_read(port / 'rate')}".strip()
    return adapters


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


_ANSWER_WITHIN_S = 10.0
_MARK = re.compile(r"^hpcrun-module (\d+) (ok|failed)$", re.MULTILINE)
_NO_COMMAND = 3

# The same files, and the same sequence of `module load`, as in templates/job.sh.j2: a module may exist only after
# another one is loaded (Lmod's hierarchy). The shell ends after this command, and with it the loaded modules.
SCRIPT = r"""
if ! command -v module >/dev/null; then
  for init in /etc/profile.d/{z00_lmod,lmod,modules}.sh /usr/share/{lmod/lmod,modules}/init/bash; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init" && break; fi
  done
fi
command -v module >/dev/null || exit 3
number=0
for name; do
  if module load "$name" 2>&1; then result=ok; else result=failed; fi
  printf '\nhpcrun-module %s %s\n' "$number" "$result"
  number=$((number + 1))
done
"""


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """The result of loading modules in order."""

    command: bool  # whether there is a module command
    failed: dict[str, str]  # module → its error message
    problem: str | None = None  # why there is no result


def try_modules(names: Sequence[str], env: Mapping[str, str]) -> ModuleFacts:
    """Load modules in a separate shell, like the job's script."""
    argv = ["bash", "-c", SCRIPT, "hpcrun", *names]
    answer = run_command(argv, timeout_s=_ANSWER_WITHIN_S, env=clean_env(env))
    if answer.status == _NO_COMMAND and not _MARK.search(answer.stdout):
        return ModuleFacts(False, {})
    if not answer.ok:
        return ModuleFacts(True, {}, " ".join(answer.stderr.split()) or f"exit status {answer.status}")
    return ModuleFacts(True, parse_loads(answer.stdout, names))


def parse_loads(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the modules that could not be loaded → the error message, from the script's output."""
    failed = {}
    start = 0
    for mark in _MARK.finditer(text):
        if mark[2] == "failed" and int(mark[1]) < len(names):
            failed[names[int(mark[1])]] = " ".join(text[start : mark.start()].split())
        start = mark.end()
    return failed


_QUOTA_WITHIN_S = 5.0
_COLUMNS = 8  # blocks in kB, quota, limit, grace; files, quota, limit, grace


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one resource, and its soft and hard limit; 0 for no limit."""

    used: int
    quota: int
    limit: int


@dataclass(frozen=True, slots=True)
class Quota:
    """A user's quota on a file system: space in kB, and number of files."""

    space_kb: Use
    files: Use


def ask_quota(folder: Path, names: Sequence[str], kind: str, env: Mapping[str, str]) -> Quota | None:
    """Return the user's quota on a file system, None if no command shows one.

    Args:
        folder: a folder on the file system.
        names: its device and its mount point; the commands use one or the other.
        kind: the file system's type: ``lustre`` has its own command.
    """
    argv = quota_command(folder, kind)
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        return None
    # quota(1) exits with 1 if a quota is exceeded
    answer = run_command(argv, timeout_s=_QUOTA_WITHIN_S, env={**env, "LC_ALL": "C"})
    return parse_quota(answer.stdout, [*names, str(folder)])


def quota_command(folder: Path, kind: str) -> list[str]:
    """Ask for the quota: of Lustre, or of every file system that has one; ``--raw-grace`` fills every column."""
    if kind == "lustre":
        return ["lfs", "quota", "-q", "-u", str(os.getuid()), str(folder)]
    return ["quota", "--no-wrap", "--raw-grace"]


def parse_quota(text: str, names: Sequence[str]) -> Quota | None:
    """Read the line of one file system from the answer of ``quota`` or ``lfs quota``, whose columns are the same.

    A ``*`` after a number means that it is exceeded, ``[]`` around it that Lustre is not sure.
    """
    words = text.split()
    for place, name in enumerate(words):
        if name in names:
            columns = [re.sub(r"[*\[\]]", "", column) for column in words[place + 1 : place + 1 + _COLUMNS]]
            numbers = [int(column) for column in (*columns[:3], *columns[4:7]) if column.isascii() and column.isdigit()]
            if len(numbers) == 6:
                return Quota(Use(*numbers[:3]), Use(*numbers[3:]))
    return None
