"""The plan of a job that runs a person's batch script: the script's own sizes and directives.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.batch.batch_script import BatchScript, remarks_on_agents
from hpcrun.job.batch.sbatch_input import Sizes, gpus_in, problem_of_export, read_sizes
from hpcrun.job.launch_options import Directives, Options, is_own_option, normalise_key
from hpcrun.job.plan.directives import apply_request, requeue_directives
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment, planned_env
from hpcrun.job.plan.sweep import decide_sweep
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import STDIN, GpuCount, JobRequest, Launcher, option_of
from hpcrun.job.request.notify_options import Notify
from hpcrun.job.resources.cpus_memory_time import decide_cancel_idle, read_allocation
from hpcrun.job.resources.requeue import Requeue, check_warning, decide_requeue
from hpcrun.job.resources.shape import Shape, check_total, laid_over
from hpcrun.job.text.quoting import job_name_from, quote_directive, run_name_note
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count

# Fields of a request that have no effect on a script → what to do instead
_CONTAINER = (
    "start the container in its launch: srun --container-image=IMAGE, or apptainer exec IMAGE"
)
_OF_SCRIPT = {
    **dict.fromkeys(("launcher", "torchrun", "module"), "change its launch"),
    **dict.fromkeys(("container", "mounts"), _CONTAINER),
    "cpus": "use --cpus-per-task N or --cpus-per-gpu N",
    "nproc_per_node": "change its launch, or use --ntasks-per-node N",
    **dict.fromkeys(("pack", "pack_memory"), "let it start several programs itself"),
    "spares": "leave it out: its launch would use the spare nodes, too",
    "uv": "write `uv run` into its launch",
}
_REQUEUE = ("requeue", "no-requeue", "signal")
_OTHERS = (
    ("cpus_per_task", "cpus-per-gpu"),
    ("cpus_per_gpu", "cpus-per-task"),
    ("ntasks", ""),
    ("ntasks_per_node", ""),
    ("segment", ""),
)
"""Fields of a request that replace directives of a script, each with a directive that goes."""


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
    of_sbatch: Mapping[str, str] | None = None,
    notify: Notify | None = None,
    mail: Mapping[str, str] | None = None,
) -> Plan:
    """Decide a job that runs a batch script.

    The profile says where jobs go and how they are requeued; the profile adds no directive and no
    variable to the script. ``python`` runs hpcrun's programs in the job, not the script.
    ``of_sbatch`` are the caller's variables that sbatch reads: sbatch does not get them, and so the
    job sets them for the script.

    Raises:
        PlanError: hpcrun cannot submit the script, or a local profile has no srun and no other
            nodes.
        UsageError: an option has no effect on a script that starts its own ranks.
    """
    _check_script(request, script)
    _check_options(request, script)
    requeue = decide_requeue(request, profile)
    array = script.options.array if request.array is None else request.array
    sweep = decide_sweep(request, array)
    name = job_name_from(request.name or script.options.name or _stem(request, script))
    directives = _directives(request, script, name, requeue)
    if sweep:
        directives["array"] = sweep.array
    directives |= mail or {}
    _apply_sizes(directives, request)
    apply_request(directives, request)
    sizes = read_sizes(directives)
    launcher, per_node = script.ranks(sizes)
    shape = Shape(
        sizes.nodes,
        sizes.gpus,
        sizes.gpu_type,
        launcher,
        per_node,
        node_choice=sizes.node_choice,
    )
    _check_local(profile, sizes.nodes, launcher)
    granted = read_allocation(directives, replace(shape, gpus_per_node=0), profile)
    check_warning(requeue, granted.walltime_s)
    env = _environment(request, profile, script, directives, of_sbatch or {})
    srun = _srun_options(request, script)
    notes = [
        *_notes_on_script(script, sizes),
        *_notes_on_request(request, profile, script, requeue),
        *_notes_on_srun(srun, script),
        *_notes_on_shared_gpus(request, shape),
    ]
    return Plan(
        name=name,
        profile=profile.name,
        scheduler=profile.scheduler,
        shape=shape,
        cpus_per_node=None,
        memory_mb=granted.memory_mb,
        walltime_s=granted.walltime_s,
        directives=tuple(directives.items()) if profile.scheduler == "slurm" else (),
        modules=request.load,
        setup=request.setup,
        env=tuple(env.items()),
        python=python,
        command=(script.name, *(sweep.common if sweep else request.args)),
        workdir=request.workdir,
        requeue=requeue,
        sweep=sweep,
        notes=tuple(notes),
        srun=srun,
        preflight=request.preflight,
        cancel_idle_s=decide_cancel_idle(request, profile, shape.gpus_per_node),
        sample_use=profile.sample_use,
        notify=notify,
        batch=script,
    )


def _check_script(request: JobRequest, script: BatchScript) -> None:
    """Check that hpcrun can submit a script.

    Raises:
        PlanError: it cannot.
    """
    if not script.options.problems:
        return
    hint = f"submit it with sbatch: sbatch {shlex.quote(script.name)}"
    if request.script == STDIN:
        hint = "submit it with sbatch, which reads stdin, too"
    raise PlanError("\n".join(script.options.problems), hint=hint)


# --- directives and variables --------------------------------------------------------------------


def _directives(
    request: JobRequest, script: BatchScript, name: str, requeue: Requeue | None
) -> Directives:
    """Return the directives of a script, without the sizes of the request."""
    directives: Directives = {
        "job-name": _slurm_name(_name_by_sbatch(request, script), name),
        "open-mode": "append",
    }
    directives |= dict(script.options.directives)
    given_name = request.name or script.options.name
    if given_name:
        directives["job-name"] = given_name
    if requeue:
        for key in _REQUEUE:
            directives.pop(key, None)
        directives |= requeue_directives(requeue)
    return directives


def _name_by_sbatch(request: JobRequest, script: BatchScript) -> str:
    """Return the name that sbatch would give a job without a name."""
    return "sbatch" if request.script == STDIN else script.name


def _stem(request: JobRequest, script: BatchScript) -> str:
    """Return the name that hpcrun gives the run of a job without a name."""
    name = _name_by_sbatch(request, script)
    return name.rpartition(".")[0] or name


def _environment(
    request: JobRequest,
    profile: Profile,
    script: BatchScript,
    directives: Directives,
    of_sbatch: Mapping[str, str],
) -> dict[str, str | None]:
    """Return the variables that the job sets; the directive ``export`` then lets them pass."""
    bare = profile.model_copy(update={"env": {}, "fabric": type(profile.fabric)(), "secrets": ()})
    export = of_sbatch.get("SBATCH_EXPORT") or directives.get("export")
    env: dict[str, str | None] = {
        **_exported(of_sbatch, export),
        **dict(script.options.env),
        **dict(planned_env(request, bare)),
        **dict.fromkeys(name for name, _ in script.secrets),
    }
    if export is not None:
        _pass_on_run(directives, env, export)
    return env


def _exported(of_sbatch: Mapping[str, str], export: str | None) -> dict[str, str]:
    """Return those of sbatch's variables that ``--export`` lets through to the script."""
    names = (export or "ALL").split(",")
    kept = {}
    for name, value in of_sbatch.items():
        if "ALL" in names or name in names or name.startswith("SLURM_"):
            kept[name] = value
    return kept


