"""Notes on the variables that a job gets, wherever they are set.

The places are the shell, the profile, ``--env``, the set-up commands, and the script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.jobs.program import JobProgram
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.variables import (
    KNOWN_NAMES,
    JobHardware,
    check_job_env,
    gpu_text,
    network_words,
)
from hpcrun.files.reading import file_text
from hpcrun.job.batch.sbatch_input import read_sizes
from hpcrun.job.launcher.known_launchers import SHELLS, interpreted
from hpcrun.job.launcher.shell_variables import read_assignments
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.plan.roles import requests_of
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.text.quoting import bash_line
from hpcrun.job.text.recognise_secrets import is_secret
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count
from hpcrun.machine.clean_environment import clean_env
from hpcrun.profiles.variable_catalogue import Finding, load_catalogue

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch.batch_script import BatchScript

_SHELL_SCRIPTS = (".sh", ".bash")
_SHELL = "your shell"
_COMMAND = "the command"
_MEETING = {"MASTER_ADDR": "the first node", "MASTER_PORT": "a free port, another one for each job"}
_LOCAL = re.compile(r"localhost|127(\.\d+){3}|::1")
_THIS_NODE = re.compile(r"\bhostname\b|SLURMD_NODENAME|HOSTNAME")
_FIRST_NODE = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


@dataclass(frozen=True, slots=True)
class PlacedVariable:
    """A variable of a job, and the place that sets it."""

    name: str
    value: str | None  # None if only a running shell knows it
    place: str  # ``train.sbatch line 12``, ``your shell``, ``profile a100``, ``--setup``
    text: str = ""  # the value as written
    in_task: bool = False  # each task of srun evaluates it


@dataclass(frozen=True, slots=True)
class _JudgedJob:
    """What the rules need to know of a job."""

    plan: Plan
    profile: Profile
    cpus_per_rank: int | None


def notes_on_variables(
    plan: Plan, program: JobProgram, surroundings: Surroundings
) -> Iterator[str]:
    """Yield a note for each variable of a job whose value is wrong, with the places that set it.

    Raises:
        UsageError, ProfileError: a variable of --env or of the profile has an impossible value.
    """
    request = program.request
    profile = program.loaded.profile
    size = JobHardware(plan.shape.gpu_type, plan.shape.nodes)
    check_job_env(request, program.loaded, size, of_profile=plan.batch is None)
    secrets = {*profile.secrets, *request.secrets}
    # in the order in which the job sets them
    export = plan.directive("export")
    inherits = export is None or "ALL" in export.split(",")
    shell = clean_env(surroundings.env) if inherits else {}
    places = (
        _of_env(shell.items(), _SHELL, secrets),
        _of_plan(plan, request, secrets),
        _of_setup(plan, request),
        _of_programs(plan, request, surroundings),
    )
    job = _JudgedJob(plan, profile, _cpus_of_rank(plan))
    yield from _notes(places, gpu_text(profile, size), network_words(profile, size), job)


def notes_on_script(script: BatchScript) -> Iterator[str]:
    """Yield a note for each variable that a batch script sets to a value that is wrong anywhere."""
    places = [_of_shell(script.text, script.name)]
    yield from _notes(places, script.sizes.gpu_type or "", frozenset(), None)


def _notes(
    places: Iterable[Iterable[PlacedVariable]],
    gpu: str,
    network: frozenset[str],
    job: _JudgedJob | None,
) -> Iterator[str]:
    in_effect = _in_effect(places)
    if not in_effect:
        return
    catalogue = load_catalogue()
    for name, variables in in_effect.items():
        wrong: dict[str, Finding] = {}
        rule = _RULES.get(name)
        for variable in variables:
            finding = catalogue.judge(name, variable.value, gpu, network)
            if finding is None and rule is not None and job is not None:
                finding = rule(variable, job)
            if finding is not None:
                wrong[variable.place] = finding
        if wrong:
            finding = next(iter(wrong.values()))
            yield finding.text(_joined([place for place in wrong if wrong[place] == finding]))


def _in_effect(places: Iterable[Iterable[PlacedVariable]]) -> dict[str, list[PlacedVariable]]:
    """Return the assignments to each variable that count: those of the last place that sets it."""
    in_effect: dict[str, list[PlacedVariable]] = {}
    for variables in places:
        here: dict[str, list[PlacedVariable]] = {}
        for variable in variables:
            here.setdefault(variable.name, []).append(variable)
        in_effect |= here
    return in_effect


def _joined(places: Sequence[str]) -> str:
    """Return places as text: ``x.sbatch lines 3, 9`` for two lines of it."""
    name, is_line, _ = places[0].rpartition(" line ")
    if not is_line or len(places) == 1:
        return " and ".join(places)
    numbers = [place.rpartition(" line ")[2] for place in places]
    return f"{name} lines {', '.join(numbers)}"


# --- rules that compare a variable with the job --------------------------------------------------


def _of_interface(variable: PlacedVariable, job: _JudgedJob) -> Finding | None:
    """Return that a variable leaves out the interface that the profile names."""
    interface = job.profile.fabric.interface
    if (variable.value or "").lstrip("=") == "lo" and job.plan.shape.nodes > 1:
        problem = "the loopback reaches no other node"
        return Finding(variable.name, variable.value, problem, "leave it out")
    return _of_devices(variable, job, (interface,) if interface else (), "interface")


def _of_adapters(variable: PlacedVariable, job: _JudgedJob) -> Finding | None:
    """Return that a variable leaves out the RDMA adapters that the profile names."""
    return _of_devices(variable, job, job.profile.fabric.hcas, "hcas")


def _of_devices(
    variable: PlacedVariable, job: _JudgedJob, devices: Sequence[str], key: str
) -> Finding | None:
    value = variable.value
    if job.plan.shape.nodes == 1 or not (value and devices):
        return None
    if any(_selects(value, device) for device in devices):
        return None
    name = variable.name
    listed = ", ".join(devices)
    problem = f"profile {job.profile.name} names {listed} as the nodes' network (fabric.{key})"
    return Finding(name, value, problem, f"{name}={job.profile.fabric.env()[name]}")


def _selects(value: str, device: str) -> bool:
    """Return whether a list of NCCL selects a device.

    The list has prefixes; ``=`` before it means exactly, and ``^`` means all others.
    """
    excludes = value.startswith("^")
    rest = value.removeprefix("^")
    is_exact = rest.startswith("=")
    for item in rest.removeprefix("=").split(","):
        name = item.partition(":")[0]
        matches = device == name if is_exact else device.startswith(name)
        if name and matches:
            return not excludes
    return excludes


def _of_threads(variable: PlacedVariable, job: _JudgedJob) -> Finding | None:
    """Return that a number of threads differs from the CPUs of a rank."""
    cpus = job.cpus_per_rank
    value = variable.value
    if job.plan.batch is None and variable.place == _SHELL:
        return None  # it is ignored: plan_notes.py
    if cpus is None or not value or not value.isdecimal() or int(value) == cpus:
        return None
    return Finding(variable.name, value, f"a rank has {count(cpus, 'CPU')}")


def _of_visible(variable: PlacedVariable, job: _JudgedJob) -> Finding | None:
    """Return that a variable names more or fewer GPUs than a node of the job has.

    Slurm replaces the shell's.
    """
    shape = job.plan.shape
    is_list = re.fullmatch(r"\d+(,\d+)*", variable.value or "") is not None
    if variable.place == _SHELL or not is_list or not shape.gpus_per_node:
        return None
    if job.plan.scheduler != "slurm" or shape.launcher not in ("torchrun", "srun"):
        return None
    number = len((variable.value or "").split(","))
    if number == shape.gpus_per_node:
        return None
    problem = f"it names {count(number, 'GPU')}, and the job has {shape.gpus_per_node} on a node"
    return Finding(variable.name, variable.value, problem, "leave it out: Slurm sets it")


def _of_first_node(variable: PlacedVariable, job: _JudgedJob) -> Finding | None:
    """Return that a script of several nodes names a wrong node for rank 0."""
    shape = job.plan.shape
    if job.plan.batch is None:
        return _of_meeting(variable, job)
    if shape.nodes == 1 or shape.launcher == "torchrun":
        return None  # torchrun does not read it
    problem = None
    if _LOCAL.fullmatch(variable.value or ""):
        problem = f"each of the {shape.nodes} nodes looks for rank 0 on itself"
    elif variable.in_task and _THIS_NODE.search(variable.text):
        problem = "each task of srun takes its own node for that of rank 0"
    elif re.fullmatch(r'"?\$\{?SLURM_(JOB_)?NODELIST\}?"?', variable.text):
        problem = "this is a list such as node[1-2], and no name of a node"
    if problem is None:
        return None
    return Finding(variable.name, variable.value, problem, f"{variable.name}={_FIRST_NODE}")


def _of_meeting(variable: PlacedVariable, job: _JudgedJob) -> Finding | None:
    """Return that hpcrun sets the place of rank 0, whatever the job's environment says.

    See in_job/launch/start_ranks.py and in_job/launch/rank.py; torchrun sets the place, too.
    """
    of_program = variable.place == _COMMAND or " line " in variable.place
    if job.plan.batch or of_program:
        return None
    problem = f"no effect: hpcrun sets it to {_MEETING[variable.name]}"
    return Finding(variable.name, variable.value, problem)


_RULES: dict[str, Callable[[PlacedVariable, _JudgedJob], Finding | None]] = {
    "NCCL_SOCKET_IFNAME": _of_interface,
    "GLOO_SOCKET_IFNAME": _of_interface,
    "NCCL_IB_HCA": _of_adapters,
    "OMP_NUM_THREADS": _of_threads,
    "CUDA_VISIBLE_DEVICES": _of_visible,
    "MASTER_ADDR": _of_first_node,
    "MASTER_PORT": _of_meeting,
}


def _cpus_of_rank(plan: Plan) -> int | None:
    """Return the CPUs of a rank, as far as the job's options or the script's directives say it."""
    script = plan.batch
    if script is None:
        return plan.cpus_per_rank
    directives = dict(plan.directives)
    each = directives.get("cpus-per-task") or ""
    shape = plan.shape
    has_own = any("cpus-per-task" in line.srun for line in script.launches)
    if shape.launcher not in ("torchrun", "srun") or not shape.procs_per_node:
        return None
    if not each.isdecimal() or has_own:
        return None
    cpus = int(each) * read_sizes(directives).tasks
    return max(1, cpus // shape.procs_per_node)


# --- where variables are set ---------------------------------------------------------------------


def _of_env(
    env: Iterable[tuple[str, str | None]], place: str, secrets: set[str]
) -> Iterator[PlacedVariable]:
    for name, value in env:
        is_known = name.startswith(KNOWN_NAMES)
        if is_known and value and not is_secret(name, value, secrets):
            yield PlacedVariable(name, value, place)


def _of_plan(plan: Plan, request: JobRequest, secrets: set[str]) -> Iterator[PlacedVariable]:
    """Yield the variables of the profile, of ``#SBATCH --export`` and of ``--env``."""
    typed = dict(request.env)
    if plan.batch:
        other = f"#SBATCH --export of {plan.batch.name}"
    else:
        other = _of_profile(plan)
    for name, value in plan.env:
        place = spell("env") if name in typed else other
        yield from _of_env([(name, value)], place, secrets)


