"""The software of a job: its Python and torch, the driver here, and whether srun, torchrun and uv do what is asked."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hpcrun.schedulers.process import Completed, clean_env, run_command

_ANSWER_WITHIN_S = 10.0
_IMPORT_WITHIN_S = 8  # less than the time above, so that the output before it is kept
_DRIVER = re.compile(r"Driver Version\s*:\s*([\d.]+)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)")

# A program for the job's Python of any version: each line of its output is a complete JSON object. It reads torch's
# version from its files, since the import takes seconds; it imports torch only for the list of cards for which its
# kernels were built, which torch.cuda.get_arch_list() leaves empty if there is no GPU.
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
say(torch=str(said.get("__version__", "of unknown version")), cuda=said.get("cuda"), hip=said.get("hip"))
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

    version: tuple[int, ...] | None = None  # of Python, None if it could not be run; ``problem`` has the reason
    torch: str | None = None  # its version, None if it is not installed
    cuda: str | None = None  # the CUDA it was built with, None for a build without
    hip: str | None = None  # the ROCm it was built with
    requires_python: str | None = None  # torch's own requirement, such as ``>=3.10``
    kernels: tuple[str, ...] = ()  # the architectures of its kernels, such as ``sm_80``; empty if unknown
    problem: str | None = None  # why Python could not be run, or torch could not be imported


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The NVIDIA driver of this machine."""

    version: str | None = None  # None if there is no driver that responds
    cuda: tuple[int, int] | None = None  # the newest CUDA it can run, as (major, minor)
    capabilities: tuple[str, ...] = ()  # compute capability of each GPU here, such as ``9.0``


def ask_python(
    executable: str, env: Mapping[str, str], *, prefix: str | None, variable: str, kernels: bool
) -> PythonFacts:
    """Ask an interpreter for its properties, as a job runs it.

    Args:
        prefix: its environment's folder, put on PATH as the script does.
        variable: the one that names an environment of this kind.
        kernels: whether to ask for the architectures of torch's kernels, which takes seconds.
    """
    env = _env_of(env, prefix, variable)
    argv = [executable, "-c", _PROBE, "kernels" if kernels else "files", str(_IMPORT_WITHIN_S)]
    answer = run_command(argv, timeout_s=_ANSWER_WITHIN_S, env=env)
    words = answer.stderr.strip().splitlines()
    return parse_probe(answer.stdout, words[-1] if words and not answer.ok else None)


def _env_of(env: Mapping[str, str], prefix: str | None, variable: str) -> dict[str, str]:
    env = clean_env(env)
    return env | {variable: prefix, "PATH": f"{prefix}/bin:{env.get('PATH', '')}"} if prefix else env


def parse_probe(text: str, failure: str | None) -> PythonFacts:
    """Read the probe's answer: JSON objects, one per line, and ignore other output of a site's start-up files.

    Args:
        failure: why the interpreter failed, if it did.
    """
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            facts.update(record)
    version = facts.get("version")
    return PythonFacts(
        tuple(version) if version else None,
        facts.get("torch"),
        facts.get("cuda"),
        facts.get("hip"),
        facts.get("requires_python"),
        tuple(facts.get("kernels", ())),
        facts.get("problem") or failure or (None if version else "it printed nothing"),
    )


def ask_driver(env: Mapping[str, str]) -> DriverFacts:
    """Ask nvidia-smi for the driver of this machine; one without it has none."""
    if shutil.which("nvidia-smi", path=env.get("PATH")) is None:
        return DriverFacts()
    table = run_command(["nvidia-smi"], timeout_s=_ANSWER_WITHIN_S / 2, env=env)
    if not table.ok:
        return DriverFacts()
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    cards = run_command(query, timeout_s=_ANSWER_WITHIN_S / 2, env=env)
    return parse_driver(table.stdout, cards.stdout if cards.ok else "")


def parse_driver(table: str, cards: str) -> DriverFacts:
    """Read nvidia-smi's table, and its list of compute capabilities."""
    driver, cuda = _DRIVER.search(table), _CUDA.search(table)
    return DriverFacts(
        driver[1] if driver else None,
        (int(cuda[1]), int(cuda[2])) if cuda else None,
        tuple(line.strip() for line in cards.splitlines() if re.fullmatch(r"\d+\.\d+", line.strip(), re.ASCII)),
    )


