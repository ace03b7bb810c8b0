"""The defaults of a job, then the choices that its profile leaves open.

The defaults come from SBATCH_* and the configuration. The choices are GPU type, partition, account
and QOS; the last three are open only on a detected cluster. If one option fits, hpcrun takes it.
Else it asks the user at the terminal; without a terminal, one error names the options with the
exact flags.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpcrun.actions.user_choice import Choice, Option, Picker, first_option
from hpcrun.errors import PlanError, SchedulerError, UsageError
from hpcrun.job.batch.sbatch_input import apply_sbatch_env
from hpcrun.job.profile_model import GpuTypeSection, Profile
from hpcrun.job.request.job_request import GpuCount, JobRequest
from hpcrun.job.resources.shape import (
    GpuSize,
    decide_size,
    for_gpu_type,
    naming_gpu_type,
    types_to_choose_from,
    types_with_room,
)
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.load import LoadedProfile

if TYPE_CHECKING:  # only a detected profile has them
    from hpcrun.actions.jobs.partition_and_account import ClusterJob
    from hpcrun.actions.ports import Surroundings
    from hpcrun.actions.profiles.detected import DetectedProfile
    from hpcrun.schedulers.cluster_facts import ClusterFacts


@dataclass(frozen=True, slots=True)
class Settled:
    """A request with all of its defaults and choices."""

    request: JobRequest
    loaded: LoadedProfile  # on a detected cluster, with the values of the job's partition
    gpu_profile: Profile  # the profile for the GPU type of the request
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> GpuSize:
        """The nodes and GPUs of the job; a launcher that the user typed may still change them.

        Raises:
            PlanError, UsageError: the options alone do not say the size.
        """
        return decide_size(self.request, self.gpu_profile)


def settle(
    request: JobRequest,
    loaded: LoadedProfile,
    surroundings: Surroundings,
    *,
    sizes: str | None = None,
) -> Settled:
    """Fill in the defaults of a request, then make the choices that are left open.

    Args:
        request: the request of the user.
        loaded: the profile of the job, with the file of each value.
        surroundings: gives the environment, the configuration and the detected profile, and asks
            the user.
        sizes: what was typed as --gpus, if the request is one of several sizes.
    """
    filled, notes = with_defaults(request, loaded.profile, surroundings)
    if loaded.profile.scheduler != "slurm":
        return _settled(filled, loaded, notes)
    picker = Picker(surroundings.choose)
    detected = surroundings.detected
    named = _with_gpu_type(filled, loaded.profile, picker, sizes)
    if detected is not None and detected.shaped(loaded):
        return _on_cluster(_settled(named, loaded, notes), detected, picker)
    _check_made(picker, loaded.profile.name)
    settled = _settled(named, loaded, notes)
    if detected is None:
        return settled
    return _with_facts(settled, detected)


def _settled(request: JobRequest, loaded: LoadedProfile, notes: tuple[str, ...]) -> Settled:
    return Settled(request, loaded, for_gpu_type(loaded.profile, request), notes)


def with_defaults(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[JobRequest, tuple[str, ...]]:
    """Fill in values that the request of a Slurm job does not have, and return notes on them.

    The values come from SBATCH_*, then from the configuration; the profile comes after both.
    """
    if profile.scheduler != "slurm":
        return request, ()
    filled, notes = apply_sbatch_env(request, surroundings.env)
    config = surroundings.config
    walltime_s = config.walltime_s
    if walltime_s and profile.time.max:
        walltime_s = min(walltime_s, profile.time.max)  # only a default: within the limit
    configured = {"walltime_s": walltime_s, "account": config.account}
    missing: dict[str, Any] = {}
    for name, value in configured.items():
        if value and getattr(filled, name) is None:
            missing[name] = value
    return replace(filled, **missing), notes


def _on_cluster(settled: Settled, detected: DetectedProfile, picker: Picker) -> Settled:
    """Choose partition, account and QOS of a job on the detected cluster.

    Raises:
        UsageError: at least one choice was not made; the message names the flags.
        PlanError: the cluster has a limit that never lets the job start.
    """
    from hpcrun.actions.jobs.partition_and_account import (
        check_nodes,
        check_qos_limits,
        detected_note,
        with_account,
        with_partition,
        with_qos,
    )

    _check_says_gpus(settled, detected.facts)
    job = with_partition(_cluster_job(settled, detected.facts), detected.path, picker)
    chosen = with_qos(with_account(job, picker), picker)
    _check_made(picker, settled.loaded.profile.name)
    check_nodes(chosen)
    check_qos_limits(chosen)
    notes = settled.notes
    if settled.loaded.path == detected.path:
        notes += (detected_note(chosen),)
    return Settled(chosen.request, chosen.loaded, chosen.gpu_profile, notes)


def _check_says_gpus(settled: Settled, facts: ClusterFacts) -> None:
    """Check that a job says its GPUs where Slurm does not show whether nodes have some.

    Raises:
        UsageError: the job does not say it.
    """
    request = settled.request
    is_said = request.gpus or request.gpus_per_node or request.roles
    if is_said or facts.kinds is not None or settled.gpu_profile.gpu.per_node is not None:
        return
    raise UsageError(
        "the job does not say how many GPUs it needs, and Slurm does not show you what its nodes "
        "have",
        hint=f"add {spell('gpus', 'N')}, or {spell('gpus', 0)} for a CPU job",
    )


def _with_facts(settled: Settled, detected: DetectedProfile) -> Settled:
    """Note a limit of a named QOS, and choose the partition of a job without GPUs.

    A partition that a user's file names stays.
    """
    names_qos = bool(settled.request.qos or settled.gpu_profile.qos)
    try:
        has_gpus = bool(settled.size.gpus_per_node)
        if has_gpus and not names_qos:
            return settled
        facts = detected.facts
    except (SchedulerError, PlanError):
        # Slurm does not respond: the profile's partition. The plan refuses a wrong size.
        return settled
    from hpcrun.actions.jobs.partition_and_account import (
        check_nodes,
        check_qos_limits,
        with_partition,
    )

    if names_qos:
        try:
            check_qos_limits(_cluster_job(settled, facts))
        except PlanError as error:  # only a note: the facts may be an hour old
            note = f"this job never starts: {error.message}"
            settled = replace(settled, notes=(*settled.notes, note))
    if has_gpus:
        return settled
    job = _cluster_job(settled, facts)
    if settled.request.partition is None:
        job = with_partition(job, detected.path, Picker(first_option))
    check_nodes(job)
    return replace(settled, loaded=job.loaded, gpu_profile=job.gpu_profile)


def _cluster_job(settled: Settled, facts: ClusterFacts) -> ClusterJob:
    from hpcrun.actions.jobs.partition_and_account import ClusterJob

    return ClusterJob(settled.request, settled.loaded, settled.gpu_profile, settled.size, facts)


def settle_gpu_type(profile: Profile, sizes: str, surroundings: Surroundings) -> str | None:
    """Return the GPU type for any number of GPUs, however large.

    Returns:
        The type; None if the profile has at most one type.
    """
    request = JobRequest(script="true", gpus=GpuCount(count=1))
    if profile.gpu.type or not types_to_choose_from(profile, request):
        return None
    picker = Picker(surroundings.choose)
    reason = "the profile has several GPU types"
    choice = _type_choice(list(profile.gpu.types), profile, "gpus", sizes, reason)
    type_ = picker.pick(choice)
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
    """Return the request with one of the profile's GPU types, if it has to name one.

    Raises:
        PlanError: no type has as many GPUs.
    """
    types = types_to_choose_from(profile, request)
    if not types or profile.gpu.type:
        return request
    if request.gpus is None and request.gpus_per_node is None:
        if request.nodes:
            return request
        request = replace(request, gpus=GpuCount(count=1))
    fitting = [type_ for type_ in types if _fits_on(type_, request, profile)]
    if not fitting:
        raise PlanError(
            f"no GPU type of profile {profile.name!r} has {_asked(request)}; nodes × GPUs of a job "
            f"are at most: {_sizes_of(types, profile)}",
            hint=_room(request, profile),
        )
    if len(fitting) == 1:
        return naming_gpu_type(request, fitting[0])
    option = "gpus" if request.gpus else "gpus-per-node"
    gpus = request.gpus or request.gpus_per_node
    number = sizes or str(gpus.count if gpus else 1)
    reason = f"several GPU types have {_asked(request)}"
    choice = _type_choice(fitting, profile, option, number, reason)
    return naming_gpu_type(request, picker.pick(choice))


def _sizes_of(types: Sequence[str], profile: Profile) -> str:
    """Return the nodes and the GPUs per node of each GPU type, as text."""
    sizes = []
    for type_ in types:
        entry = profile.gpu.types[type_]
        per_node = entry.per_node or profile.gpu.per_node
        sizes.append(f"{type_} {entry.nodes or '?'} × {per_node}")
    return ", ".join(sizes)


def _type_choice(
    types: Sequence[str], profile: Profile, option: str, number: str, reason: str
) -> Choice:
    """Return the choice between GPU types; the default is the one with the most GPUs."""
    entries = [profile.gpu.types[type_] for type_ in types]
    totals = [_total(entry, profile) for entry in entries]
    options = []
    for type_, entry in zip(types, entries, strict=True):
        flag = f"--{option} {type_}:{number}"
        options.append(Option(type_, flag, _about_type(entry, profile)))
    return Choice("GPU type", "gpu.type", reason, tuple(options), totals.index(max(totals)))


def _fits_on(type_: str, request: JobRequest, profile: Profile) -> bool:
    """Whether the job fits the nodes with GPUs of a type."""
    named = naming_gpu_type(request, type_)
    gpu_profile = for_gpu_type(profile, named)
    try:
        return decide_size(named, gpu_profile).nodes <= (gpu_profile.gpu.nodes or 10**9)
    except PlanError:
        return False


def _room(request: JobRequest, profile: Profile) -> str:
    """Return the hint for too many GPUs of a type: another type, more nodes, or fewer GPUs."""
    if request.roles:  # their sizes are the nodes
        return "write smaller sizes behind --role, or choose another partition"
    if request.gpus_per_node:
        total = request.gpus_per_node.count * (request.nodes or 1)
    elif request.gpus:
        total = request.gpus.count
    else:
        total = 1
    options = types_with_room(profile, total)
    if options:
        return f"name a type and the nodes: {options[0]}"
    types = profile.gpu.types
    totals = [(_total(entry, profile), type_) for type_, entry in types.items()]
    most, largest = max(totals)
    gpus = spell("gpus", GpuCount(most, largest))
    return f"request less: {gpus} {spell('nodes', types[largest].nodes or 1)}"


def _total(entry: GpuTypeSection, profile: Profile) -> int:
    per_node = entry.per_node or profile.gpu.per_node or 0  # one of them is set
    return (entry.nodes or 1) * per_node


def _asked(request: JobRequest) -> str:
    if request.gpus_per_node:
        return f"{request.nodes or 1} × {request.gpus_per_node.count} GPUs"
    number = request.gpus.count if request.gpus else 1
    gpus = count(number, "GPU")
    if request.nodes and request.nodes > 1:
        return f"{gpus} on {request.nodes} nodes"
    return gpus


def _about_type(entry: GpuTypeSection, profile: Profile) -> str:
    per_node = entry.per_node or profile.gpu.per_node
    if entry.nodes:
        about = f"{count(entry.nodes, 'node')} × {per_node}"
    else:
        about = f"{per_node} per node"
    if entry.card.memory_gb:
        about += f", {entry.card.memory_gb} GB each"
    partition = entry.partition or profile.partition
    if partition:
        about += f", partition {partition}"
    return about