def _of_profile(plan: Plan) -> str:
    return f"profile {plan.profile}"


def _of_setup(plan: Plan, request: JobRequest) -> Iterator[PlacedVariable]:
    of_profile = len(plan.setup) - len(request.setup)
    for number, command in enumerate(plan.setup):
        place = "--setup" if number >= of_profile else f"setup of {_of_profile(plan)}"
        yield from _of_shell(command, place, has_lines=False)


def _of_programs(
    plan: Plan, request: JobRequest, surroundings: Surroundings
) -> Iterator[PlacedVariable]:
    """Yield the variables that the batch script or the programs of a job set themselves."""
    if plan.batch:
        yield from _of_shell(plan.batch.text, plan.batch.name)
        return
    if request.preflight == "only":
        return
    folder = Path(request.workdir or surroundings.cwd)
    for program in requests_of(request) or [request]:
        words = (program.script, *program.args)
        yield from _of_shell(bash_line(words), _COMMAND, has_lines=False)
        inner = interpreted(words)
        name = program.script
        if inner and not inner.option and Path(name).name in SHELLS:
            name = inner.words[0]
        if name.endswith(_SHELL_SCRIPTS):
            yield from _of_shell(file_text(folder / name), name)


def _of_shell(text: str, name: str, *, has_lines: bool = True) -> Iterator[PlacedVariable]:
    """Yield the variables that a shell text sets, without secrets."""
    for item in read_assignments(text, KNOWN_NAMES):
        if not is_secret(item.name, item.value):
            place = f"{name} line {item.line}" if has_lines else name
            yield PlacedVariable(item.name, item.value, place, item.text, item.in_task)
