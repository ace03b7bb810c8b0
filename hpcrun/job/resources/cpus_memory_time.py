"""CPUs, memory, time and local GPUs of a job, within the profile's limits.

The request decides the numbers, else the profile. At last the directives decide, which ``--sbatch``
may have changed:

| number | decided by |
|---|---|
| nodes | ``nodes`` |
| tasks on each node | ``ntasks-per-node`` |
| GPUs of each node | ``gpus-per-node``, else ``gres``, else ``gpus`` of a job on one node |
| CPUs of each node | ``cpus-per-task`` × tasks; of a choice of nodes, ``cpus-per-task`` |
| memory of each node | ``mem``, else ``mem-per-gpu`` × its GPUs, else ``mem-per-cpu`` × its CPUs |
| time limit | ``time`` |

``exclusive`` without a value gives the job every CPU and GPU of its nodes, and so the memory of
each; a step still gets only those that the job requested (sbatch(1); observed on 22.05).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.launch_options import Directives
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.requeue import Requeue, check_warning, decide_requeue
from hpcrun.job.resources.shape import Shape, check_binding, check_nodes, multiples_around
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count, format_memory, format_time, parse_memory, parse_slurm_time


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which hpcrun runs: the resources of the local scheduler."""

    cpus: int  # CPUs that this process may use
    # the possible entries of ``CUDA_VISIBLE_DEVICES`` here, one per visible GPU
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resources:
    """What a job requests: the values of the request, else those of the profile."""

    nodes: int  # with the spare nodes
    cpus: int  # of each node
    memory_mb: int | None  # of each node; None if the site decides, 0 for all of it
    walltime_s: int | None  # None if the site decides
    requeue: Requeue | None  # None if the job does not continue after an interruption
    local_gpus: tuple[tuple[str, ...], ...]  # the ids of this machine's GPUs for each local node
    note: str | None  # a note on these GPUs


@dataclass(frozen=True, slots=True)
class Granted:
    """What a job gets if Slurm grants its directives; None where the site decides."""

    cpus: int | None  # of each node
    memory_mb: int | None  # of each node
    walltime_s: int | None


def decide_resources(
    request: JobRequest, profile: Profile, shape: Shape, machine: Machine
) -> Resources:
    """Decide what a job requests of its nodes.

    Args:
        request: the request of the user.
        profile: the profile for the GPU type of the request.
        shape: the nodes, GPUs and ranks of the job.
        machine: the machine of the local scheduler; not used for Slurm.
    """
    cpus = decide_cpus(request, profile, shape, machine)
    memory_mb = decide_memory(request, profile, shape)
    local_gpus, note = share_gpus(profile, shape, machine)
    requeue = None
    nodes = shape.nodes
    if request.preflight != "only":
        requeue = decide_requeue(request, profile)
    if requeue:
        nodes += requeue.spares
    return Resources(
        nodes=nodes,
        cpus=cpus,
        memory_mb=memory_mb,
        walltime_s=request.walltime_s or profile.time.default,
        requeue=requeue,
        local_gpus=local_gpus,
        note=note,
    )


def decide_allocation(
    directives: Directives, shape: Shape, resources: Resources, profile: Profile
) -> Granted:
    """Return what a job gets: on Slurm what its directives say, else what it requests.

    Args:
        directives: all directives, with those of --sbatch and without those of --no-sbatch.
        shape: the nodes, GPUs and ranks of the job.
        resources: what the job requests of its nodes.
        profile: the profile for the GPU type of the request.

    Raises:
        PlanError, UsageError: the profile does not allow as much, or a rank would have no GPU.
    """
    if profile.scheduler == "slurm":
        granted = read_allocation(directives, shape, profile)
        spares = resources.nodes - shape.nodes
        check_nodes(shape, shape.fewest_nodes + spares, profile, directives.get("partition"))
    else:
        granted = Granted(resources.cpus, resources.memory_mb, resources.walltime_s)
    check_memory(granted.memory_mb, profile)
    check_walltime(granted.walltime_s, profile)
    check_warning(resources.requeue, granted.walltime_s)
    return granted


