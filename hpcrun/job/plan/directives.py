"""The #SBATCH lines of a job, in their order. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcrun.job.launch_options import Directives, check_option, remove_directive, set_directive
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JOB_FIELDS, GpuCount, JobRequest, option_text
from hpcrun.job.resources.cpus_memory_time import Resources
from hpcrun.job.resources.requeue import Requeue
from hpcrun.job.resources.shape import Shape
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import format_memory, format_time

_DIRECTIVES = {field: option.directive for field, option in JOB_FIELDS.items() if option.directive}
"""Field of a request → the directive that its option sets, in the order of the script."""


def decide_directives(
    request: JobRequest,
    profile: Profile,
    shape: Shape,
    resources: Resources,
    *,
    name: str,
    segment: int | None,
    more: Mapping[str, str],
) -> Directives:
    """Return the directives of a Slurm job: the profile's, then hpcrun's, then the request's.

    Args:
        request: the request of the user.
        profile: the profile for the GPU type of the request.
        shape: the nodes, GPUs and ranks of the job.
        resources: what the job requests of its nodes.
        name: the name of the job.
        segment: the nodes in one block of the network; None if the site decides.
        more: the directives of the job's array and mail.
    """
    directives: Directives = {"job-name": name, **_profile_directives(profile, shape, resources)}
    if segment is not None:
        directives["segment"] = str(segment)
    directives |= requeue_directives(resources.requeue)
    directives |= more
    apply_request(directives, request)
    return directives


def _profile_directives(profile: Profile, shape: Shape, resources: Resources) -> Directives:
    """Return the directives that follow from the profile and the job's size."""
    nodes = resources.nodes
    memory_mb = resources.memory_mb
    walltime_s = resources.walltime_s
    of_profile = {
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "constraint": profile.constraint,
    }
    directives: Directives = {key: value for key, value in of_profile.items() if value is not None}
    if shape.node_choice:
        directives["nodes"] = _with_spares(shape.node_choice, nodes - shape.nodes)
        # with --ntasks-per-node=1 Slurm gives as few nodes as it may (22.05); srun divides the CPUs
        directives["cpus-per-task"] = str(resources.cpus)
    else:
        directives["nodes"] = str(nodes)
        directives["ntasks-per-node"] = str(shape.tasks_per_node)
        directives["cpus-per-task"] = str(resources.cpus // shape.tasks_per_node)
    if shape.gpus_per_node:
        directives |= _gpu_directives(profile, shape, nodes)
    if memory_mb is not None:
        directives["mem"] = format_memory(memory_mb)
    if walltime_s is not None:
        directives["time"] = format_time(walltime_s)
    for key, value in profile.sbatch.items():
        set_directive(directives, key, None if value is True else value)
    return directives


def _with_spares(choice: str, spares: int) -> str:
    """Return each number of nodes of a choice, but not a step, with the spare nodes."""
    return re.sub(r"(?<![:\d])\d+", lambda number: str(int(number[0]) + spares), choice)


def _gpu_directives(profile: Profile, shape: Shape, nodes: int) -> Directives:
    """Return the directive that requests the GPUs, in the form that the site wants."""
    each = str(GpuCount(shape.gpus_per_node, shape.gpu_type))
    if profile.gpu.directive == "gres":
        return {"gres": f"gpu:{each}"}
    if profile.gpu.directive == "gpus-per-node" or shape.node_choice:
        return {"gpus-per-node": each}
    total = GpuCount(nodes * shape.gpus_per_node, shape.gpu_type)
    directives: Directives = {"gpus": str(total)}
    if nodes > 1:  # alone, --gpus=6 on two nodes gave 5 and 1 (22.05)
        directives["gpus-per-node"] = each
    return directives


def requeue_directives(requeue: Requeue | None) -> Directives:
    """Return the directives of requeue and warning."""
    # Always set: otherwise the cluster's JobRequeue would decide. Appending keeps the lines of
    # earlier attempts.
    again = requeue is not None and requeue.times > 0
    kind = "requeue" if again else "no-requeue"
    directives: Directives = {kind: None, "open-mode": "append"}
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
    for field, directive in _DIRECTIVES.items():
        value = getattr(request, field)
        if value is not None:
            set_directive(directives, directive, str(option_text(field, value)))
    for item in request.sbatch:
        key, equals, text = item.partition("=")
        free = check_option("sbatch", key, None, f"{spell('sbatch', item)}")
        set_directive(directives, free, text if equals else None)
    for key in request.no_sbatch:
        remove_directive(directives, key)