def _pass_on_run(directives: Directives, env: dict[str, str | None], export: str) -> None:
    """Let the job know its run and its secrets, whatever ``--export`` is.

    Raises:
        PlanError: hpcrun cannot do what ``--export`` says.
    """
    directives["export"] = export
    if "ALL" in export.split(","):
        return
    problem = problem_of_export(export)
    if problem:
        raise PlanError(f"--export={problem}")
    secrets = [name for name, value in env.items() if value is None]
    names = [*export.split(","), "HPCRUN_RUN_DIR", *secrets]
    # NONE is the empty list: sbatch then takes the environment of a login shell in both cases
    directives["export"] = ",".join(name for name in names if name != "NONE")
    env["SLURM_EXPORT_ENV"] = export


def _slurm_name(by_sbatch: str, name: str) -> str:
    """Return sbatch's name for the job of a script; ``name`` if no directive can hold it."""
    try:
        quote_directive(by_sbatch)
    except ValueError:
        return name
    return by_sbatch


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


def _srun_options(request: JobRequest, script: BatchScript) -> Options:
    """Return the options that the srun of the script's launch gets in front of its own.

    Raises:
        UsageError: the launch has no srun that hpcrun starts, or an option decides what it starts.
    """
    if not request.srun:
        return ()
    first = f"{spell('srun', request.srun[0])} has no effect on {script.name}"
    if script.missing:
        raise UsageError(
            f"{first}: hpcrun does not take over the launch: {script.missing[0]}",
            hint="write the option into the launch",
        )
    if not any(line.by_srun for line in script.launches):
        raise UsageError(f"{first}, whose launch has no srun", hint="write srun into its launch")
    for item in request.srun:
        if is_own_option("srun", normalise_key(item.partition("=")[0])):
            raise UsageError(
                f"{spell('srun', item)}: this is for the launch in {script.name} to say",
                hint="write the option into the launch",
            )
    return tuple(laid_over("srun", {}, request.srun).items())