def decide_cpus(request: JobRequest, profile: Profile, shape: Shape, machine: Machine) -> int:
    """Return the CPUs of each node: those of one option, else the profile's share.

    Raises:
        UsageError: the options contradict each other, have no effect, or do not divide by the
            tasks.
        PlanError: a node of the profile has fewer CPUs.
    """
    tasks = shape.tasks_per_node
    gpus = shape.gpus_per_node
    ways = (
        (f"{spell('cpus', request.cpus)}", request.cpus, 1),
        (
            f"{spell('cpus-per-task', request.cpus_per_task)} × {tasks} tasks",
            request.cpus_per_task,
            tasks,
        ),
        (
            f"{spell('cpus-per-gpu', request.cpus_per_gpu)} × {gpus} GPUs",
            request.cpus_per_gpu,
            gpus,
        ),
    )
    given = {words: number * times for words, number, times in ways if number is not None}
    if len(set(given.values())) > 1:
        arithmetic = ", but ".join(f"{words} = {number}" for words, number in given.items())
        raise UsageError(
            f"CPUs per node contradict each other: {arithmetic}",
            hint="use only one of these options",
        )
    if not given:
        return _default_cpus(profile, shape, machine, request.pack or 1)
    cpus = next(iter(given.values()))
    if cpus == 0:
        raise UsageError(
            f"{spell('cpus-per-gpu')} has no effect in a job without GPUs",
            hint=f"use {spell('cpus', 'N')}",
        )
    most = profile.cpu.per_node
    if most is not None and cpus > most:
        raise PlanError(
            f"{cpus} CPUs per node, but a node of profile {profile.name!r} has {most}",
            hint=f"ask for {spell('cpus', most)} or fewer",
        )
    if cpus % tasks:
        raise UsageError(
            f"{cpus} CPUs per node do not divide by {tasks} tasks: {cpus} / {tasks} = "
            f"{cpus / tasks:.2f}",
            hint=f"ask for {spell('cpus', multiples_around(cpus, tasks, most or 0))}",
        )
    return cpus


