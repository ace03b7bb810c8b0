"""doctor: the job's Python, its torch, and whether the two fit the cards.

Pure judgement of what they said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.features.doctor.check import PYTHON, Check, Level
from hpcrun.features.doctor.check_site import is_shared
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.machine.host import DriverFacts, PythonFacts
from hpcrun.machine.namesakes import Namesake
from hpcrun.runs.folder_checks import Mount

_OLDEST = (3, 10)  # what torch has wanted since 2.9
_ANOTHER = (
    "activate another environment, or name its Python: `python:` in the profile, --python "
    "for one job"
)
_BUILDS = "https://pytorch.org/get-started/locally has the command for a build with CUDA"
# CUDA 13.0 release notes: Maxwell, Pascal and Volta (5.x to 7.0) are no longer built for
_CUDA_13_OLDEST = (7, 5)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What jobs want of torch."""

    gpus: bool = False
    torch: bool = False  # whether they use torch at all, as far as the profile tells
    capability: str | None = None  # of the cards, None where it is not known
    card: str = "the profile's card"
    brought: bool = False  # whether modules or set-up commands may bring what is not here
    on_slurm: bool = True  # whether they run elsewhere, with another driver than this machine's


def wanted_by(profile: Profile | None, driver: DriverFacts | None) -> Wanted:
    """Return what a profile's jobs want of torch; for those of this machine its own cards tell."""
    if profile is None:
        return Wanted()
    brought = bool(profile.modules or profile.setup)
    if profile.scheduler == "local":
        capabilities = driver.capabilities if driver else ()
        capability = min(capabilities, key=capability_of, default=None)
        return Wanted(
            bool(capability), True, capability, "this machine's card", brought, on_slurm=False
        )
    gpus = bool(profile.gpu.per_node or profile.gpu.types)
    entry = profile.gpu.types.get(profile.gpu.type or "")
    card = profile.card
    if entry and entry.card.model_fields_set:
        card = entry.card
    name = card.model or profile.gpu.type or "the profile's card"
    return Wanted(
        gpus, gpus or profile.launcher == "torchrun", card.compute_capability, name, brought
    )


def comes_with_the_job(python: PythonEnvironment, profile: Profile | None) -> bool:
    """Return whether the job finds the Python on its own PATH.

    Modules or set-up commands make this PATH.
    """
    return (
        profile is not None
        and bool(profile.modules or profile.setup)
        and "/" not in python.executable
    )


def judge_python(python: PythonEnvironment, facts: PythonFacts) -> Check:
    """Judge whether the job's Python runs and is one that torch wants."""
    if facts.version is None:
        return Check(
            PYTHON,
            "python",
            "red",
            f"{python.executable} ({python.kind}): {facts.problem}",
            _ANOTHER,
        )
    version = ".".join(str(part) for part in facts.version)
    seen = f"{python.executable}, {version} ({python.kind})"
    least = re.search(r">=\s*(\d+(?:\.\d+)*)", facts.requires_python or "")
    if facts.torch and least and facts.version < tuple(map(int, least[1].split("."))):
        return Check(
            PYTHON, "python", "red", f"{seen}; its torch wants {facts.requires_python}", _ANOTHER
        )
    if facts.torch is None and facts.version < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        return Check(PYTHON, "python", "yellow", f"{seen}; today's torch wants {oldest}", _ANOTHER)
    return Check(PYTHON, "python", "green", seen)


def judge_prefix(python: PythonEnvironment, mount: Mount | None) -> list[Check]:
    """Judge whether compute nodes can plausibly see the environment of a job's Python.

    Return nothing where the nodes can plausibly see the environment.
    """
    if python.prefix is None or mount is None or is_shared(mount):
        return []
    seen = f"{python.prefix} is on {mount.kind} at {mount.point}: possibly local to this machine"
    fix = (
        "if compute nodes cannot see it, create the environment on a shared file system: "
        f"{_ANOTHER}"
    )
    return [Check(PYTHON, "environment", "yellow", seen, fix)]


def judge_compiled_files(
    profile: Profile, home: Mount | None, env: Mapping[str, str]
) -> list[Check]:
    """Warn that the nodes of a job share the compiled files of Triton in the home.

    Nothing is said of a profile whose jobs have one node, or that gives them another place. Seen:
    pytorch#173679, triton#11512, prime-rl#2305.
    """
    if profile.scheduler != "slurm" or profile.gpu.nodes == 1 or profile.launch.warm:
        return []
    names = {*env, *profile.env}
    has_another_place = not names.isdisjoint(("TRITON_HOME", "TRITON_CACHE_DIR"))
    if home is None or has_another_place or not is_shared(home):
        return []
    seen = (
        f"Triton compiles into ~/.triton, on {home.kind} at {home.point}: nodes of one job break "
        "each other's files there (triton#11512)"
    )
    fix = "for jobs of several nodes that compile: --warm, or launch.warm in the profile"
    return [Check(PYTHON, "compiled files", "yellow", seen, fix)]


