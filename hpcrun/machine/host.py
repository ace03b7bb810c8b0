"""This host: its hardware, its modules and its quota, and the Python that a job finds.

The hardware is the GPUs and their driver, adapters and interfaces. The job also finds torch and uv.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.machine.clean_environment import clean_env
from hpcrun.machine.process import run_command

if TYPE_CHECKING:
    from hpcrun.job.plan.job_plan import PythonEnvironment

_MODULE_SYSTEMS = {
    "Lmod": ("etc/profile.d/lmod.sh", "etc/profile.d/z00_lmod.sh", "usr/share/lmod/lmod/init/bash"),
    "Environment Modules": ("etc/profile.d/modules.sh", "usr/share/modules/init/bash"),
}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host."""

    name: str
    gpus: dict[str, int]  # model → number
    # adapters of /sys/class/infiniband with an active port, each with its link and rate
    hcas: dict[str, str]
    # network interfaces that are up, without the loopback and virtual ones
    interfaces: tuple[str, ...]
    modules: str | None  # the module system, None if there is none
    problem: str | None = None  # the command that did not respond


def host_facts(
    name: str, env: Mapping[str, str], *, timeout_s: float, root: Path = Path("/")
) -> HostFacts:
    """Return the facts about this host; ``root`` is the folder that contains /sys and /etc."""
    answer = query_gpus("name", env, timeout_s=timeout_s)
    if isinstance(answer, str):
        gpus: dict[str, int] = {}
        problem: str | None = answer
    else:
        gpus = dict(Counter(answer))
        problem = None
    return HostFacts(name, gpus, _hcas(root), _interfaces(root), _module_system(env, root), problem)


def _hcas(root: Path) -> dict[str, str]:
    """Return the adapters with an active port → the port's link and rate."""
    hcas = {}
    # Documentation/ABI/stable/sysfs-class-infiniband; the state is "4: ACTIVE"
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        if "ACTIVE" in _read(port / "state"):
            adapter = port.parent.parent.name
            link = _read(port / "link_layer")
            rate = _read(port / "rate")
            hcas[adapter] = f"{link} {rate}".strip()
    return hcas


def _interfaces(root: Path) -> tuple[str, ...]:
    names = []
    # bridges, veth pairs and the loopback have no device
    for device in root.glob("sys/class/net/*/device"):
        interface = device.parent
        if _read(interface / "operstate") == "up":
            names.append(interface.name)
    return tuple(sorted(names))


def query_gpus(field: str, env: Mapping[str, str], *, timeout_s: float) -> list[str] | str:
    """Return a field of each GPU that nvidia-smi shows here.

    The list is empty without nvidia-smi. If nvidia-smi did not respond, the result is a text that
    says why.
    """
    if shutil.which("nvidia-smi", path=env.get("PATH")) is None:
        return []
    argv = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    answer = run_command(argv, timeout_s=timeout_s, env=env)
    if not answer.ok:
        return " ".join(answer.words().split())
    values = [line.strip() for line in answer.stdout.splitlines()]
    return [value for value in values if value]


def _module_system(env: Mapping[str, str], root: Path) -> str | None:
    if "LMOD_CMD" in env:
        return "Lmod"
    if "MODULESHOME" in env:
        return "Environment Modules"
    for system, files in _MODULE_SYSTEMS.items():
        if any((root / file).exists() for file in files):
            return system
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:  # a port that is down refuses some of its files
        return ""


_ANSWER_WITHIN_S = 10.0
_MARK = re.compile(r"^hpcrun-module (\d+) (ok|failed)$", re.MULTILINE)
_NO_COMMAND = 3

# The same files, and the same sequence of `module load`, as in templates/job.sh.j2: a module may
# exist only after another one is loaded (Lmod's hierarchy). The shell ends after this command, and
# with it the loaded modules.
SCRIPT = r"""
if ! command -v module >/dev/null; then
  for init in /etc/profile.d/{z00_lmod,lmod,modules}.sh \
    /usr/share/{lmod/lmod,modules}/init/bash "${MODULESHOME-}/init/bash"; do
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
        return ModuleFacts(command=False, failed={})
    if not answer.ok:
        problem = " ".join(answer.stderr.split()) or f"exit status {answer.status}"
        return ModuleFacts(command=True, failed={}, problem=problem)
    return ModuleFacts(command=True, failed=parse_loads(answer.stdout, names))


def parse_loads(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the modules that could not be loaded → the error message, from the script's output."""
    failed = {}
    start = 0
    for mark in _MARK.finditer(text):
        number = int(mark[1])
        if mark[2] == "failed" and number < len(names):
            output = text[start : mark.start()]
            failed[names[number]] = " ".join(output.split())
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