# --- notes ---------------------------------------------------------------------------------------


def _notes_on_script(script: BatchScript, sizes: Sizes) -> Iterator[str]:
    """Yield what hpcrun does not take over of a script, and what is wrong in it."""
    for reason in script.missing:
        yield f"no logs per rank: hpcrun does not take over the launch: {reason}"
    # by the sizes given at submission: the script knows only its own
    on_agents = remarks_on_agents(script.launches, sizes)
    by_script = set(remarks_on_agents(script.launches, script.sizes))
    habits = [habit for habit in script.habits if habit not in by_script]
    yield from dict.fromkeys((*script.remarks, *habits, *on_agents))


def _notes_on_request(
    request: JobRequest, profile: Profile, script: BatchScript, requeue: Requeue | None
) -> Iterator[str]:
    """Yield what an option does that a person may not expect."""
    if request.name:
        name_note = run_name_note(request.name, profile.scheduler)
        if name_note:
            yield name_note
    restarts = requeue is not None and bool(requeue.on_failure or requeue.restarts)
    if restarts and any(line.by_srun for line in script.launches):
        yield "srun gets --kill-on-bad-exit=1: a failed task ends the others"


def _notes_on_srun(options: Options, script: BatchScript) -> Iterator[str]:
    """Yield a note on each option of srun that a launch has, too: srun takes the last one."""
    for name, _ in options:
        if any(name in line.srun for line in script.launches):
            yield (
                f"the launch in {script.name} has --{name}, too, which stays: not that of "
                f"{spell('srun')}"
            )


def _apply_sizes(directives: Directives, request: JobRequest) -> None:
    """Override the script's sizes as the command line of sbatch does.

    Raises:
        UsageError: the GPUs do not divide evenly over the nodes, or Slurm chooses the nodes.
    """
    if request.nodes:
        directives["nodes"] = str(request.nodes)
    if request.gpus:
        sizes = read_sizes(directives)
        check_total(request.gpus, sizes.node_choice)
        _set_gpus(directives, request.gpus, sizes.nodes)
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


def _notes_on_shared_gpus(request: JobRequest, shape: Shape) -> Iterator[str]:
    """Yield a note if the options leave a node fewer GPUs than the script has ranks on it."""
    given = (request.gpus, request.gpus_per_node, request.ntasks, request.ntasks_per_node)
    if not any(given):
        return
    if not 0 < shape.gpus_per_node < shape.procs_per_node:
        return
    gpus = count(shape.gpus_per_node, "GPU")
    yield (
        f"{shape.procs_per_node} ranks of a node share {gpus}: the script decides the number of "
        "ranks"
    )
