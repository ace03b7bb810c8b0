"""sbatch's input environment variables, and which of them hpcrun uses for a job. Pure: no I/O.

For sbatch they override the #SBATCH lines of a script. hpcrun passes none of them on: a variable for a directive
that a user may set becomes a directive, so that the script shows it; the other variables are named in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hpcrun.errors import UsageError
from hpcrun.job.directives import OPTIONS, OWNED, normalise_key
from hpcrun.job.quoting import check_job_name
from hpcrun.job.request import MOST, JobRequest
from hpcrun.job.units import parse_memory, parse_slurm_time

# "INPUT ENVIRONMENT VARIABLES" of sbatch(1), and other variables that 22.05, 24.11 and 26.05 know. If no directive is
# given, the variable has the directive's name: SBATCH_GPU_BIND is gpu-bind.
_OTHER_NAMES = dict(pair.split("=") for pair in (
    "SBATCH_ARRAY_INX=array SBATCH_BURST_BUFFER=bb SBATCH_CPU_FREQ_REQ=cpu-freq SBATCH_DEBUG=verbose "
    "SBATCH_MEM_PER_NODE=mem SBATCH_SEGMENT_SIZE=segment SBATCH_TIMELIMIT=time SLURM_CLUSTERS=clusters "
    "SLURM_HINT=hint").split())  # fmt: skip
_SAME_NAMES = """
    SBATCH_ACCOUNT SBATCH_ACCTG_FREQ SBATCH_BATCH SBATCH_CLUSTERS SBATCH_CLUSTER_CONSTRAINT SBATCH_CONSOLIDATE_SEGMENTS
    SBATCH_CONSTRAINT SBATCH_CONTAINER SBATCH_CONTAINER_ID SBATCH_CONTAINER_TYPE SBATCH_CORE_SPEC SBATCH_CPUS_PER_GPU
    SBATCH_DELAY_BOOT SBATCH_DISTRIBUTION SBATCH_ERROR SBATCH_EXCLUSIVE SBATCH_EXPORT SBATCH_GET_USER_ENV SBATCH_GPUS
    SBATCH_GPUS_PER_NODE SBATCH_GPUS_PER_SOCKET SBATCH_GPUS_PER_TASK SBATCH_GPU_BIND SBATCH_GPU_FREQ SBATCH_GRES
    SBATCH_GRES_FLAGS SBATCH_HINT SBATCH_IGNORE_PBS SBATCH_INPUT SBATCH_JOB_NAME SBATCH_MEM_BIND SBATCH_MEM_PER_CPU
    SBATCH_MEM_PER_GPU SBATCH_NETWORK SBATCH_NO_KILL SBATCH_NO_REQUEUE SBATCH_OPEN_MODE SBATCH_OUTPUT SBATCH_OVERCOMMIT
    SBATCH_PARTITION SBATCH_POWER SBATCH_PROFILE SBATCH_QOS SBATCH_REQUEUE SBATCH_RESERVATION SBATCH_SIGNAL
    SBATCH_SPREAD_JOB SBATCH_SPREAD_SEGMENTS SBATCH_THREADS_PER_CORE SBATCH_THREAD_SPEC SBATCH_TRES_BIND
    SBATCH_TRES_PER_TASK SBATCH_USE_MIN_NODES SBATCH_WAIT SBATCH_WAIT_ALL_NODES SBATCH_WCKEY