def ask_quota(
    folder: Path, names: Sequence[str], kind: str, env: Mapping[str, str]
) -> Quota | None:
    """Return the user's quota on the file system of a folder, None if no command shows one.

    Its device and its mount point are ``names``: the commands use one or the other. Its type
    ``kind`` may be
    ``lustre``, which has its own command.
    """
    argv = quota_command(folder, kind)
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        return None
    # quota(1) exits with 1 if a quota is exceeded
    answer = run_command(argv, timeout_s=_QUOTA_WITHIN_S, env={**env, "LC_ALL": "C"})
    return parse_quota(answer.stdout, [*names, str(folder)])


def quota_command(folder: Path, kind: str) -> list[str]:
    """Return the command that asks for the quota.

    The quota is of Lustre, or of every file system that has one. ``--raw-grace`` fills every
    column.
    """
    if kind == "lustre":
        return ["lfs", "quota", "-q", "-u", str(os.getuid()), str(folder)]
    return ["quota", "--no-wrap", "--raw-grace"]


def parse_quota(text: str, names: Sequence[str]) -> Quota | None:
    """Read the line of one file system from the answer of ``quota`` or ``lfs quota``.

    Both answers have the same columns. A ``*`` after a number means that the number is exceeded,
    ``[]`` around a number that Lustre is not sure.
    """
    words = text.split()
    for place, name in enumerate(words, start=1):
        if name not in names:
            continue
        columns = [re.sub(r"[*\[\]]", "", column) for column in words[place : place + _COLUMNS]]
        limits = [*columns[:3], *columns[4:7]]  # without the grace times
        if len(limits) == 6 and all(re.fullmatch("[0-9]+", limit) for limit in limits):
            numbers = [int(limit) for limit in limits]
            return Quota(Use(*numbers[:3]), Use(*numbers[3:]))
    return None


_IMPORT_WITHIN_S = 8  # less than the time above, so that the output before it is kept
_DRIVER = re.compile(r"Driver Version\s*:\s*([\d.]+)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)")

# A program for the job's Python of any version: each line of its output is a complete JSON object.
# It reads torch's version from its files, since the import takes seconds; it imports torch only for
# the list of cards for which its kernels were built, which torch.cuda.get_arch_list() leaves empty
# if there is no GPU.
_PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]  # a folder called torch here is not the job's
import json
def say(**facts):
    print(json.dumps(facts))
    sys.stdout.flush()
say(version=list(sys.version_info[:3]), executable=sys.executable)
import importlib.util
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    say(torch=None)
    sys.exit()
said = {}
try:
    with open(spec.submodule_search_locations[0] + "/version.py") as file:
        exec(file.read(), said)
except Exception as error:
    say(problem="%s: %s" % (type(error).__name__, error))
version = str(said.get("__version__", "of unknown version"))
say(torch=version, cuda=said.get("cuda"), hip=said.get("hip"))
try:
    from importlib.metadata import metadata
    say(requires_python=metadata("torch")["Requires-Python"])
except Exception:
    pass
if sys.argv[1] == "kernels" and said.get("cuda"):
    import signal
    signal.alarm(int(sys.argv[2]))
    try:
        import torch
        say(kernels=torch._C._cuda_getArchFlags().split())
    except Exception as error:
        say(problem="%s: %s" % (type(error).__name__, error))
"""


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """An interpreter and its torch."""

    # of Python, None if it could not be run; ``problem`` has the reason
    version: tuple[int, ...] | None = None
    torch: str | None = None  # its version, None if it is not installed
    cuda: str | None = None  # the CUDA it was built with, None for a build without
    hip: str | None = None  # the ROCm it was built with
    requires_python: str | None = None  # torch's own requirement, such as ``>=3.10``
    # the architectures of its kernels, such as ``sm_80``; empty if unknown
    kernels: tuple[str, ...] = ()
    problem: str | None = None  # why Python could not be run, or torch could not be imported


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The NVIDIA driver of this machine."""

    version: str | None = None  # None if there is no driver that responds
    cuda: tuple[int, int] | None = None  # the newest CUDA it can run, as (major, minor)
    capabilities: tuple[str, ...] = ()  # compute capability of each GPU here, such as ``9.0``


