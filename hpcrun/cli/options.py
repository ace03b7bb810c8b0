"""The options of a job, each declared once, for every command that takes a job, with its script or without."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from hpcrun.cli import complete

_Command = Callable[..., Any]
_Fields = dict[str, tuple[Any, Any]]  # name → annotation and default
_SIZE, _JOB, _SHELL, _AGAIN = "How large", "Where it runs", "How the ranks start", "When it is interrupted"
_CODE = "Which code runs"
_SWEEP = "How often, with which parameters"


def _option(*names: str, help: str, panel: str, metavar: str | None = None, complete: Any = None) -> Any:
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False, autocompletion=complete
    )


class JobOptions:
    """One attribute per field of ``JobRequest``; the annotations are the command line."""

    nodes: Annotated[int | None, _option("--nodes", "-N", help="Nodes.", panel=_SIZE)] = None
    gpus_per_node: Annotated[
        str | None, _option("--gpus-per-node", metavar="[TYPE:]N", help="GPUs of each node.", panel=_SIZE)
    ] = None
    nproc_per_node: Annotated[
        int | None,
        _option("--nproc-per-node", panel=_SIZE, help="Ranks on each node; by default one per GPU."),
    ] = None
    cpus: Annotated[int | None, _option("--cpus", help="CPUs of each node.", panel=_SIZE)] = None
    cpus_per_task: Annotated[
        int | None,
        _option(
            "--cpus-per-task",
            "-c",
            panel=_SIZE,
            help="CPUs of each Slurm task: of a node, or of a rank with --launcher srun.",
        ),
    ] = None
    cpus_per_gpu: Annotated[int | None, _option("--cpus-per-gpu", help="CPUs with each GPU.", panel=_SIZE)] = None
    memory_mb: Annotated[
        str | None,
        _option("--mem", metavar="SIZE", panel=_SIZE, help="Memory of each node: 64G, 500M; 0 is all of it."),
    ] = None
    walltime_s: Annotated[
        str | None,
        _option(
            "--time",
            "-t",
            metavar="TIME",
            panel=_SIZE,
            help="Time limit: 90 (minutes), 1:30:00, 1-12:00:00, 36h, 90m.",
        ),
    ] = None

    profile: Annotated[
        str | None,
        _option(
            "--profile",
            "-P",
            help="Cluster profile, by name or path.",
            panel=_JOB,
            complete=complete.profile_name,
        ),
    ] = None
    gpus: Annotated[
        str | None,
        _option(
            "--gpus",
            "-G",
            metavar="[TYPE:]N",
            panel=_SIZE,
            help="GPUs of the whole job, as Slurm's --gpus: --gpus 4 --nodes 2 is 2 on each. 0 is a CPU job.",
        ),
    ] = None
    partition: Annotated[
        str | None, _option("--partition", "-p", help="Partition.", panel=_JOB, complete=complete.partition)
    ] = None
    account: Annotated[str | None, _option("--account", "-A", help="Account to charge.", panel=_JOB)] = None
    qos: Annotated[str | None, _option("--qos", "-q", help="Quality of service.", panel=_JOB)] = None
    constraint: Annotated[str | None, _option("--constraint", "-C", help="Node features.", panel=_JOB)] = None
    reservation: Annotated[str | None, _option("--reservation", help="Reservation.", panel=_JOB)] = None
    exclude: Annotated[str | None, _option("--exclude", "-x", help="Nodes not to use.", panel=_JOB)] = None
    nodelist: Annotated[str | None, _option("--nodelist", "-w", help="Nodes to use.", panel=_JOB)] = None
    mail_user: Annotated[str | None, _option("--mail-user", help="Who is told by mail.", panel=_JOB)] = None
    mail_type: Annotated[str | None, _option("--mail-type", help="Of what: END, FAIL, ...", panel=_JOB)] = None
    sbatch: Annotated[
        list[str] | None,
        _option("--sbatch", metavar="KEY[=VALUE]", panel=_JOB, help="Any other sbatch directive. Repeatable."),
    ] = None
    no_sbatch: Annotated[
        list[str] | None,
        _option(
            "--no-sbatch",
            metavar="KEY",
            panel=_JOB,
            help="Leave out a directive the profile sets. Repeatable.",
        ),
    ] = None
    segment: Annotated[
        int | None,
        _option(
            "--segment",
            metavar="N",
            panel=_JOB,
            help="Nodes that lie together in one block of the network (sbatch --segment; Slurm 23.11).",
        ),
    ] = None
    name: Annotated[str | None, _option("--name", "-J", help="Name; by default the script's.", panel=_JOB)] = None

    requeue: Annotated[
        int | None,
        _option(
            "--requeue",
            metavar="N",
            panel=_AGAIN,
            help="Start it up to N more times after a time limit, a preemption or a node failure.",
        ),
    ] = None
    restarts: Annotated[
        int | None,
        _option(
            "--restarts",
            metavar="N",
            panel=_AGAIN,
            help="Restart it up to N times in the same allocation, without the queue, after a node failure.",
        ),
    ] = None
    spares: Annotated[
        int | None,
        _option(
            "--spares",
            metavar="N",
            panel=_AGAIN,
            help="Allocate N more nodes for --restarts: they replace nodes that fail.",
        ),
    ] = None
    warn_s: Annotated[
        str | None,
        _option(
            "--warn",
            metavar="TIME",
            panel=_AGAIN,
            help="Warn the ranks so long before the time limit (SIGUSR1, should_stop()): 120s, 5m.",
        ),
    ] = None
    retry_on_failure: Annotated[
        bool, _option("--retry-on-failure", panel=_AGAIN, help="A failure of the program is a reason too.")
    ] = False
    exclude_bad_nodes: Annotated[
        bool, _option("--exclude-bad-nodes", panel=_AGAIN, help="Do not use a node again on which an attempt failed.")
    ] = False

    sweep: Annotated[
        list[str] | None,
        _option(
            "--sweep",
            metavar="NAME=VALUE,...",
            panel=_SWEEP,
            help="Run once for each value, with --NAME VALUE, or VALUE where ARGS have {NAME}. "
            "Repeatable: each with each.",
        ),
    ] = None
    sweep_file: Annotated[
        str | None,
        _option(
            "--sweep-file",
            metavar="FILE",
            panel=_SWEEP,
            help="The parameters from a file: YAML (product:, zip:, or a list) or CSV with a header.",
        ),
    ] = None
    max_parallel: Annotated[
        int | None, _option("--max-parallel", metavar="N", panel=_SWEEP, help="Elements that may run at once.")
    ] = None
    elements: Annotated[
        str | None, _option("--elements", metavar="3,7-9", panel=_SWEEP, help="Only these elements of the sweep.")
    ] = None

    launcher: Annotated[
        str | None,
        _option(
            "--launcher",
            metavar="torchrun|srun|python|command",
            panel=_SHELL,
            help="How ranks start: torchrun; srun, one task per GPU (Lightning, MPI); python, one process per node; "
            "command, a program once per node that starts its own ranks (accelerate launch). "
            "By default torchrun, and python without GPUs.",
        ),
    ] = None
    srun: Annotated[
        list[str] | None,
        _option(
            "--srun",
            metavar="KEY[=VALUE]",
            panel=_SHELL,
            help="Option of the srun that starts the ranks: --srun mpi=pmix --srun cpu-bind=cores. Repeatable.",
        ),
    ] = None
    torchrun: Annotated[
        list[str] | None,
        _option(
            "--torchrun",
            metavar="KEY[=VALUE]",
            panel=_SHELL,
            help="Option of torchrun: --torchrun max-restarts=1 --torchrun numa-binding=node. Repeatable.",
        ),
    ] = None
    python: Annotated[
        str | None,
        _option(
            "--python",
            metavar="PATH",
            panel=_SHELL,
            help="Python of the job; by default the active virtual or conda environment's.",
        ),
    ] = None
    load: Annotated[
        list[str] | None,
        _option("--load", metavar="MODULE", panel=_SHELL, help="Environment module to load. Repeatable."),
    ] = None
    setup: Annotated[
        list[str] | None,
        _option(
            "--setup",
            metavar="CMD",
            panel=_SHELL,
            help="Shell command to run before the ranks start. Repeatable.",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        _option("--env", metavar="NAME=VALUE", panel=_SHELL, help="Variable to set. Repeatable."),
    ] = None
    secrets: Annotated[
        list[str] | None,
        _option(
            "--secret",
            metavar="NAME",
            panel=_SHELL,
            help="Variable of your environment whose value the job needs and no file may hold. Repeatable.",
        ),
    ] = None
    container: Annotated[
        str | None,
        _option(
            "--container",
            metavar="IMAGE",
            panel=_SHELL,
            help="Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none` undoes the profile's.",
        ),
    ] = None
    mounts: Annotated[
        list[str] | None,
        _option(
            "--mount",
            metavar="SOURCE[:TARGET[:ro]]",
            panel=_SHELL,
            help="Folder that the container sees, besides the run's and the job's own. Repeatable.",
        ),
    ] = None
    workdir: Annotated[
        str | None,
        _option("--workdir", metavar="DIR", panel=_SHELL, help="Folder the job starts in; by default this one."),
    ] = None
    preflight: Annotated[
        bool,
        _option(
            "--preflight",
            panel=_SHELL,
            help="Check every node and GPU first, for half a minute at most; a bad one ends the job.",
        ),
    ] = False
    snapshot: Annotated[
        bool,
        _option(
            "--snapshot", panel=_CODE, help="Run a copy of the code as it is now: the git work tree, or this folder."
        ),
    ] = False
    snapshot_limit_mb: Annotated[
        str | None,
        _option("--snapshot-limit", metavar="SIZE", panel=_CODE, help="How large the copy may be; by default 200M."),
    ] = None
    snapshot_include: Annotated[
        list[str] | None,
        _option(
            "--snapshot-include",
            metavar="PATTERN",
            panel=_CODE,
            help="Copy these files although they look like secrets: .env, certs/*.pem. Repeatable.",
        ),
    ] = None

    module: Annotated[
        bool, _option("--module", "-m", panel=_SHELL, help="SCRIPT is a Python module, as torchrun's -m.")
    ] = False


_SCRIPT: _Fields = {
    "script": (
        Annotated[
            str,
            typer.Argument(metavar="SCRIPT", help="A .py file, a module with -m, or any program.", show_default=False),
        ],
        inspect.Parameter.empty,
    ),
    "args": (
        Annotated[
            list[str] | None,
            typer.Argument(metavar="ARGS", help="The script's own, untouched.", show_default=False),
        ],
        None,
    ),
}


def takes_job(command: _Command) -> _Command:
    """Give a command all of ``JobOptions``; it receives them as one dict ``asked``, with ``script`` and ``args``.

    The command's own parameters come first; typer reads the joined signature.
    """
    return _taking({**_SCRIPT, **_options(JobOptions)}, command)


def takes_job_options(*, without: Collection[str] = ()) -> Callable[[_Command], _Command]:
    """Give a command ``JobOptions`` and no SCRIPT, as ``takes_job`` does.

    Args:
        without: fields that mean nothing to the command, and that it does not take.
    """
    return lambda command: _taking(_options(JobOptions, without), command)


def takes_options(declared: type) -> Callable[[_Command], _Command]:
    """Give a command the options that a class declares as ``JobOptions`` does; one without a default must be given."""
    return lambda command: _taking(_options(declared), command)


def _options(declared: type, without: Collection[str] = ()) -> _Fields:
    hints = get_type_hints(declared, include_extras=True)
    return {
        name: (hint, getattr(declared, name, inspect.Parameter.empty))
        for name, hint in hints.items()
        if name not in without
    }


def _taking(fields: _Fields, command: _Command) -> _Command:
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def wrapped(**given: Any) -> Any:
        asked = {name: given.pop(name) for name in fields}
        return command(asked, **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    joined = [
        inspect.Parameter(name, keyword, annotation=hint, default=default) for name, (hint, default) in fields.items()
    ]
    joined += [parameter.replace(kind=keyword) for parameter in own]
    wrapped.__signature__ = inspect.Signature(joined)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in joined}
    return wrapped
