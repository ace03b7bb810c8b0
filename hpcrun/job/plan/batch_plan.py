"""The plan of a job that runs a person's batch script: the script's own sizes and directives.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.batch.batch_script import BatchScript
from hpcrun.job.batch.sbatch_input import gpus_in, read_sizes
from hpcrun.job.launch_options import Directives
from hpcrun.job.plan.directives import apply_request, requeue_directives
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment, planned_env
from hpcrun.job.plan.sweep import decide_sweep
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import GpuCount, JobRequest, Launcher, option_of
from hpcrun.job.request.notify_options import Notify
from hpcrun.job.resources.cpus_memory_time import (
    check_warning,
    decide_cancel_idle,
    decide_requeue,
    read_allocation,
)
from hpcrun.job.resources.shape import Shape
from hpcrun.job.text.quoting import job_name_from
from hpcrun.job.text.units import count

# Fields of a request that have no effect on a script → what to do instead
_CONTAINER = (
    "start the container in its launch: srun --container-image=IMAGE, or apptainer exec IMAGE"
)
_OF_SCRIPT = {
    **dict.fromkeys(("launcher", "srun", "torchrun", "module"), "change its launch"),
    **dict.fromkeys(("container", "mounts"), _CONTAINER),
    "cpus": "use --cpus-per-task N or --cpus-per-gpu N",
    "nproc_per_node": "change its launch, or its line #SBATCH --ntasks-per-node",
    **dict.fromkeys(("pack", "pack_memory"), "let it start several programs itself"),
    "spares": "leave it out: its launch would use the spare nodes, too",
    "uv": "write `uv run` into its launch",
}
_REQUEUE = ("requeue", "no-requeue", "signal")
_OTHERS = (("cpus_per_task", "cpus-per-gpu"), ("cpus_per_gpu", "cpus-per-task"), ("segment", ""))
"""Fields of a request that replace directives of a script, each with a directive that goes."""


def with_array(request: JobRequest, script: BatchScript) -> JobRequest:
    """Return the request with the task ids of the script.

    Raises:
        UsageError: both the script and the request have a sweep.
    """
    if script.options.array is None:
        return request
    if request.sweep:
        raise UsageError(
            f"{script.name} has #SBATCH --array, which cannot be combined with --sweep",
            hint="remove the line, and let the script use its arguments",
        )
    ids, at_once = script.options.array
    chosen = request.elements or ids
    return replace(
        request,
        sweep=((),) * (ids[-1] + 1),
        elements=chosen,
        max_parallel=request.max_parallel or at_once,
    )


def _check_local(profile: Profile, nodes: int, launcher: Launcher) -> None:
    """Check that a local profile has all that a script needs.

    Raises:
        PlanError: the script needs srun or several nodes.
    """
    if profile.scheduler != "local":
        return
    if nodes > 1 or launcher == "srun":
        raise PlanError(
            f"profile {profile.name!r} runs on this machine, without srun and other nodes",
            hint="choose a Slurm profile with --profile",
        )


def plan_script(
    request: JobRequest,
    profile: Profile,
    script: BatchScript,
    *,
    python: PythonEnvironment,
    notify: Notify | None = None,
    mail: Mapping[str, str] | None = None,
) -> Plan:
    """Decide a job that runs a batch script.

    The profile says where jobs go and how they are requeued; the profile adds no directive and no
    variable to the script. ``python`` runs hpcrun's programs in the job, not the script.

    Raises:
        PlanError: hpcrun cannot submit the script, or a local profile has no srun and no other
            nodes.
        UsageError: an option has no effect on a script that starts its own ranks.
    """
    if script.options.problems:
        raise PlanError(
            "\n".join(script.options.problems), hint=f"submit it with sbatch: sbatch {script.name}"
        )
    _check_options(request, script)
    requeue = decide_requeue(request, profile)
    sweep = decide_sweep(request)
    stem = script.name.rpartition(".")[0]
    name = request.name or script.options.name or job_name_from(stem or script.name)
    directives: Directives = {"job-name": name, "open-mode": "append"}
    directives |= dict(script.options.directives)
    if requeue:
        for key in _REQUEUE:
            directives.pop(key, None)
        directives |= requeue_directives(requeue)
    if sweep:
        directives["array"] = sweep.array
    directives |= mail or {}
    _apply_sizes(directives, request)
    apply_request(directives, request)
    sizes = read_sizes(directives)
    launcher, per_node = script.ranks(sizes)
    shape = Shape(sizes.nodes, sizes.gpus, sizes.gpu_type, launcher, per_node)
    _check_local(profile, sizes.nodes, launcher)
    granted = read_allocation(directives, replace(shape, gpus_per_node=0), profile)
    check_warning(requeue, granted.walltime_s)
    bare = profile.model_copy(update={"env": {}, "fabric": type(profile.fabric)(), "secrets": ()})
    env = {
        **dict(script.options.env),
        **dict(planned_env(request, bare)),
        **dict.fromkeys(name for name, _ in script.secrets),
    }
    no_logs = "no logs per rank: hpcrun does not take over the launch: {}".format
    notes = [no_logs(reason) for reason in script.missing]
    notes += script.remarks
    shared = _shared_gpus(request, shape)
    if shared:
        notes.append(shared)
    if profile.scheduler != "slurm":
        directives = {}
    return Plan(
        name=name,
        profile=profile.name,
        scheduler=profile.scheduler,
        shape=shape,
        cpus_per_node=None,
        memory_mb=granted.memory_mb,
        walltime_s=granted.walltime_s,
        directives=tuple(directives.items()),
        modules=request.load,
        setup=request.setup,
        env=tuple(env.items()),
        python=python,
        command=(script.name, *(sweep.common if sweep else request.args)),
        workdir=request.workdir,
        requeue=requeue,
        sweep=sweep,
        notes=tuple(notes),
        preflight=request.preflight,
        cancel_idle_s=decide_cancel_idle(request, profile, shape.gpus_per_node),
        sample_use=profile.sample_use,
        notify=notify,
        batch=script,
    )


def _check_options(request: JobRequest, script: BatchScript) -> None:
    """Check that each option of a request has an effect on a script.

    Raises:
        UsageError: some have none.
    """
    given = [field for field in _OF_SCRIPT if getattr(request, field) not in (None, (), False)]
    if not given:
        return
    options = " and ".join(map(option_of, given))
    have = "has" if len(given) == 1 else "have"
    instead = dict.fromkeys(_OF_SCRIPT[field] for field in given)
    raise UsageError(
        f"{options} {have} no effect on {script.name}, which starts its own ranks",
        hint="; ".join(instead),
    )


def _apply_sizes(directives: Directives, request: JobRequest) -> None:
    """Override the script's sizes as the command line of sbatch does.

    Raises:
        UsageError: the GPUs do not divide evenly over the nodes.
    """
    if request.nodes:
        directives["nodes"] = str(request.nodes)
    if request.gpus:
        _set_gpus(directives, request.gpus, read_sizes(directives).nodes)
    elif request.gpus_per_node:
        _set_gpus(directives, request.gpus_per_node, 1)
    for mine, other in _OTHERS:
        number = getattr(request, mine)
        if number is not None:
            directives.pop(other, None)
            directives[mine.replace("_", "-")] = str(number)


def _set_gpus(directives: Directives, gpus: GpuCount, nodes: int) -> None:
    """Replace the script's GPUs by so many on so many nodes.

    Raises:
        UsageError: the GPUs do not divide evenly over the nodes.
    """
    if gpus.count % nodes:
        raise UsageError(
            f"{gpus.count} GPUs cannot be split over {nodes} nodes",
            hint=f"use --gpus {-(-gpus.count // nodes) * nodes}, or --nodes 1",
        )
    each = GpuCount(gpus.count // nodes, gpus.type or read_sizes(directives).gpu_type)
    resources = (directives.pop("gres", None) or "").split(",")
    for key in ("gpus", "gpus-per-task"):
        directives.pop(key, None)
    others = [item for item in resources if item and not gpus_in("gres", item)]
    if others:
        directives["gres"] = ",".join(others)
    directives["gpus-per-node"] = str(each)


def _shared_gpus(request: JobRequest, shape: Shape) -> str | None:
    """Return a note if the options leave a node fewer GPUs than the script has ranks for it."""
    if not (request.gpus or request.gpus_per_node):
        return None
    if not 0 < shape.gpus_per_node < shape.procs_per_node:
        return None
    gpus = count(shape.gpus_per_node, "GPU")
    return (
        f"{shape.procs_per_node} ranks of a node share {gpus}: the script decides the number of "
        "ranks"
    )
