"""The resources that the final directives request: which directive decides which number of the plan. Pure.

| number | decided by |
|---|---|
| nodes | ``nodes`` |
| tasks on each node | ``ntasks-per-node`` |
| GPUs of each node | ``gpus-per-node``, else ``gres``, else ``gpus`` of a job on one node |
| CPUs of each node | ``cpus-per-task`` × tasks |
| memory of each node | ``mem``, else ``mem-per-gpu`` × its GPUs, else ``mem-per-cpu`` × its CPUs |
| time limit | ``time`` |

``exclusive`` without a value gives the job every CPU and GPU of its nodes, and so the memory of each; a step still gets
only those that the job requested (sbatch(1); observed on 22.05).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpcrun.errors import UsageError
from hpcrun.job.directives import Directives
from hpcrun.job.profile import Profile
from hpcrun.job.shape import Shape
from hpcrun.job.step_options import check_binding
from hpcrun.job.units import parse_memory, parse_slurm_time

_GPU_DIRECTIVES = ("gpus-per-node", "gres", "gpus")


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """The resources requested from Slurm.

    Attributes:
        cpus_per_node, walltime_s: None if the site decides.
        memory_mb: of each node; 0 for all of it, None if the site decides.
    """

    cpus_per_node: int | None
    memory_mb: int | None
    walltime_s: int | None


def read_allocation(directives: Directives, shape: Shape, profile: Profile) -> RequestedResources:
    """Return the resources that the directives of a job request.

    Raises:
        UsageError: the ranks would not see their planned GPUs.
    """
    _check_gpus(directives, shape)
    check_binding("sbatch", directives, shape)
    cpus_per_task = _read(int, directives.get("cpus-per-task"))
    cpus = None if cpus_per_task is None else cpus_per_task * shape.tasks_per_node
    return RequestedResources(
        cpus, _memory_mb(directives, shape, cpus, profile), _read(parse_slurm_time, directives.get("time"))
    )


def _memory_mb(directives: Directives, shape: Shape, cpus: int | None, profile: Profile) -> int | None:
    whole_node = "exclusive" in directives and directives["exclusive"] is None
    shares = (
        ("mem", 1),
        ("mem-per-gpu", profile.gpu.per_node or None if whole_node else shape.gpus_per_node),
        ("mem-per-cpu", profile.cpu.per_node if whole_node else cpus),
    )
    for key, times in shares:
        if key in directives:
            each = _read(parse_memory, directives[key])
            return None if each is None or times is None else each * times
    return None


def _check_gpus(directives: Directives, shape: Shape) -> None:
    """Refuse a job if one of its nodes would have fewer GPUs than planned ranks.

    Raises:
        UsageError: Slurm gives no GPUs, or divides them among the nodes in an unknown way.
    """
    wanted = shape.gpus_per_node
    given = {key: directives[key] for key in _GPU_DIRECTIVES if key in directives}
    if not wanted or "gpus-per-node" in given or "gres" in given or ("gpus" in given and shape.nodes == 1):
        return
    if given:
        raise UsageError(
            f"--gpus={given['gpus']} alone lets Slurm divide the GPUs freely among {shape.nodes} nodes, "
            f"but each node starts {shape.procs_per_node} ranks",
            hint="leave out --no-sbatch gpus-per-node",
        )
    raise UsageError(
        f"no directive requests the {wanted} GPUs of each node: {shape.procs_per_node} "
        f"rank{'s' if shape.procs_per_node > 1 else ''} would start without a GPU",
        hint=f"leave out --no-sbatch; or submit a job without GPUs: --gpus 0 --nodes {shape.nodes}"
        + (f" --launcher {shape.launcher}" if shape.launcher != "python" else "")
        + (f" --nproc-per-node {shape.procs_per_node}" if shape.launcher != "python" else ""),
    )


def _read(parse: Callable[[str], int], text: str | None) -> int | None:
    try:
        return None if text is None else parse(text)
    except ValueError:  # UNLIMITED, or a mistake: sbatch will judge
        return None
