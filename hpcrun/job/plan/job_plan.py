"""The decision on every number of a job: request + profile → Plan.

Pure arithmetic and choice, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from hpcrun.job.launch_options import Directives, Options, unknown_note
from hpcrun.job.launcher.known_launchers import program_of
from hpcrun.job.plan.directives import decide_directives
from hpcrun.job.plan.packing import as_one_process, packed
from hpcrun.job.plan.roles import Role, decide_roles, plan_roles, shared_gpus
from hpcrun.job.plan.sweep import Sweep, check_gpus, decide_sweep
from hpcrun.job.plan.warm_start import WarmProgram
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest, Preflight
from hpcrun.job.request.notify_options import Notify
from hpcrun.job.resources.container import Container, decide_container
from hpcrun.job.resources.cpus_memory_time import (
    Machine,
    decide_allocation,
    decide_cancel_idle,
    decide_resources,
)
from hpcrun.job.resources.requeue import Requeue
from hpcrun.job.resources.shape import (
    Shape,
    decide_segment,
    decide_shape,
    for_gpu_type,
    option_words,
    srun_options,
    torchrun_options,
    torchrun_words,
)
from hpcrun.job.text.quoting import job_name_from, run_name_note
from hpcrun.job.text.recognise_secrets import is_secret
from hpcrun.job.text.units import count

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch.batch_script import BatchScript

_FLIGHT_FILE = "$HPCRUN_ATTEMPT_DIR/flight/rank_"
_FLIGHT_RECORDER: tuple[tuple[dict[str, str], str], ...] = (
    ({"TORCH_FR_BUFFER_SIZE": "2000"}, "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}, "TORCH_FR_DUMP_ON_TIMEOUT"),
    (
        {"TORCH_FR_DUMP_TEMP_FILE": _FLIGHT_FILE, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": _FLIGHT_FILE},
        "",
    ),
)
"""Settings of torch's flight recorder, in the shell's syntax, and another name of each."""
_NOT_FROM_HERE = ("hpcrun_dev", "hpcrun_hello")
"""Programs of hpcrun that need nothing of the current folder, which anybody may have written."""
RUN_MODULE = (
    'import sys, os; sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]; '
    'import runpy; runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)'
)
"""Unlike -m it imports nothing from the current folder; -P does so only since Python 3.11."""


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """The Python of a job."""

    executable: str  # path or name of the interpreter
    kind: str  # where it was found, as text for the user
    # the environment's folder, put on PATH by the script; None for a bare interpreter
    prefix: str | None = None
    # the variable that names an active environment of this kind
    variable: Literal["VIRTUAL_ENV", "CONDA_PREFIX"] = "VIRTUAL_ENV"
    # the folder with the uv.lock that each node installs into ``prefix`` first; None for no such
    # thing
    uv_project: str | None = None
    # it lies in the project's folder, and nobody has activated it: only a job runs it
    of_project: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the code in the run's folder, for the script.

    Paths are relative to the copy's root.
    """

    folder: str  # where the job starts; ``.`` for the root
    paths: tuple[str, ...]  # folders that come first on PYTHONPATH, in this order
    script: str | None = None  # the program, if it is one of the copied files


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a job: every number and word of the script.

    The plan holds nothing that depends on time or place. Preparing a job fills in ``added``,
    ``snapshot`` and ``stage``, and completes ``notes``.
    """

    name: str
    profile: str
    scheduler: Literal["slurm", "local"]
    shape: Shape
    # CPUs of each node, None if the site decides; a rank's share of them sets OMP_NUM_THREADS
    cpus_per_node: int | None
    memory_mb: int | None  # host memory per node, None if the site decides, 0 for all of it
    walltime_s: int | None  # time limit in seconds, None if the site decides
    # the #SBATCH lines in order, name → value (None for a flag)
    directives: tuple[tuple[str, str | None], ...]
    modules: tuple[str, ...]
    setup: tuple[str, ...]
    # variables of the job; None stands for a secret, whose value goes only through the environment
    env: tuple[tuple[str, str | None], ...]
    # variables that hpcrun adds before them, in the shell's syntax
    added: tuple[tuple[str, str], ...] = ()
    python: PythonEnvironment
    # program and arguments of one rank, undecodable bytes kept as surrogates
    command: tuple[str, ...]
    workdir: str | None
    requeue: Requeue | None = None  # how it continues after an interruption; None if it does not
    # the elements of a sweep, whose arguments follow ``command``; None for one job
    sweep: Sweep | None = None
    # GPU ids of each local node; empty if ranks run on the CPU
    local_gpus: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()  # notes for the user, shown before the job runs
    preflight: Preflight | None = None  # whether nodes and GPUs are checked first, or only checked
    # reference rates of the card and the network for preflight, from the profile
    rates: tuple[tuple[str, float], ...] = ()
    # the folder in the copy of the code where it starts; None if it runs the original files
    snapshot: Snapshot | None = None
    srun: Options = ()  # options from the user or the profile for the programs that start the ranks
    torchrun: Options = ()
    # the container of the ranks; then ``python`` is that of its image
    container: Container | None = None
    # it ends if all of its GPUs are idle for so many seconds; None for no limit
    cancel_idle_s: int | None = None
    sample_use: bool = True  # it records what it uses of its nodes
    notify: Notify | None = None  # where messages about the run go; None if there are none
    # data that is copied to each node: name below $HPCRUN_STAGE, path, and the bytes of a file
    stage: tuple[tuple[str, str, int | None], ...] = ()
    # how many days the copies stay there for later jobs; None if the job removes them
    keep_days: int | None = None
    # its compiled files are kept for the next job; None if they are not
    warm: WarmProgram | None = None
    # the person's batch script that it runs; None if hpcrun starts the ranks
    batch: BatchScript | None = None
    # its programs in the order of their ranks; empty if it has one program
    roles: tuple[Role, ...] = ()

    @property
    def cpus_per_rank(self) -> int | None:
        """The CPUs of one rank, at least one.

        The number is None if the site decides, or if Ray decides for each task and actor.
        """
        if self.cpus_per_node is None or self.shape.launcher == "ray":
            return None
        processes = max(self.shape.procs_per_node, self.shape.workers_per_node)
        if self.sweep and self.sweep.pack:
            processes = self.sweep.pack
        return max(1, self.cpus_per_node // processes)

    @property
    def cpus_per_task(self) -> int | None:
        """CPUs of one Slurm task; None if the site decides."""
        if self.cpus_per_node is None:
            return None
        return self.cpus_per_node // self.shape.tasks_per_node

    @property
    def step_words(self) -> tuple[str, ...]:
        """Options of the ranks' srun besides its sizes: hpcrun's own, overridden by others."""
        options = {"wait": "0", "export": "ALL", "kill-on-bad-exit": "1", **dict(self.srun)}
        return option_words(options.items())

    @property
    def srun_words(self) -> tuple[str, ...]:
        """Options of srun from the user or the profile."""
        return option_words(self.srun)

    @property
    def torchrun_words(self) -> tuple[str, ...]:
        """Options of torchrun besides its sizes."""
        return torchrun_words(self.torchrun, self.shape.nodes)

    def torchrun_words_on(self, nodes: int) -> tuple[str, ...]:
        """Return the options of torchrun, besides its sizes, for a role on so many nodes."""
        return torchrun_words(self.torchrun, nodes)

    @property
    def ranks_text(self) -> str:
        """The ranks of the whole job, ``8 ranks``, or ``4-8 ranks`` if Slurm chooses the nodes."""
        most = count(self.shape.world_size, "rank")
        # --ntasks of a script is a total
        if not self.shape.node_choice or self.directive("ntasks"):
            return most
        return f"{self.shape.fewest_nodes * self.shape.procs_per_node}-{most}"

    def directive(self, name: str) -> str | None:
        """Return a directive's value, or None if it is not set."""
        return dict(self.directives).get(name)


