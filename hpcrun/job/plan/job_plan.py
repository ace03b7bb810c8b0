"""The decision on every number of a job: request + profile → Plan.

Pure arithmetic and choice, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from hpcrun.job.launch_options import (
    Directives,
    Options,
    check_option,
    remove_directive,
    set_directive,
    unknown_note,
)
from hpcrun.job.launcher.launchers import program_of
from hpcrun.job.plan.packing import as_one_process, packed
from hpcrun.job.plan.role_ranks import Role, decide_roles, plan_roles, shared_gpus
from hpcrun.job.plan.sweep import Sweep, check_gpus, decide_sweep
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest, Preflight, option_of, option_text
from hpcrun.job.request.notify_options import Notify
from hpcrun.job.resources.container import Container, decide_container
from hpcrun.job.resources.cpus_memory_time import (
    Machine,
    Requeue,
    check_memory,
    check_walltime,
    check_warning,
    decide_cancel_idle,
    decide_cpus,
    decide_memory,
    decide_requeue,
    read_allocation,
    share_gpus,
)
from hpcrun.job.resources.shape import (
    Shape,
    check_nodes,
    decide_segment,
    decide_shape,
    for_gpu_type,
    option_words,
    srun_options,
    torchrun_options,
    torchrun_words,
)
from hpcrun.job.text.quoting import check_job_name, job_name_from
from hpcrun.job.text.recognise_secrets import is_secret
from hpcrun.job.text.units import format_memory, format_time

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch.batch_script import BatchScript

_DIRECTIVES = (
    *"partition account qos constraint reservation memory_mb walltime_s".split(),
    "nodelist",
    "exclude",
    "mail_user",
    "mail_type",
)
"""The fields of a request whose options are sbatch's, in the order of the script."""
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a job: every number and word of the script.

    The plan holds nothing that depends on time or place.
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
    added: tuple[tuple[str, str], ...]
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
        pack = self.sweep.pack if self.sweep else None
        return max(
            1,
            self.cpus_per_node
            // (pack or max(self.shape.procs_per_node, self.shape.workers_per_node)),
        )

    @property
    def cpus_per_task(self) -> int | None:
        """CPUs of one Slurm task; None if the site decides."""
        if self.cpus_per_node is None:
            return None
        return self.cpus_per_node // self.shape.tasks_per_node

    @property
    def step_words(self) -> tuple[str, ...]:
        """Options of the ranks' srun besides its sizes: hpcrun's own, overridden by others."""
        return option_words(
            {"wait": "0", "export": "ALL", "kill-on-bad-exit": "1", **dict(self.srun)}.items()
        )

    @property
    def torchrun_words(self) -> tuple[str, ...]:
        """Options of torchrun besides its sizes."""
        return torchrun_words(self.torchrun, self.shape.nodes)

    def torchrun_words_on(self, nodes: int) -> tuple[str, ...]:
        """Return the options of torchrun, besides its sizes, for a role on so many nodes."""
        return torchrun_words(self.torchrun, nodes)

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
    profile, request = for_gpu_type(profile, request), as_one_process(request)
    sweep = decide_sweep(request)
    shape, shapes = (
        decide_roles(request, profile) if request.roles else (decide_shape(request, profile), [])
    )
    share = decide_cpus(request, profile, shape, machine)
    cpus: int | None = share
    memory_mb = decide_memory(request, profile, shape)
    walltime_s = request.walltime_s or profile.time.default
    local_gpus, gpu_note = share_gpus(profile, shape, machine)
    check_gpus(sweep, local_gpus)
    if request.preflight == "only":
        requeue = None
    else:
        requeue = decide_requeue(request, profile)
    name = name_of(request)
    segment, segment_note = decide_segment(request, profile, shape)
    container = decide_container(request, profile, shape, python.executable)
    if container:
        python = PythonEnvironment(request.python or profile.container.python, "in the container")
    sweep = packed(sweep, request, shape, container, profile.scheduler)
    directives: Directives = {}
    if profile.scheduler == "slurm":
        nodes = shape.nodes + (requeue.spares if requeue else 0)
        directives = {
            "job-name": name,
            **_profile_directives(profile, shape, nodes, share, memory_mb, walltime_s),
        }
        directives |= {} if segment is None else {"segment": str(segment)}
        directives |= requeue_directives(requeue)
        directives |= {"array": sweep.array} if sweep else {}
        directives |= mail or {}
        apply_request(directives, request)
        # the directives after --sbatch and --no-sbatch decide
        cpus, memory_mb, walltime_s = read_allocation(directives, shape, profile)
        check_nodes(shape, nodes, profile, directives.get("partition"))
    check_memory(memory_mb, profile)
    check_walltime(walltime_s, profile)
    check_warning(requeue, walltime_s)
    unknown = (unknown_note(key) for key in directives)
    roles = plan_roles(
        request,
        shapes,
        cpus,
        job_env(request, profile),
        lambda one: _command(one, python, one.args),
    )
    # roles that share a node divide its CPUs in proportion to their GPUs, which srun cannot do:
    # in_job/launch/start_roles.py
    free: Options = (("cpu-bind", "none"),) if shape.tasks_per_node > 1 and roles else ()
    of_torchrun = next((each for each in shapes if each.launcher == "torchrun"), shape)
    return Plan(
        name=name,
        profile=profile.name,
        scheduler=profile.scheduler,
        shape=shape,
        cpus_per_node=cpus,
        memory_mb=memory_mb,
        walltime_s=walltime_s,
        directives=tuple(directives.items()),
        modules=(*profile.modules, *request.load),
        setup=(*profile.setup, *request.setup),
        env=planned_env(request, profile),
        added=flight_recorder_env(job_env(request, profile)),
        python=python,
        command=_command(request, python, sweep.common if sweep else request.args),
        workdir=request.workdir,
        requeue=requeue,
        sweep=sweep,
        local_gpus=shared_gpus(roles, local_gpus),
        notes=tuple(note for note in (gpu_note, segment_note, *unknown) if note),
        preflight=request.preflight,
        rates=_rates(profile) if request.preflight else (),
        srun=tuple({**dict(free), **dict(srun_options(request, profile, shape))}.items()),
        torchrun=torchrun_options(request, profile, of_torchrun),
        container=container,
        cancel_idle_s=decide_cancel_idle(request, profile, shape.gpus_per_node),
        sample_use=profile.sample_use,
        notify=notify,
        roles=roles,
    )


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
    known = tuple(
        (name, None if is_secret(name, value, named) else value) for name, value in env.items()
    )
    return (*known, *((name, None) for name in named if name not in env))