def _default_cpus(profile: Profile, shape: Shape, machine: Machine, pack: int) -> int:
    procs = max(shape.procs_per_node, shape.workers_per_node, pack)
    if profile.scheduler == "local":
        return max(procs, machine.cpus // shape.nodes)
    if not (shape.gpus_per_node and profile.cpu.per_gpu):
        return procs
    share = profile.cpu.per_gpu * shape.gpus_per_node
    share = min(share, profile.cpu.per_node or share)
    return max(1, share // shape.tasks_per_node) * shape.tasks_per_node


def decide_memory(request: JobRequest, profile: Profile, shape: Shape) -> int | None:
    """Return the host memory of each node in MB, 0 for all of it, None if the site decides."""
    if request.memory_mb is not None or not shape.gpus_per_node or profile.memory.per_gpu is None:
        return request.memory_mb
    share = profile.memory.per_gpu * shape.gpus_per_node
    return min(share, profile.memory.per_node or share)


def check_memory(memory_mb: int | None, profile: Profile) -> None:
    """Check that a node of the profile has the requested memory.

    Raises:
        PlanError: the node has less memory.
    """
    most = profile.memory.per_node
    if memory_mb is not None and most is not None and memory_mb > most:
        requested = format_memory(memory_mb)
        has = format_memory(most)
        raise PlanError(
            f"{requested} of memory, but a node of profile {profile.name!r} has {has}",
            hint=f"ask for {spell('mem', has)} or less",
        )


def decide_cancel_idle(request: JobRequest, profile: Profile, gpus_per_node: int) -> int | None:
    """Return for how many seconds all GPUs of the job may be idle, None for any time.

    Raises:
        UsageError: the job has no GPU, or the profile takes no samples of the GPUs.
    """
    requested = request.cancel_idle_s
    idle_s = profile.cancel_idle if requested is None else requested
    if not idle_s or request.preflight == "only":
        return None
    if not gpus_per_node and requested:
        raise UsageError(
            f"{spell('cancel-idle')}: this job has no GPU that could be idle",
            hint=f"leave it out, or add {spell('gpus')}",
        )
    if not gpus_per_node:
        return None
    if not profile.sample_use:
        option = spell("cancel-idle") if requested else "cancel_idle"
        raise UsageError(
            f"{option} needs samples of the GPUs, "
            f"and profile {profile.name!r} has sample_use: false",
            hint=f"remove sample_use from the profile, or add {spell('cancel-idle', 0)}",
        )
    return idle_s


def check_walltime(walltime_s: int | None, profile: Profile) -> None:
    """Check that a time limit is not over the profile's limit.

    Slurm would accept such a job, and never start the job.

    Raises:
        PlanError: the time limit is longer than the profile allows.
    """
    most = profile.time.max
    if walltime_s is not None and most is not None and walltime_s > most:
        option = "the default time" if walltime_s == profile.time.default else spell("time")
        raise PlanError(
            f"{option} {format_time(walltime_s)} is longer than the {format_time(most)} that "
            f"profile {profile.name!r} allows",
            hint=f"ask for {spell('time', format_time(most))} or less, or use a profile whose "
            "partition allows more",
        )


def share_gpus(
    profile: Profile, shape: Shape, machine: Machine
) -> tuple[tuple[tuple[str, ...], ...], str | None]:
    """Return the ids of this machine's GPUs for each local node, and a note or None.

    If the ranks run on the CPU, there are no ids; a note says so where the machine has too few
    GPUs.
    """
    if profile.scheduler != "local" or shape.gpus == 0:
        return (), None
    here = len(machine.gpu_ids)
    if shape.gpus > here:
        have = count(here, "GPU") if here else "no GPU"
        ranks = count(shape.world_size, "rank")
        return (), f"{have} here for {ranks}: the ranks run on CPUs (backend gloo)"
    ids = machine.gpu_ids
    each = shape.gpus_per_node
    return tuple(ids[node * each : (node + 1) * each] for node in range(shape.nodes)), None


def read_allocation(directives: Directives, shape: Shape, profile: Profile) -> Granted:
    """Return the CPUs and the MB of each node, and the seconds, that directives request."""
    _check_gpus(directives, shape)
    check_binding("sbatch", directives, shape)
    cpus = _read(int, directives.get("cpus-per-task"))
    if cpus is not None and ("ntasks-per-node" in directives or not shape.node_choice):
        cpus *= shape.tasks_per_node
    memory_mb = _memory_mb(directives, shape, cpus, profile)
    return Granted(cpus, memory_mb, _read(parse_slurm_time, directives.get("time")))


def _memory_mb(
    directives: Directives, shape: Shape, cpus: int | None, profile: Profile
) -> int | None:
    gpus: int | None = shape.gpus_per_node
    if "exclusive" in directives and directives["exclusive"] is None:  # the job has the whole node
        gpus = profile.gpu.per_node or None
        cpus = profile.cpu.per_node
    for key, times in (("mem", 1), ("mem-per-gpu", gpus), ("mem-per-cpu", cpus)):
        if key in directives:
            each = _read(parse_memory, directives[key])
            return None if each is None or times is None else each * times
    return None


def _check_gpus(directives: Directives, shape: Shape) -> None:
    """Refuse a job if one of its nodes would have fewer GPUs than planned ranks.

    Raises:
        UsageError: no directive requests the GPUs of each node.
    """
    wanted = shape.gpus_per_node
    if not wanted or "gpus-per-node" in directives or "gres" in directives:
        return
    if "gpus" in directives:
        if shape.nodes == 1:
            return
        raise UsageError(
            f"--gpus={directives['gpus']} alone lets Slurm divide the GPUs freely among "
            f"{shape.nodes} nodes, but each node starts {shape.procs_per_node} ranks",
            hint=f"leave out {spell('no-sbatch', 'gpus-per-node')}",
        )
    hint = f"leave out {spell('no-sbatch')}; or submit a job without GPUs: "
    hint += f"{spell('gpus', 0)} {spell('nodes', shape.nodes)}"
    if shape.launcher != "python":
        hint += f" {spell('nproc-per-node', shape.procs_per_node)}"
        hint += f" {spell('launcher', shape.launcher)}"
    raise UsageError(
        f"no directive requests the {wanted} GPUs of each node: "
        f"{count(shape.procs_per_node, 'rank')} would start without a GPU",
        hint=hint,
    )


def _read(parse: Callable[[str], int], text: str | None) -> int | None:
    try:
        return None if text is None else parse(text)
    except ValueError:  # UNLIMITED, or a mistake: sbatch will judge
        return None