def build_plan(
    request: JobRequest,
    profile: Profile,
    *,
    python: PythonEnvironment,
    machine: Machine,
    notify: Notify | None = None,
    mail: Mapping[str, str] | None = None,
) -> Plan:
    """Decide every number of a job: the request's, else the profile's.

    Args:
        request: the request of the user.
        profile: the profile of the job.
        python: the interpreter of the job; for a job in a container, the host's interpreter, which
            starts the job.
        machine: the machine of the local scheduler; not used for Slurm.
        notify: the messages that hpcrun sends; None if there are none.
        mail: the directives of the mail that Slurm sends.
    """
    gpu_profile = for_gpu_type(profile, request)
    request = as_one_process(request)
    elements = decide_sweep(request, request.array)
    shape, role_shapes = _decide_shapes(request, gpu_profile)
    resources = decide_resources(request, gpu_profile, shape, machine)
    check_gpus(elements, resources.local_gpus)
    name = name_of(request)
    segment, segment_note = decide_segment(request, gpu_profile, shape)
    container = decide_container(request, gpu_profile, shape, python.executable)
    sweep = packed(elements, request, shape, container, gpu_profile.scheduler)
    directives: Directives = {}
    if gpu_profile.scheduler == "slurm":
        more = {"array": sweep.array} if sweep else {}
        more |= mail or {}
        directives = decide_directives(
            request,
            gpu_profile,
            shape,
            resources,
            name=request.name or name,
            segment=segment,
            more=more,
        )
    granted = decide_allocation(directives, shape, resources, gpu_profile)
    if container:
        python = PythonEnvironment(
            request.python or gpu_profile.container.python, "in the container"
        )
    env = job_env(request, gpu_profile)
    roles = plan_roles(
        request, role_shapes, granted.cpus, env, lambda role: _command(role, python, role.args)
    )
    by_torchrun = [each for each in role_shapes if each.launcher == "torchrun"]
    name_note = run_name_note(request.name, gpu_profile.scheduler) if request.name else None
    notes = [name_note, resources.note, segment_note, *map(unknown_note, directives)]
    return Plan(
        name=name,
        profile=gpu_profile.name,
        scheduler=gpu_profile.scheduler,
        shape=shape,
        cpus_per_node=granted.cpus,
        memory_mb=granted.memory_mb,
        walltime_s=granted.walltime_s,
        directives=tuple(directives.items()),
        modules=(*gpu_profile.modules, *request.load),
        setup=(*gpu_profile.setup, *request.setup),
        env=planned_env(request, gpu_profile),
        python=python,
        command=_command(request, python, sweep.common if sweep else request.args),
        workdir=request.workdir,
        requeue=resources.requeue,
        sweep=sweep,
        local_gpus=shared_gpus(roles, resources.local_gpus),
        notes=tuple(note for note in notes if note),
        preflight=request.preflight,
        rates=_rates(gpu_profile) if request.preflight else (),
        srun=_step_options(request, gpu_profile, shape),
        torchrun=torchrun_options(request, gpu_profile, by_torchrun[0] if by_torchrun else shape),
        container=container,
        cancel_idle_s=decide_cancel_idle(request, gpu_profile, shape.gpus_per_node),
        sample_use=gpu_profile.sample_use,
        notify=notify,
        roles=roles,
    )


