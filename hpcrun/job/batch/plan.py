"""The plan of a job that runs a person's batch script: the script's own sizes and directives. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.batch.convert import BatchScript
from hpcrun.job.batch.directives import read_sizes
from hpcrun.job.directive_resources import read_allocation
from hpcrun.job.directives import Directives
from hpcrun.job.notify import Notify
from hpcrun.job.plan import Plan, PythonEnvironment, apply_request, planned_env, requeue_directives
from hpcrun.job.profile import Profile
from hpcrun.job.quoting import job_name_from
from hpcrun.job.request import JobRequest, option_of
from hpcrun.job.requeue import check_warning, decide_requeue
from hpcrun.job.resources import decide_cancel_idle
from hpcrun.job.shape import Shape
from hpcrun.job.sweep import decide_sweep

_OF_SCRIPT = ("gpus", "nproc_per_node", "cpus", "cpus_per_gpu", "launcher", "srun", "torchrun", "module", "segment",
              "container", "mounts", "uv", "spares")  # fmt: skip
"""Options that a script has in its own #SBATCH lines and in its launch."""
_REQUEUE = ("requeue", "no-requeue", "signal")


def with_array(request: JobRequest, script: BatchScript) -> JobRequest:
    """Return the request with the task ids of the script, which its elements keep.

    Raises:
        UsageError: the request has a sweep of its own.
    """
    if script.options.array is None:
        return request
    if request.sweep:
        raise UsageError(f"{script.name} has #SBATCH --array, which cannot be combined with --sweep",
                         hint="remove the line, and let the script use its arguments")  # fmt: skip
    ids, at_once = script.options.array
    chosen = request.elements or ids
    update = {"sweep": ((),) * (ids[-1] + 1), "elements": chosen, "max_parallel": request.max_parallel or at_once}
    return request.model_copy(update=update)


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

    The profile says where jobs go and how they are requeued; it adds no directive and no variable to the script.

    Args:
        python: runs hpcrun's programs in the job, not the script.

    Raises:
        UsageError: an option has no effect on a script.
        PlanError: hpcrun cannot give the script's directives to sbatch.
    """
    if script.options.problems:
        raise PlanError("\n".join(script.options.problems), hint=f"submit it with sbatch: sbatch {script.name}")
    for field in _OF_SCRIPT:
        if getattr(request, field) not in (None, (), False):
            raise UsageError(
                f"{option_of(field)} has no effect on {script.name}: its #SBATCH lines and its launch decide",
                hint="change the script; --nodes, --gpus-per-node, --time and --sbatch override its lines",
            )
    requeue = decide_requeue(request, profile)
    sweep = decide_sweep(request)
    name = request.name or script.options.name or job_name_from(script.name.rpartition(".")[0] or script.name)
    directives: Directives = {"job-name": name, "open-mode": "append"}
    directives |= {key: value for key, value in script.options.directives if not (requeue and key in _REQUEUE)}
    directives |= requeue_directives(requeue) if requeue else {}
    directives |= {"array": sweep.array} if sweep else {}
    directives |= mail or {}
    _apply_sizes(directives, request)
    apply_request(directives, request)
    sizes = read_sizes(directives)
    shape = Shape(sizes.nodes, sizes.gpus, sizes.gpu_type, script.launcher, script.per_node)
    if profile.scheduler == "local" and (sizes.nodes > 1 or script.launcher == "srun"):
        raise PlanError(f"profile {profile.name!r} runs on this machine, without srun and other nodes",
                        hint="choose a Slurm profile with --profile")  # fmt: skip
    allocation = read_allocation(directives, replace(shape, gpus_per_node=0), profile)
    check_warning(requeue, allocation.walltime_s)
    bare = profile.model_copy(update={"env": {}, "fabric": type(profile.fabric)(), "secrets": ()})
    env = {
        **dict(script.options.env),
        **dict(planned_env(request, bare)),
        **dict.fromkeys(name for name, _ in script.secrets),
    }
    return Plan(
        name=name,
        profile=profile.name,
        scheduler=profile.scheduler,
        shape=shape,
        cpus_per_node=None,
        memory_mb=allocation.memory_mb,
        walltime_s=allocation.walltime_s,
        directives=tuple(directives.items()) if profile.scheduler == "slurm" else (),
        modules=request.load,
        setup=request.setup,
        env=tuple(env.items()),
        python=python,
        command=(script.name, *(sweep.common if sweep else request.args)),
        workdir=request.workdir,
        requeue=requeue,
        sweep=sweep,
        notes=(*script.missing_notes, *script.remarks),
        preflight=request.preflight,
        cancel_idle_s=decide_cancel_idle(request, profile, shape.gpus_per_node),
        sample_use=profile.sample_use,
        notify=notify,
        added=(),
        batch=script,
    )


def _apply_sizes(directives: Directives, request: JobRequest) -> None:
    """Override the script's sizes as the command line of sbatch does."""
    if request.nodes:
        directives["nodes"] = str(request.nodes)
    if request.gpus_per_node:
        for key in ("gres", "gpus", "gpus-per-task"):
            directives.pop(key, None)
        type_ = f"{request.gpus_per_node.type}:" if request.gpus_per_node.type else ""
        directives["gpus-per-node"] = f"{type_}{request.gpus_per_node.count}"
    if request.cpus_per_task:
        directives["cpus-per-task"] = str(request.cpus_per_task)