"""
DIRECTIVES: dict[str, str] = {
    **{name: normalise_key(name.removeprefix("SBATCH_").lower()) for name in _SAME_NAMES.split()},
    **_OTHER_NAMES,
}
"""The directive of each variable; SBATCH_REQ_SWITCH and SBATCH_WAIT4SWITCH together are ``switches``."""

# Variables that are ignored although hpcrun does not set the directive itself, with the reason.
_DROPPED = {
    "clusters": "hpcrun submits to this cluster alone",
    "gpus-per-socket": "use --gpus",
    "ignore-pbs": "the script has no #PBS lines",
    "tres-per-task": "use --gpus and --cpus-per-task",
    "verbose": "hpcrun prints the messages of sbatch",
}
_FLAGS = frozenset(
    "consolidate-segments exclusive get-user-env no-kill no-requeue overcommit requeue spread-job spread-segments "
    "use-min-nodes wait".split()
)
_NO_VALUE = _FLAGS - {"exclusive", "get-user-env", "no-kill"}
# srun(1): these would change the step inside the job.
_OF_SRUN = {
    **{f"SLURM_{name.upper().replace('-', '_')}": name
       for name in "cpu-bind distribution gpu-bind mem-bind network threads-per-core wait".split()},
    "SLURM_KILL_BAD_EXIT": "kill-on-bad-exit", "SLURM_MPI_TYPE": "mpi",
    "SLURM_EXPORT_ENV": None, "SLURM_OVERCOMMIT": None,
}  # fmt: skip


class FromEnvironment(NamedTuple):
    """A request with the values from the environment, notes on ignored variables, and the used ones: ``NAME=VALUE``."""

    request: JobRequest
    notes: tuple[str, ...]
    used: tuple[str, ...] = ()


def apply_sbatch_env(request: JobRequest, env: Mapping[str, str]) -> FromEnvironment:
    """Add the values of sbatch's variables, which override the profile and which typed options override."""
    if "SLURM_JOB_ID" in env:  # inside a job these variables describe the enclosing job
        return FromEnvironment(request, ())
    fields: dict[str, Any] = {}
    directives: list[str] = []
    notes: list[str] = []
    used: list[str] = []
    typed = {normalise_key(item.partition("=")[0]) for item in request.sbatch}
    for name, directive in DIRECTIVES.items():
        value = env.get(name)
        if value is None or (not value and directive not in _FLAGS):
            continue
        field = OPTIONS.get(directive, "name" if directive == "job-name" else None)
        if field is not None:
            if getattr(request, field) is None and not (directive == "mem" and _mem(typed)):
                fields[field] = _read(name, field, value)
                used.append(f"{name}={value}")
        elif directive in OWNED or directive in _DROPPED:
            notes.append(_note(name, value, _DROPPED.get(directive) or OWNED[directive]))
        elif not (directive in typed or (directive.startswith("mem-per") and (request.memory_mb or _mem(typed)))):
            bare = directive in _NO_VALUE or not value
            directives.append(directive if bare else f"{directive}={value}")
            used.append(f"{name}={value}" if value else name)
    if (switches := env.get("SBATCH_REQ_SWITCH")) and "switches" not in typed:
        wait = env.get("SBATCH_WAIT4SWITCH")
        directives.append(f"switches={switches}@{wait}" if wait else f"switches={switches}")
        used.append(f"SBATCH_REQ_SWITCH={switches}")
    if "SLURM_UMASK" in env:
        notes.append(_note("SLURM_UMASK", env["SLURM_UMASK"], "hpcrun uses the umask of your shell"))
    of_srun = sorted(name for name in env if name in _OF_SRUN or name.startswith("SRUN_"))
    notes += [_note(name, env[name], _instead_of(name, env[name])) for name in of_srun]
    changed = {**fields, "sbatch": (*dict.fromkeys(directives), *request.sbatch)}
    return FromEnvironment(request.model_copy(update=changed), tuple(notes), tuple(used))


def _instead_of(name: str, value: str) -> str:
    option = _OF_SRUN.get(name)
    return f"--srun {option}={value} does the same" if option and value else f"--env {name}=... sets it in the job"


def _mem(typed: set[str]) -> bool:
    return not typed.isdisjoint({"mem", "mem-per-cpu", "mem-per-gpu"})


def _note(name: str, value: str, why: str) -> str:
    return f"{name}={value} of your shell is ignored: {why}" if value else f"{name} is ignored: {why}"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST):
        raise ValueError(f"{text!r} is not a number of nodes")
    return int(text)


def _read(name: str, field: str, value: str) -> Any:
    read = {"walltime_s": parse_slurm_time, "memory_mb": parse_memory, "name": check_job_name, "segment": _count}.get(
        field, str
    )
    try:
        return read(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