def _decide_shapes(request: JobRequest, profile: Profile) -> tuple[Shape, list[Shape]]:
    """Return the shape of a job and of each of its roles, if it has roles."""
    if request.roles:
        return decide_roles(request, profile)
    return decide_shape(request, profile), []


def _step_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return the options of the srun that starts the ranks, or the roles."""
    options = srun_options(request, profile, shape)
    if request.roles and shape.tasks_per_node > 1:
        # roles that share a node divide its CPUs in proportion to their GPUs, which srun cannot do:
        # in_job/launch/start_roles.py
        return tuple({"cpu-bind": "none", **dict(options)}.items())
    return options


def job_env(request: JobRequest, profile: Profile) -> dict[str, str]:
    """Return the variables that profile and request set, with the values of secrets."""
    return {**profile.fabric.env(), **profile.env, **dict(request.env)}


def planned_env(request: JobRequest, profile: Profile) -> tuple[tuple[str, str | None], ...]:
    """Return the variables of a job: name → value, or None for a secret.

    The value of a secret goes only through the environment. If a secret is named but set by neither
    profile nor request, its value comes from the caller's environment.
    """
    env = job_env(request, profile)
    named = dict.fromkeys((*profile.secrets, *request.secrets))
    variables: dict[str, str | None] = {**env}
    for name, value in env.items():
        if is_secret(name, value, named):
            variables[name] = None
    for name in named:
        variables.setdefault(name, None)
    return tuple(variables.items())


def flight_recorder_env(env: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that hpcrun adds for torch's flight recorder.

    The flight recorder writes the last collectives of a hang. The variables in ``env``, from
    profile, request and shell, have priority under each name of a setting: torch would prefer the
    name that hpcrun adds.
    """
    given = set(env)
    added: list[tuple[str, str]] = []
    for setting, other in _FLIGHT_RECORDER:
        if given.isdisjoint((*setting, other)):
            added += setting.items()
    return tuple(added)


def _rates(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Return the profile's rates of the card and the network.

    The rates have the names that preflight/judge.py uses.
    """
    card = profile.card
    rates = {
        "bf16-tflops": card.tflops.bf16,
        "fp16-tflops": card.tflops.fp16,
        "nvlink-gb-s": card.nvlink_gb_s,
        "fabric-gbit-s": profile.fabric.bandwidth_gbit_s,
    }
    return tuple((name, rate) for name, rate in rates.items() if rate)


def name_of(request: JobRequest) -> str:
    """Return the name of a run, made of the requested name, else of the name of its script."""
    if request.name:
        return job_name_from(request.name)
    if request.module:
        program: tuple[str, ...] = ("-m", request.script)
    else:
        program = program_of((request.script, *request.args))
    if program[0] == "-m":
        return job_name_from(program[1].rpartition(".")[2])
    return job_name_from(PurePath(program[0]).stem)


def _command(
    request: JobRequest, python: PythonEnvironment, args: tuple[str, ...]
) -> tuple[str, ...]:
    if not (request.module or request.script.endswith(".py")):
        return (request.script, *args)
    if request.module and request.script in _NOT_FROM_HERE:
        return (python.executable, "-u", "-c", RUN_MODULE, request.script, *args)
    # -u: a rank's log shows a line when it is printed, not when a buffer fills
    start = (python.executable, "-u")
    if request.module:
        return (*start, "-m", request.script, *args)
    return (*start, request.script, *args)