_SRUN_WITHIN_S = 3.0
"""Without a configuration, srun searches for one for a minute."""
_TORCH_WITHIN_S = 20.0
_UV_WITHIN_S = 20.0
_GOOD = "No command given"
"""srun reads its options, finds no program after them, and ends before it asks the controller for anything."""
# torch is imported by this, which takes seconds; an option that argparse does not know ends it with status 2.
_TORCHRUN_PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]  # a folder called torch here is not the job's
from torch.distributed.run import get_args_parser
parser = get_args_parser()
parser.prog = "torchrun"
parser.parse_args(sys.argv[1:] + ["program"])
"""


def uv_refusal(project: str, env: Mapping[str, str]) -> str | None:
    """Return uv's message if the lock of a project is not up to date; None if it is, or if uv cannot tell here."""
    answer = run_command(["uv", "lock", "--check", "--project", project], timeout_s=_UV_WITHIN_S, env=clean_env(env))
    if answer.ok or answer.status is None:
        return None
    words = " ".join(answer.stderr.split())
    return words[max(0, words.find("error: ")) :]


def srun_refusal(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return srun's message on unknown options, None if srun accepts them or cannot be asked.

    srun would search for an MPI type only when the step starts: so ask for its list of types.
    """
    where = tuple(sorted(clean_env(env).items()))
    if message := _ask_srun(tuple(words), where):
        return message
    kind = next((option.partition("=")[2] for option in words if option.startswith("--mpi=")), None)
    kinds = _mpi_kinds(where) if kind else ()
    return f"--mpi={kind} is none of {', '.join(kinds)}" if kinds and kind not in kinds else None


def mpi_types(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the MPI types that srun here has for the usual libraries; none if the cluster's MpiDefault is one."""
    config = run_command(["scontrol", "show", "config"], timeout_s=_SRUN_WITHIN_S, env=clean_env(env))
    default = re.search(r"^MpiDefault\s*=\s*(\w+)", config.stdout, re.MULTILINE)
    if default and default[1] not in ("none", "openmpi"):
        return ()
    known = _mpi_kinds(tuple(sorted(clean_env(env).items()))) or ("pmix", "pmi2")
    return tuple(name for name in ("pmix", "pmi2") if name in known)


@cache
def _mpi_kinds(env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    answer = _srun(("--mpi=list",), env)
    return parse_mpi_list(answer.stdout + answer.stderr) if answer.ok else ()


def parse_mpi_list(text: str) -> tuple[str, ...]:
    """Read the answer to ``srun --mpi=list``: names on lines of their own, and the versions of pmix."""
    names = re.findall(r"^(?:srun:)?\s+(\w+)$", text, re.MULTILINE)
    versions = re.findall(r"versions available: (.*)$", text, re.MULTILINE)
    if not names:
        return ()
    # openmpi is another name of none, and is not in the list
    return (*names, *(name for line in versions for name in re.split(r"[,\s]+", line) if name), "openmpi")


@cache
def _ask_srun(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> str | None:
    answer = _srun(words, env)
    if answer.status is None or _GOOD in answer.stderr:
        return None
    if words and _ask_srun((), env) is not None:  # fails also without them: the problem is srun itself
        return None
    lines = (re.sub(r"^srun: (error: |fatal: )?", "", line) for line in answer.stderr.strip().splitlines())
    if answer.status == 0:
        return "it would print text and exit"
    return "; ".join(line for line in lines if not line.startswith("Try ")) or f"exit status {answer.status}"


def _srun(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Completed:
    return run_command(["srun", *words], timeout_s=_SRUN_WITHIN_S, env={**dict(env), "LC_ALL": "C"})


def torchrun_refusal(
    executable: str, words: Sequence[str], env: Mapping[str, str], *, prefix: str | None, variable: str
) -> str | None:
    """Return the message of an interpreter's torchrun on unknown options, None if it cannot be asked.

    Args:
        prefix: its environment's folder, put on PATH as the script does.
        variable: the one that names an environment of this kind.
    """
    env = _env_of(env, prefix, variable)
    answer = run_command([executable, "-c", _TORCHRUN_PROBE, *words], timeout_s=_TORCH_WITHIN_S, env=env)
    errors = re.findall(r"^torchrun: error: (.*)", answer.stderr, re.MULTILINE) if answer.status == 2 else []
    return str(errors[-1]) if errors else None
