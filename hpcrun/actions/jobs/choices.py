"""The choices that a profile leaves open: GPU type, partition, account and QOS.

The last three are open only on a detected cluster. If one option fits, hpcrun takes it. Else it
asks the user at the terminal; without a terminal, one error names the options with the exact flags.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcrun.actions.choice import Choice, Option, Picker, first_option
from hpcrun.errors import PlanError, SchedulerError, UsageError
from hpcrun.job.profile_model import GpuTypeSection, Profile
from hpcrun.job.request.job_request import GpuCount, JobRequest
from hpcrun.job.resources.shape import (
    decide_shape,
    for_gpu_type,
    naming_gpu_type,
    types_to_choose_from,
    types_with_room,
)
from hpcrun.job.text.units import count
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.load import LoadedProfile

if TYPE_CHECKING:  # only a detected profile has them
    from hpcrun.actions.ports import Surroundings
    from hpcrun.actions.profiles.detected import DetectedProfile


@dataclass(frozen=True, slots=True)
class Settled:
    """A request and its profile after all choices are made."""

    request: JobRequest
    loaded: LoadedProfile
    notes: tuple[str, ...] = ()


def settle(
    request: JobRequest,
    loaded: LoadedProfile,
    surroundings: Surroundings,
    *,
    sizes: str | None = None,
) -> Settled:
    """Make the choices that the request and the profile leave open.

    Args:
        request: with the values of SBATCH_* and of the configuration.
        loaded: the profile of the job, with the file of each value.
        surroundings: gives the detected profile and asks the user.
        sizes: what was typed as --gpus, if the request is one of several sizes.
    """
    if loaded.profile.scheduler != "slurm":
        return Settled(request, loaded)
    picker, detected = Picker(surroundings.choose), surroundings.detected
    request = _with_gpu_type(request, loaded.profile, picker, sizes)
    if detected is None or not detected.shaped(loaded):
        _check_made(picker, loaded.profile.name)
        if detected:
            return _without_gpus(request, loaded, detected)
        return Settled(request, loaded)
    from hpcrun.actions.jobs.cluster_choices import (
        ClusterJob,
        check_nodes,
        check_qos_limits,
        detected_note,
        with_account,
        with_partition,
        with_qos,
    )

    request, profile = with_partition(request, loaded, detected, picker)
    job = with_qos(with_account(ClusterJob(request, profile, detected.facts), picker), picker)
    _check_made(picker, loaded.profile.name)
    check_nodes(job)
    check_qos_limits(job)
    if loaded.path == detected.path:
        notes: tuple[str, ...] = (detected_note(job),)
    else:
        notes = ()
    return Settled(job.request, replace(loaded, profile=profile), notes)


def _without_gpus(request: JobRequest, loaded: LoadedProfile, detected: DetectedProfile) -> Settled:
    """Choose the partition of a job without GPUs on a detected cluster.

    A partition that a user's file names stays.
    """
    try:
        if decide_shape(request, for_gpu_type(loaded.profile, request)).gpus_per_node:
            return Settled(request, loaded)
        facts = detected.facts
    except (SchedulerError, PlanError):
        # Slurm does not respond: the profile's partition. build_plan reports a wrong shape.
        return Settled(request, loaded)
    from hpcrun.actions.jobs.cluster_choices import ClusterJob, check_nodes, with_partition

    if request.partition is None:
        _, profile = with_partition(request, loaded, detected, Picker(first_option))
        loaded = replace(loaded, profile=profile)
    check_nodes(ClusterJob(request, loaded.profile, facts))
    return Settled(request, loaded)


def settle_gpu_type(profile: Profile, sizes: str, surroundings: Surroundings) -> str | None:
    """Return the GPU type for any number of GPUs, however large.

    Returns:
        The type; None if the profile has at most one type.
    """
    request = JobRequest(script="true", gpus=GpuCount(count=1))
    if profile.gpu.type or not types_to_choose_from(profile, request):
        return None
    picker = Picker(surroundings.choose)
    type_ = picker.pick(
        _type_choice(
            list(profile.gpu.types), profile, "gpus", sizes, "the profile has several GPU types"
        )
    )
    _check_made(picker, profile.name)
    return type_


def _check_made(picker: Picker, profile: str) -> None:
    """Raise one error for all choices that were not made.

    Raises:
        UsageError: at least one choice was not made; the message names the flags.
    """
    if picker.unmade:
        values = [f"{made.key}={first_option(made)}" for made in picker.unmade]
        if profile == DETECTED:
            command: tuple[str, ...] = ("init",)
        else:
            command = ("profile", "set", profile, *values)
        raise UsageError(
            "\n".join(made.flags for made in picker.unmade),
            hint=f"for all your jobs: hpcrun {shlex.join(command)}",
        )


# --- the GPU type --------------------------------------------------------------------------------


def _with_gpu_type(
    request: JobRequest, profile: Profile, picker: Picker, sizes: str | None
) -> JobRequest:
    types = types_to_choose_from(profile, request)
    if (
        not types
        or profile.gpu.type
        or (request.gpus is None and request.gpus_per_node is None and request.nodes)
    ):
        return request
    if request.gpus is None and request.gpus_per_node is None:
        request = request.model_copy(update={"gpus": GpuCount(count=1)})
    fitting = [type_ for type_ in types if _fits_on(type_, request, profile)]
    if not fitting:
        entries = ((type_, profile.gpu.types[type_]) for type_ in types)
        has = ", ".join(
            f"{type_} {e.nodes or '?'} × {e.per_node or profile.gpu.per_node}"
            for type_, e in entries
        )
        raise PlanError(
            f"no GPU type of profile {profile.name!r} has {_asked(request)}; nodes × GPUs of a job "
            f"are at most: {has}",
            hint=_room(request, profile),
        )
    if len(fitting) == 1:
        return naming_gpu_type(request, fitting[0])
    name, gpus = (
        ("gpus", request.gpus) if request.gpus else ("gpus-per-node", request.gpus_per_node)
    )
    number = sizes or str(gpus.count if gpus else 1)
    reason = f"several GPU types have {_asked(request)}"
    return naming_gpu_type(
        request, picker.pick(_type_choice(fitting, profile, name, number, reason))
    )


def _type_choice(
    types: Sequence[str], profile: Profile, option: str, number: str, reason: str
) -> Choice:
    """Return the choice between GPU types; the default is the one with the most GPUs."""
    entries = [profile.gpu.types[type_] for type_ in types]
    totals = [_total(entry, profile) for entry in entries]
    options = tuple(
        Option(type_, f"--{option} {type_}:{number}", _about_type(entry, profile))
        for type_, entry in zip(types, entries, strict=True)
    )
    return Choice("GPU type", "gpu.type", reason, options, totals.index(max(totals)))


def _fits_on(type_: str, request: JobRequest, profile: Profile) -> bool:
    """Whether the job fits the nodes with GPUs of a type."""
    named = naming_gpu_type(request, type_)
    typed = for_gpu_type(profile, named)
    try:
        return decide_shape(named, typed).nodes <= (typed.gpu.nodes or 10**9)
    except PlanError:
        return False


def _room(request: JobRequest, profile: Profile) -> str:
    """Return the hint for too many GPUs of a type: another type, more nodes, or fewer GPUs."""
    each = request.gpus_per_node
    if each:
        total = each.count * (request.nodes or 1)
    elif request.gpus:
        total = request.gpus.count
    else:
        total = 1
    if request.roles:  # their sizes are the nodes
        return "write smaller sizes behind --role, or choose another partition"
    options = types_with_room(profile, total)
    if options:
        return f"name a type and the nodes: {options[0]}"
    total, type_ = max(
        (_total(entry, profile), type_) for type_, entry in profile.gpu.types.items()
    )
    return f"request less: --gpus {type_}:{total} --nodes {profile.gpu.types[type_].nodes or 1}"


def _total(entry: GpuTypeSection, profile: Profile) -> int:
    return (entry.nodes or 1) * (entry.per_node or profile.gpu.per_node)


def _asked(request: JobRequest) -> str:
    if request.gpus_per_node:
        return f"{request.nodes or 1} × {request.gpus_per_node.count} GPUs"
    gpus = count(request.gpus.count if request.gpus else 1, "GPU")
    if request.nodes and request.nodes > 1:
        return f"{gpus} on {request.nodes} nodes"
    return gpus


def _about_type(entry: GpuTypeSection, profile: Profile) -> str:
    per_node = entry.per_node or profile.gpu.per_node
    if entry.nodes:
        nodes = f"{count(entry.nodes, 'node')} × {per_node}"
    else:
        nodes = f"{per_node} per node"
    partition = entry.partition or profile.partition
    if entry.card.memory_gb:
        memory = f"{entry.card.memory_gb} GB each"
    else:
        memory = ""
    return ", ".join(filter(None, (nodes, memory, f"partition {partition}" if partition else "")))