def flight_recorder_env(env: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that hpcrun adds for torch's flight recorder.

    The flight recorder writes the last collectives of a hang. The variables in ``env``, from
    profile, request and shell, have priority under each name of a setting: torch would prefer the
    name that hpcrun adds.
    """
    settings = [setting for setting, other in _FLIGHT_RECORDER if not {*setting, other} & {*env}]
    return tuple(item for setting in settings for item in setting.items())


def _rates(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Return the profile's rates of the card and the network.

    The rates have the names that preflight/judge.py uses.
    """
    card, tflops = profile.card, profile.card.tflops
    rates = {
        "bf16-tflops": tflops.bf16,
        "fp16-tflops": tflops.fp16,
        "nvlink-gb-s": card.nvlink_gb_s,
        "fabric-gbit-s": profile.fabric.bandwidth_gbit_s,
    }
    return tuple((name, rate) for name, rate in rates.items() if rate)


def name_of(request: JobRequest) -> str:
    """Return the name of a job: the requested name, else the name of its script."""
    if request.name:
        return check_job_name(request.name)
    if request.module:
        program: tuple[str, ...] = ("-m", request.script)
    else:
        program = program_of((request.script, *request.args))
    return job_name_from(
        program[1].rpartition(".")[2] if program[0] == "-m" else PurePath(program[0]).stem
    )


def _command(
    request: JobRequest, python: PythonEnvironment, args: tuple[str, ...]
) -> tuple[str, ...]:
    if not (request.module or request.script.endswith(".py")):
        return (request.script, *args)
    if request.module and request.script in _NOT_FROM_HERE:
        return (python.executable, "-u", "-c", RUN_MODULE, request.script, *args)
    # -u: a rank's log shows a line when it is printed, not when a buffer fills
    return (python.executable, "-u", *(["-m"] if request.module else []), request.script, *args)


def _profile_directives(
    profile: Profile,
    shape: Shape,
    nodes: int,
    cpus: int,
    memory_mb: int | None,
    walltime_s: int | None,
) -> Directives:
    """Return the directives that follow from the profile and the job's size.

    The nodes of the job include the spare nodes.
    """
    wanted = {
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "constraint": profile.constraint,
        "nodes": str(nodes),
        "ntasks-per-node": str(shape.tasks_per_node),
        "cpus-per-task": str(cpus // shape.tasks_per_node),
        **(_gpu_directives(profile, shape, nodes) if shape.gpus_per_node else {}),
        "mem": None if memory_mb is None else format_memory(memory_mb),
        "time": None if walltime_s is None else format_time(walltime_s),
    }
    directives: Directives = {key: value for key, value in wanted.items() if value is not None}
    for key, value in profile.sbatch.items():
        set_directive(directives, key, None if value is True else value)
    return directives


def _gpu_directives(profile: Profile, shape: Shape, nodes: int) -> Directives:
    """Return the directive that requests the GPUs, in the form that the site wants."""
    prefix = f"{shape.gpu_type}:" if shape.gpu_type else ""
    each = f"{prefix}{shape.gpus_per_node}"
    if profile.gpu.directive == "gres":
        return {"gres": f"gpu:{each}"}
    if profile.gpu.directive == "gpus-per-node":
        return {"gpus-per-node": each}
    # alone, --gpus=6 on two nodes gave 5 and 1 (22.05)
    return {
        "gpus": f"{prefix}{nodes * shape.gpus_per_node}",
        **({"gpus-per-node": each} if nodes > 1 else {}),
    }


def requeue_directives(requeue: Requeue | None) -> Directives:
    """Return the directives of requeue and warning."""
    # Always set: otherwise the cluster's JobRequeue would decide. Appending keeps the lines of
    # earlier attempts.
    again = requeue is not None and requeue.times > 0
    directives: Directives = {"requeue" if again else "no-requeue": None, "open-mode": "append"}
    if requeue is None:
        return directives
    if requeue.expedite:
        directives["requeue"] = "expedite"
    if requeue.spares:
        directives["no-kill"] = None  # the allocation survives the failure of a node
    directives["signal"] = f"B:USR1@{requeue.warn_s}"
    return directives


def apply_request(directives: Directives, request: JobRequest) -> None:
    """Override the profile's directives by the request's.

    First the options apply, then --sbatch, then --no-sbatch.
    """
    for field in _DIRECTIVES:
        value = getattr(request, field)
        if value is not None:
            set_directive(directives, option_of(field).lstrip("-"), str(option_text(field, value)))
    for item in request.sbatch:
        key, equals, text = item.partition("=")
        free = check_option("sbatch", key, None, f"--sbatch {item}")
        set_directive(directives, free, text if equals else None)
    for key in request.no_sbatch:
        remove_directive(directives, key)
