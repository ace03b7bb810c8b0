"""Asking a Python interpreter what it is and which torch it has, and this machine which driver it has."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import run_command

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
    """An interpreter and its torch.

    Attributes:
        version: of Python, None if it could not be run; ``problem`` has the reason.
        torch: its version, None if it is not installed.
        cuda: the CUDA it was built with, None for a build without.
        hip: the ROCm it was built with.
        requires_python: torch's own requirement, such as ``>=3.10``.
        kernels: the architectures of its kernels, such as ``sm_80``; empty if unknown.
        problem: why Python could not be run, or torch could not be imported.
    """

    version: tuple[int, ...] | None = None
    torch: str | None = None
    cuda: str | None = None
    hip: str | None = None
    requires_python: str | None = None
    kernels: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The NVIDIA driver of this machine.

    Attributes:
        version: None if there is no driver that responds.
        cuda: the newest CUDA it can run, as (major, minor).
        capabilities: compute capability of each GPU here, such as ``9.0``.
    """

    version: str | None = None
    cuda: tuple[int, int] | None = None
    capabilities: tuple[str, ...] = ()


def ask_python(
    executable: str, env: Mapping[str, str], *, prefix: str | None, variable: str, kernels: bool
) -> PythonFacts:
    """Ask an interpreter for its properties, as a job runs it.

    Args:
        prefix: its environment's folder, put on PATH as the script does.
        variable: the one that names an environment of this kind.
        kernels: whether to ask for the architectures of torch's kernels, which takes seconds.
    """
    env = clean_env(env)
    if prefix:
        env |= {variable: prefix, "PATH": f"{prefix}/bin:{env.get('PATH', '')}"}
    argv = [executable, "-c", _PROBE, "kernels" if kernels else "files", str(_IMPORT_WITHIN_S)]
    answer = run_command(argv, timeout_s=_ANSWER_WITHIN_S, env=env)
    words = answer.stderr.strip().splitlines()
    return parse_probe(answer.stdout, words[-1] if words and not answer.ok else None)


def parse_probe(text: str, failure: str | None) -> PythonFacts:
    """Read the probe's answer: JSON objects, one per line, and ignore other output of a site's start-up files.

    Args:
        failure: why the interpreter failed, if it did.
    """
    said: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            said.update(found)
    version = said.get("version")
    return PythonFacts(
        tuple(version) if version else None,
        said.get("torch"),
        said.get("cuda"),
        said.get("hip"),
        said.get("requires_python"),
        tuple(said.get("kernels", ())),
        said.get("problem") or failure or (None if version else "it printed nothing"),
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