def judge_namesakes(others: Sequence[Namesake]) -> list[Check]:
    """Warn of other software that takes the name of this hpcrun."""
    return [Check(PYTHON, "hpcrun", "yellow", other.seen, other.fix) for other in others]


def judge_torch(python: PythonEnvironment, facts: PythonFacts, wanted: Wanted) -> list[Check]:
    """Judge the torch of the job's Python: whether it is there, and built for the cards."""
    if facts.torch is None:
        return [_judge_missing(python, facts, wanted)]
    if facts.problem:
        level: Level = "yellow" if wanted.brought or not wanted.torch else "red"
        fix = _ANOTHER
        if wanted.brought:
            fix = "load the profile's modules, and run `hpcrun doctor` again"
        seen = f"{facts.torch} cannot be imported: {facts.problem}"
        return [Check(PYTHON, "torch", level, seen, fix)]
    if facts.cuda:
        build = f"CUDA {facts.cuda}"
    elif facts.hip:
        build = f"ROCm {facts.hip}"
    else:
        build = "no CUDA"
    seen = f"{facts.torch}, built with {build}"
    if wanted.gpus and not facts.cuda and not facts.hip:
        return [Check(PYTHON, "torch", "red", f"{seen}: it cannot use a GPU", _BUILDS)]
    checks = [Check(PYTHON, "torch", "green", seen)]
    if facts.cuda and not facts.hip and wanted.gpus and wanted.capability:
        checks.append(judge_kernels(facts, wanted))
    return checks


def _judge_missing(python: PythonEnvironment, facts: PythonFacts, wanted: Wanted) -> Check:
    seen = f"not in {python.executable}"
    if facts.problem:
        seen += f": {facts.problem}"
    if wanted.brought:
        return Check(
            PYTHON,
            "torch",
            "yellow",
            f"{seen}; the profile's modules or set-up commands may provide it",
            "check it with a short job: hpcrun submit --wait -m torch.utils.collect_env",
        )
    level: Level = "red" if wanted.torch else "yellow"
    fix = f"{shlex.quote(python.executable)} -m pip install torch, or {_ANOTHER}"
    return Check(PYTHON, "torch", level, seen, fix)


def judge_kernels(facts: PythonFacts, wanted: Wanted) -> Check:
    """Judge whether torch was built for a card."""
    capability = wanted.capability or ""
    card = f"{wanted.card} (compute capability {capability})"
    fix = (
        f"install a torch with sm_{capability.replace('.', '')}: one built with an older CUDA; "
        f"{_BUILDS}"
    )
    if facts.kernels:
        built = " ".join(facts.kernels)
        if runs_on(facts.kernels, capability):
            return Check(PYTHON, "kernels", "green", f"built for {card}: {built}")
        return Check(PYTHON, "kernels", "red", f"not built for {card}, only for {built}", fix)
    if int((facts.cuda or "0").split(".")[0]) >= 13 and capability_of(capability) < _CUDA_13_OLDEST:
        return Check(PYTHON, "kernels", "red", f"CUDA {facts.cuda} is not built for {card}", fix)
    return Check(
        PYTHON,
        "kernels",
        "yellow",
        f"not checked for {card}: the import of torch timed out",
        "in a job: python -c 'import torch; print(torch.cuda.get_arch_list())'",
    )


def runs_on(kernels: Sequence[str], capability: str) -> bool:
    """Return whether code for these architectures runs on a card.

    Binary code (sm_XY) runs on cards of its own major version with at least its minor one, code for
    sm_90a and the like on exactly that; PTX (compute_XY) on any later card (CUDA programming guide,
    compute capabilities).
    """
    card = capability_of(capability)
    for kernel in kernels:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", kernel)
        if match:
            built = (int(match[2]), int(match[3]))
            if match[4]:
                runs = built == card
            elif match[1] == "compute":
                runs = built <= card
            else:
                runs = built <= card and built[0] == card[0]
            if runs:
                return True
    return False


def capability_of(text: str) -> tuple[int, int]:
    """Read a compute capability, ``9.0``."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def judge_driver(driver: DriverFacts, facts: PythonFacts | None, wanted: Wanted) -> Check:
    """Judge the driver of this machine against torch's CUDA.

    For Slurm's jobs, the driver of the nodes counts.
    """
    if driver.version is None:
        seen = "no GPU here"
        if wanted.on_slurm and wanted.gpus:
            seen += "; hpcrun preflight checks the nodes"
        return Check(PYTHON, "driver", "green", seen)
    newest = "?"
    if driver.cuda:
        newest = ".".join(map(str, driver.cuda))
    seen = f"{driver.version} here, for CUDA up to {newest}"
    built = facts.cuda if facts else None
    # within a major version, a build of a later minor one runs (CUDA compatibility, minor version
    # compatibility)
    if built and driver.cuda and int(built.split(".")[0]) > driver.cuda[0]:
        level: Level = "yellow" if wanted.on_slurm else "red"
        return Check(
            PYTHON,
            "driver",
            level,
            f"{seen}; torch is built with {built}",
            f"a newer driver, or a torch built with CUDA {driver.cuda[0]}: {_BUILDS}",
        )
    return Check(PYTHON, "driver", "green", seen)
