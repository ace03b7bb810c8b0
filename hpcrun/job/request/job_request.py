"""The request of a job: the options of ``hpcrun submit``, each declared once as a field's default.

From the declarations come the options of every command that takes jobs and their help, the record
of a run, the line for ``resubmit --edit``, the directives that are passed on to sbatch, and the
parameters of ``hpcrun.Executor``. The fields stand in the order of ``--help``, which imports the
module: it imports no pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from hpcrun.job.request.node_choice import choice_of, read_nodes
from hpcrun.job.request.notify_options import check_destination
from hpcrun.job.request.option_panels import (
    CONTAINER,
    ENVIRONMENT,
    IDLE_LIMIT,
    LAUNCH,
    LAUNCHER,
    MODULE,
    NAME_AND_MAIL,
    PLACEMENT,
    PROGRAM,
    RANKS,
    REQUEUE,
    RESOURCES,
    RESTARTS,
    ROLES,
    SIZE,
    SNAPSHOT,
    SWEEPS,
    WRAP,
)
from hpcrun.job.request.option_values import (
    check_secret_name,
    parse_copy_size,
    parse_idle_limit,
    read_elements,
    read_events,
    read_parameters,
    read_preflight,
    read_variable,
    roles_record,
    seconds_text,
    sweep_texts,
    variable_texts,
)
from hpcrun.job.request.options import (
    MOST,
    WrongTypeError,
    from_text,
    not_empty,
    one_of,
    options_of,
    raw_text_reader,
    text_reader,
    whole_number,
)
from hpcrun.job.request.parameters import Parameters, check_array
from hpcrun.job.text.quoting import check_job_name, check_mount
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import (
    format_memory,
    format_time,
    index_ranges,
    parse_memory,
    parse_time,
    parse_walltime,
)

if TYPE_CHECKING:
    from hpcrun.job.request.role_options import RoleRequest

Launcher = Literal["torchrun", "srun", "python", "command", "ray"]
Preflight = Literal["first", "only"]
RAW_TEXT = raw_text_reader(str)
STDIN = "-"
"""The SCRIPT of a batch script on stdin."""
STDIN_NAME = "stdin"
"""What messages call it, and the name of its file in a job."""
WRAPPED = "--wrap"
"""The SCRIPT of a job that runs the command of ``--wrap``."""
MOST_TIMES = 1000
MOST_DAYS = 10_000


@dataclass(frozen=True, slots=True)
class GpuCount:
    """A number of GPUs, optionally with a type: ``4`` or ``a100:4``."""

    count: int
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> GpuCount:
        """Read ``N`` or ``TYPE:N``, as Slurm's ``--gpus`` does.

        Raises:
            ValueError: the text has another form.
        """
        type_, colon, count = text.rpartition(":")
        if not re.fullmatch(r"\d{1,6}", count, re.ASCII) or (
            colon and not re.fullmatch(r"[\w.-]+", type_, re.ASCII)
        ):
            raise ValueError(f"{text!r} is not a number of GPUs; write 4 or a100:4")
        return cls(count=int(count), type=type_ or None)

    @classmethod
    def read(cls, value: object) -> GpuCount:
        """Read a text, or the number in a record.

        Raises:
            ValueError: the text has another form.
            WrongTypeError: the value is neither.
        """
        if isinstance(value, GpuCount):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        if isinstance(value, Mapping) and {*value} <= {"count", "type"}:
            count = whole_number(0, MOST)(value.get("count"))
            return cls(count=count, type=value.get("type"))
        raise WrongTypeError("must be a number of GPUs")

    def as_record(self) -> dict[str, Any]:
        """Return the number as a run's record has it."""
        if self.type is None:
            return {"count": self.count}
        return {"count": self.count, "type": self.type}

    def __str__(self) -> str:
        return f"{self.type}:{self.count}" if self.type else str(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The request: one field per option of ``hpcrun submit``.

    ``None``, ``False`` and ``()`` mean that the option is not given.
    """

    script: str = PROGRAM.raw_text(
        "SCRIPT",
        "A .py file, a module with -m, any program, or - for a batch script on stdin.",
        default=MISSING,
        in_python=False,
    )
    args: tuple[str, ...] = PROGRAM.several(
        "ARGS", "Arguments of the script, passed on unchanged.", read_item=RAW_TEXT, in_python=False
    )

    gpus: GpuCount | None = SIZE.option(
        "--gpus -G [TYPE:]N",
        "GPUs of the whole job (sbatch --gpus): 4, a100:4; 0 for a CPU job. Default: 1 on "
        "each node.",
        read=GpuCount.read,
        record=GpuCount.as_record,
        python_number="{}",
    )
    nodes: int | None = SIZE.option(
        "--nodes -N N[-MAX]",
        "Number of nodes (sbatch --nodes); of 2-4 Slurm chooses. Default: the fewest that hold "
        "the GPUs.",
        read=read_nodes,
        record=lambda nodes: choice_of(nodes) or nodes,
    )
    walltime_s: int | None = RESOURCES.option(
        "--time -t TIME",
        "Time limit (sbatch --time): minutes, 36h, 1:30:00, 1-12:00:00. Default: the profile's.",
        read=from_text(parse_walltime),
        write=format_time,
        directive="time",
        python_name="time",
        python_number="{}m",
    )
    gpus_per_node: GpuCount | None = SIZE.option(
        "--gpus-per-node [TYPE:]N",
        "GPUs of each node (sbatch --gpus-per-node). Default: --gpus divided by --nodes.",
        read=GpuCount.read,
        record=GpuCount.as_record,
        python_number="{}",
        seldom=True,
    )
    nproc_per_node: int | None = RANKS.number(
        "--nproc-per-node N",
        "Ranks on each node (torchrun --nproc-per-node). Default: one per GPU.",
        python_name="tasks_per_node",
        python_help="Processes on each node that call the function. Default: 1.",
        seldom=True,
    )
    ntasks_per_node: int | None = RANKS.number(
        "--ntasks-per-node N",
        "Tasks on each node, for a batch script (sbatch --ntasks-per-node).",
        in_python=False,
        seldom=True,
    )
    ntasks: int | None = RANKS.number(
        "--ntasks -n N",
        "Tasks of the whole job, for a batch script (sbatch --ntasks).",
        in_python=False,
        seldom=True,
    )
    cpus: int | None = RESOURCES.number(
        "--cpus N", "CPUs of each node. Default: the profile's per GPU.", seldom=True
    )
    cpus_per_task: int | None = RESOURCES.number(
        "--cpus-per-task -c N",
        "CPUs of each Slurm task (sbatch --cpus-per-task). A task is a node, or a rank with "
        "--launcher srun.",
        python_help="CPUs of each process that calls the function.",
        seldom=True,
    )
    cpus_per_gpu: int | None = RESOURCES.number(
        "--cpus-per-gpu N", "CPUs for each GPU (sbatch --cpus-per-gpu).", seldom=True
    )
    memory_mb: int | None = RESOURCES.option(
        "--mem SIZE",
        "Memory of each node (sbatch --mem): 64G, 500M; 0 for all. Default: the profile's per GPU.",
        read=from_text(parse_memory),
        write=format_memory,
        directive="mem",
        python_name="mem",
        python_number="{}",
    )
    cancel_idle_s: int | None = IDLE_LIMIT.option(
        "--cancel-idle TIME",
        "End a job whose GPUs are all idle: 30m, 2h.",
        read=from_text(parse_idle_limit),
        write=seconds_text,
        python_name="cancel_idle",
        python_number="{}",
        seldom=True,
    )

    partition: str | None = PLACEMENT.directive(
        "--partition -p NAME", "Partition (sbatch --partition). Default: the profile's."
    )
    account: str | None = PLACEMENT.directive(
        "--account -A NAME", "Account (sbatch --account). Default: the profile's."
    )
    qos: str | None = PLACEMENT.directive(
        "--qos -q NAME", "Quality of service (sbatch --qos). Default: the profile's.", seldom=True
    )
    constraint: str | None = PLACEMENT.directive(
        "--constraint -C FEATURES", "Node features (sbatch --constraint).", seldom=True
    )
    reservation: str | None = PLACEMENT.directive(
        "--reservation NAME", "Reservation (sbatch --reservation).", seldom=True
    )
    begin: str | None = PLACEMENT.directive(
        "--begin TIME",
        "Start no earlier than TIME (sbatch --begin): 20:00, now+2hours, 2026-12-24T08:00.",
        seldom=True,
    )
    exclude: str | None = PLACEMENT.directive(
        "--exclude -x NODES", "Nodes to exclude (sbatch --exclude).", seldom=True
    )
    nodelist: str | None = PLACEMENT.directive(
        "--nodelist -w NODES", "Nodes to use (sbatch --nodelist).", seldom=True
    )
    segment: int | None = PLACEMENT.number(
        "--segment N",
        "Nodes per network block (sbatch --segment, Slurm 23.11 or later).",
        seldom=True,
    )
    sbatch: tuple[str, ...] = PLACEMENT.several(
        "--sbatch KEY[=VALUE]", "Any other option of sbatch. Repeatable.", adds=True, seldom=True
    )
    no_sbatch: tuple[str, ...] = PLACEMENT.several(
        "--no-sbatch KEY", "Leave out an sbatch option of the profile. Repeatable.", seldom=True
    )

    launcher: Launcher | None = LAUNCHER.option(
        "--launcher NAME",
        "How ranks start: torchrun (default with GPUs); srun, one task per rank (Lightning, "
        "MPI); python, one process per node (default without GPUs); command, a program that "
        "starts its own ranks (accelerate); ray, one program on a Ray cluster of the nodes.",
        read=one_of(get_args(Launcher)),
        in_python=False,
    )
    env: tuple[tuple[str, str], ...] = ENVIRONMENT.several(
        "--env NAME=VALUE",
        "Set an environment variable. Repeatable.",
        read_item=read_variable,
        write=variable_texts,
        adds=True,
    )
    python: str | None = ENVIRONMENT.raw_text(
        "--python PATH",
        "Python of the job. Default: that of the active virtual or conda environment.",
        python_help="Python of the job. Default: the one that submits.",
        seldom=True,
    )
    uv: bool = ENVIRONMENT.flag(
        "--uv",
        "Install uv.lock on the disk of each node (uv sync), and use it.",
        in_python=False,
        seldom=True,
    )
    load: tuple[str, ...] = ENVIRONMENT.several(
        "--load MODULE", "Load an environment module. Repeatable.", seldom=True
    )
    setup: tuple[str, ...] = ENVIRONMENT.several(
        "--setup CMD",
        "Run a shell command before the ranks start. Repeatable.",
        read_item=RAW_TEXT,
        seldom=True,
    )
    srun: tuple[str, ...] = LAUNCH.several(
        "--srun KEY[=VALUE]",
        "Option of the srun that starts the ranks, also in a batch script: mpi=pmix, "
        "cpu-bind=cores. Repeatable.",
        read_item=RAW_TEXT,
        adds=True,
        seldom=True,
    )
    torchrun: tuple[str, ...] = LAUNCH.several(
        "--torchrun KEY[=VALUE]",
        "Option of torchrun: max-restarts=1, numa-binding=node. Repeatable.",
        read_item=RAW_TEXT,
        adds=True,
        in_python=False,
        seldom=True,
    )
    module: bool = MODULE.flag(
        "--module -m",
        "SCRIPT is a Python module (torchrun --module).",
        in_python=False,
        seldom=True,
    )
    wrap: str | None = WRAP.raw_text(
        "--wrap COMMAND",
        "Run this command of sh, in place of SCRIPT (sbatch --wrap).",
        check=not_empty,
        in_python=False,
        seldom=True,
    )
    workdir: str | None = ENVIRONMENT.raw_text(
        "--workdir DIR",
        "Working directory of the job (sbatch --chdir). Default: the current directory.",
        seldom=True,
    )
    secrets: tuple[str, ...] = ENVIRONMENT.several(
        "--secret NAME",
        "Pass this variable of your environment to the job without writing its value to a "
        "file. Repeatable.",
        read_item=text_reader(check_secret_name),
        adds=True,
        seldom=True,
    )
    container: str | None = CONTAINER.raw_text(
        "--container IMAGE",
        "Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none` removes "
        "the profile's.",
        check=not_empty,
        seldom=True,
    )
    mounts: tuple[str, ...] = CONTAINER.several(
        "--mount SRC[:DST[:ro]]",
        "Mount a folder in the container, besides the run's and the job's. Repeatable.",
        read_item=text_reader(check_mount),
        seldom=True,
    )
    stage: tuple[str, ...] = ENVIRONMENT.several(
        "--stage SRC[:NAME]",
        "Copy a file or folder to the disk of each node first, as $HPCRUN_STAGE/NAME. "
        "Default: the last part of SRC. Repeatable.",
        read_item=raw_text_reader(not_empty),
    )
    keep: int | None = ENVIRONMENT.number(
        "--keep DAYS",
        "Leave the copies of --stage, read-only, for your later jobs on the node; those older "
        "than DAYS give way first. Default: the job removes them.",
        most=MOST_DAYS,
        seldom=True,
    )
    warm: bool = ENVIRONMENT.flag(
        "--warm",
        "Keep what compilers make (torch.compile, Triton) for the next job of this program.",
        seldom=True,
    )
    no_warm: bool = ENVIRONMENT.flag(
        "--no-warm", "Compile anew, in spite of the profile's launch.warm.", seldom=True
    )
    preflight: Preflight | None = LAUNCH.option(
        "--preflight",
        "Check all nodes first (at most 30 s); a bad one fails the job.",
        read=read_preflight,
        kind=bool,
        seldom=True,
    )
    roles: tuple[RoleRequest, ...] = ROLES.option(
        "--role NAME:SIZE",
        "One of several programs of the job, with its nodes (server:1) or its GPUs of one "
        "node (server:1gpu): its command follows, up to the next --role. Repeatable.",
        read=tuple,
        record=roles_record,
        default=(),
        repeatable=True,
        in_python=False,
        seldom=True,
    )

    sweep: tuple[Parameters, ...] = SWEEPS.option(
        "--sweep NAME=VALUE,...",
        "Run the script once per value, with --NAME VALUE, or with VALUE in place of {NAME} "
        "in ARGS. Repeatable: all combinations.",
        read=read_parameters,
        write=sweep_texts,
        default=(),
        repeatable=True,
        in_python=False,
    )
    sweep_file: str | None = SWEEPS.text(
        "--sweep-file FILE",
        "Read parameters from YAML (product:, zip:, or a list) or from CSV with a header.",
        in_python=False,
        seldom=True,
    )
    array: str | None = SWEEPS.text(
        "--array -a IDS",
        "Run the script once for each task id (sbatch --array): 0-9, 1,3,7, 0-30:5, 0-9%2.",
        check=check_array,
        in_python=False,
    )
    max_parallel: int | None = SWEEPS.number(
        "--max-parallel N",
        "Array elements that may run at once (sbatch --array=...%N); with --pack, tasks. "
        "Default: all.",
        in_python=False,
        seldom=True,
    )
    pack: int | None = SWEEPS.number(
        "--pack N",
        "Run N elements at once on the GPUs and CPUs of one node, as one task of the array.",
        in_python=False,
        seldom=True,
    )
    pack_memory: bool = SWEEPS.flag(
        "--pack-memory",
        "Limit each element of a pack to its share of its GPU's memory (torch from 2.10 on, JAX).",
        in_python=False,
        seldom=True,
    )
    elements: tuple[int, ...] = SWEEPS.option(
        "--elements 3,7-9",
        "Submit only these array elements. Default: all.",
        read=read_elements,
        write=index_ranges,
        default=(),
        in_python=False,
        seldom=True,
    )

    requeue: int | None = REQUEUE.number(
        "--requeue N",
        "Requeue up to N times after a time limit, a preemption or a node failure. Default: "
        "the profile's.",
        least=0,
        most=MOST_TIMES,
    )
    warn_s: int | None = REQUEUE.option(
        "--warn TIME",
        "Signal the ranks this long before the time limit (SIGUSR1, should_stop()): 120s, 5m.",
        read=from_text(parse_time),
        write=seconds_text,
        python_name="warn",
        python_number="{}",
        seldom=True,
    )
    retry_on_failure: bool = REQUEUE.flag(
        "--retry-on-failure",
        "Requeue also when the program fails; needs --requeue.",
        python_help="Requeue also when the function fails; needs requeue.",
        seldom=True,
    )
    exclude_bad_nodes: bool = REQUEUE.flag(
        "--exclude-bad-nodes",
        "Exclude nodes on which attempts failed (`hpcrun nodes`).",
        seldom=True,
    )
    restarts: int | None = RESTARTS.number(
        "--restarts N",
        "Restart the ranks up to N times in the same allocation after a node failure. "
        "Default: the profile's.",
        least=0,
        most=MOST_TIMES,
        seldom=True,
    )
    spares: int | None = RESTARTS.number(
        "--spares N",
        "Allocate N spare nodes that replace failed ones; needs --restarts. Default: the "
        "profile's.",
        python_help="Allocate N spare nodes that replace failed ones; needs restarts.",
        least=0,
        most=MOST_TIMES,
        seldom=True,
    )

    snapshot: bool = SNAPSHOT.flag(
        "--snapshot", "Run a copy of the code as it is now: the git work tree, or this folder."
    )
    snapshot_limit_mb: int | None = SNAPSHOT.option(
        "--snapshot-limit SIZE",
        "Largest size of the copy. Default: 200M.",
        read=from_text(parse_copy_size),
        write=format_memory,
        seldom=True,
    )
    snapshot_include: tuple[str, ...] = SNAPSHOT.several(
        "--snapshot-include PATTERN",
        "Copy files that look like secrets all the same: .env, certs/*.pem. Repeatable.",
        adds=True,
        seldom=True,
    )

    name: str | None = NAME_AND_MAIL.text(
        "--name -J NAME",
        "Job name (sbatch --job-name). Default: the script's name.",
        python_help="Job name (sbatch --job-name). Default: the function's name.",
        check=check_job_name,
    )
    notify: tuple[str, ...] = NAME_AND_MAIL.several(
        "--notify URL",
        "Send messages there: an apprise URL (ntfys://HOST/TOPIC), '$NAME' of a variable "
        "that holds one, or mailto:ADDRESS. `none` removes the configured ones. Repeatable.",
        read_item=raw_text_reader(check_destination),
        seldom=True,
    )
    notify_on: tuple[str, ...] = NAME_AND_MAIL.option(
        "--notify-on EVENTS",
        "Events to send messages about, with commas: started, first-step, failed, finished, "
        "waiting, idle. Default: all.",
        read=read_events,
        write=",".join,
        default=(),
        seldom=True,
    )
    mail_user: str | None = NAME_AND_MAIL.directive(
        "--mail-user ADDRESS", "Send mail to this address (sbatch).", seldom=True
    )
    mail_type: str | None = NAME_AND_MAIL.directive(
        "--mail-type EVENTS", "Events to mail about (sbatch): END, FAIL.", seldom=True
    )


JOB_FIELDS = options_of(JobRequest)
"""Field of a request → its option."""
FIELD_OF_DIRECTIVE = {
    option.directive: name for name, option in JOB_FIELDS.items() if option.directive
}
"""Directive of sbatch → the field whose option sets it."""


def option_of(field: str) -> str:
    """Return the option for a field of the request."""
    option = JOB_FIELDS.get(field)
    name = option.name if option else f"--{field.replace('_', '-')}"
    return spell(name[2:]) if name.startswith("--") else name


def option_text(field: str, value: Any) -> str | Sequence[str]:
    """Return the value of a field as it is written behind its option.

    There is one text for each repetition of the option.
    """
    return JOB_FIELDS[field].write(value)


def given_fields(request: JobRequest) -> dict[str, Any]:
    """Return the fields of a request that are given, as a run's record has them."""
    nothing = JobRequest(script="")
    fields = {}
    for name, option in JOB_FIELDS.items():
        value = getattr(request, name)
        if option.required or value != getattr(nothing, name):
            fields[name] = option.record(value)
    return fields