def ask_python(python: PythonEnvironment, env: Mapping[str, str], *, kernels: bool) -> PythonFacts:
    """Ask an interpreter for its properties, as a job runs the interpreter.

    The question for the architectures of kernels takes seconds.
    """
    question = "kernels" if kernels else "files"
    argv = [python.executable, "-c", _PROBE, question, str(_IMPORT_WITHIN_S)]
    answer = run_command(argv, timeout_s=_ANSWER_WITHIN_S, env=_env_of(python, env))
    failure = None
    if not answer.ok:
        failure = answer.stderr.strip().rpartition("\n")[2] or None
    return parse_probe(answer.stdout, failure)


def _env_of(python: PythonEnvironment, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job's Python.

    The folder of the Python is on PATH, as the script puts it there.
    """
    cleaned = clean_env(env)
    prefix = python.prefix
    if prefix:
        cleaned[python.variable] = prefix
        cleaned["PATH"] = f"{prefix}/bin:{cleaned.get('PATH', '')}"
    return cleaned


def parse_probe(text: str, failure: str | None) -> PythonFacts:
    """Read the probe's answer: JSON objects, one per line.

    Other output of a site's start-up files is ignored. ``failure`` is why the interpreter failed,
    if it did.
    """
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                facts |= record
    version = facts.get("version")
    problem = facts.get("problem") or failure
    if not version:
        problem = problem or "it printed nothing"
    return PythonFacts(
        version=tuple(version) if version else None,
        torch=facts.get("torch"),
        cuda=facts.get("cuda"),
        hip=facts.get("hip"),
        requires_python=facts.get("requires_python"),
        kernels=tuple(facts.get("kernels", ())),
        problem=problem,
    )


def ask_driver(env: Mapping[str, str]) -> DriverFacts:
    """Ask nvidia-smi for the driver of this machine; one without it has none."""
    table = run_command(["nvidia-smi"], timeout_s=_ANSWER_WITHIN_S / 2, env=env)
    if not table.ok:
        return DriverFacts()
    cards = query_gpus("compute_cap", env, timeout_s=_ANSWER_WITHIN_S / 2)
    return parse_driver(table.stdout, cards if isinstance(cards, list) else [])


def parse_driver(table: str, cards: Sequence[str]) -> DriverFacts:
    """Read nvidia-smi's table, and its list of compute capabilities."""
    driver = _DRIVER.search(table)
    cuda = _CUDA.search(table)
    return DriverFacts(
        version=driver[1] if driver else None,
        cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
        capabilities=tuple(card for card in cards if re.fullmatch(r"[0-9]+\.[0-9]+", card)),
    )


_TORCH_WITHIN_S = 20.0
_UV_WITHIN_S = 20.0
# torch is imported by this, which takes seconds; an option that argparse does not know ends it with
# status 2.
_TORCHRUN_PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]  # a folder called torch here is not the job's
from torch.distributed.run import get_args_parser
parser = get_args_parser()
parser.prog = "torchrun"
parser.parse_args(sys.argv[1:] + ["program"])
"""


def uv_refusal(project: str, env: Mapping[str, str]) -> str | None:
    """Return uv's message if the lock of a project is not up to date.

    Returns None if the lock is up to date, or if uv cannot tell here.
    """
    argv = ["uv", "lock", "--check", "--project", project]
    answer = run_command(argv, timeout_s=_UV_WITHIN_S, env=clean_env(env))
    if answer.ok or answer.status is None:
        return None
    words = " ".join(answer.stderr.split())
    return words[max(0, words.find("error: ")) :]


def torchrun_refusal(
    python: PythonEnvironment, words: Sequence[str], env: Mapping[str, str]
) -> str | None:
    """Return the message of an interpreter's torchrun on unknown options.

    Returns None if there is no such message, or if torchrun cannot be asked.
    """
    argv = [python.executable, "-c", _TORCHRUN_PROBE, *words]
    answer = run_command(argv, timeout_s=_TORCH_WITHIN_S, env=_env_of(python, env))
    if answer.status != 2:
        return None
    errors = re.findall(r"^torchrun: error: (.*)", answer.stderr, re.MULTILINE)
    return str(errors[-1]) if errors else None
