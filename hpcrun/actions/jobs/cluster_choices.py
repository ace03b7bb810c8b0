"""The choices that a detected cluster leaves open besides the GPU type: partition, account, QOS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcrun.actions.ports import Choice, Option, Picker
from hpcrun.actions.profiles.detect_types import (
    accounts_of,
    offer_in,
    partitions_without_gpus,
    rank,
    share,
    why_closed,
)
from hpcrun.actions.profiles.detected import DetectedProfile
from hpcrun.errors import PlanError
from hpcrun.job.profile import CpuSection, GpuSection, MemorySection, Profile, TimeSection
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import Shape, decide_shape, for_gpu_type
from hpcrun.job.units import format_time
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import LoadedProfile
from hpcrun.profiles.yaml_file import Key
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, Partition, QosLimits

_LIMITS = ("gpus_per_job", "gpus_per_user", "gpus_in_all", "max_s")
_QOS = "request less, or choose another QOS with --qos; `sacctmgr show qos` shows the limits"


def with_partition(
    request: JobRequest, loaded: LoadedProfile, detected: DetectedProfile, picker: Picker
) -> tuple[JobRequest, Profile]:
    """Return the request, and the profile with the values of the job's partition."""
    facts, typed = detected.facts, for_gpu_type(loaded.profile, request)
    shape = decide_shape(request, typed)
    name = request.partition
    entry = typed.gpu.types.get(shape.gpu_type or "") if shape.gpus_per_node else None
    of_type = ("gpu", "types", shape.gpu_type or "") if entry and entry.partition else ()
    if name is None and _is_detected(loaded, (*of_type, "partition"), detected.path):
        fitting = _fitting_partitions(request, typed, shape, facts)
        default = [part for part in fitting if part.default]
        if fitting and (default or len(fitting) == 1 or not shape.gpus_per_node):
            name = (default or fitting)[0].name
        elif fitting:
            name = picker.pick(_partition_choice(fitting, typed))
            request = request.model_copy(update={"partition": name})
    partition = next((part for part in facts.partitions if part.name == name), None)
    if partition is None or name == typed.partition:
        return request, loaded.profile
    return request, _in_partition(loaded, shape, partition, detected)


def _fitting_partitions(request: JobRequest, profile: Profile, shape: Shape, facts: ClusterFacts) -> list[Partition]:
    """Return the partitions in which a job can run, the best first.

    A job without GPUs gets the partitions without GPUs, the profile's own first. A partition in which jobs are
    preempted is left out if there is another one.
    """
    time_s = request.walltime_s or profile.time.default
    account = request.account or profile.account
    fitting = [
        part
        for part in facts.partitions
        if why_closed(part, facts, account) is None
        and shape.nodes <= min(_nodes_with(part, shape, request, facts), part.max_nodes or 10**9)
        and (part.max_s is None or time_s is None or time_s <= part.max_s)
    ]
    if not shape.gpus_per_node:
        free = partitions_without_gpus(facts)
        fitting = [part for part in fitting if part.name in free] or fitting
        fitting = [part for part in fitting if part.name == profile.partition] or fitting
    fitting = [part for part in fitting if part.preempted is None] or fitting
    return sorted(fitting, key=lambda part: rank(part, facts, account))


def _nodes_with(partition: Partition, shape: Shape, request: JobRequest, facts: ClusterFacts) -> int:
    """Return how many nodes of a partition have the GPUs, CPUs and memory that the job needs on each node."""
    nodes = 0
    for kind in facts.kinds:
        gpus = sum(count for type_, count in kind.gpus if shape.gpu_type in (None, type_))
        enough = gpus >= shape.gpus_per_node and (kind.cpus is None or kind.cpus >= (request.cpus or 1))
        nodes += kind.nodes if kind.partition == partition.name and enough else 0
    return nodes


def _partition_choice(fitting: Sequence[Partition], typed: Profile) -> Choice:
    options = [
        Option(part.name, f"-p {part.name}", f"up to {format_time(part.max_s)}" if part.max_s else "no time limit")
        for part in fitting
    ]
    key = f"gpu.types.{typed.gpu.type}.partition" if typed.gpu.type in typed.gpu.types else "partition"
    return Choice("partition", key, "the job fits several partitions, and none is Slurm's default", tuple(options))


def _is_detected(loaded: LoadedProfile, key: Key, detected: Path) -> bool:
    """Whether no file of a user sets this value, or any value of this section."""
    files = {origin.path for known, origin in loaded.origins.items() if known[: len(key)] == key}
    return all(file == detected or file.is_relative_to(shipped_folder("cluster_profiles")) for file in files)


def _in_partition(loaded: LoadedProfile, shape: Shape, partition: Partition, detected: DetectedProfile) -> Profile:
    """Return the profile with the values of another partition; values from a user's file stay."""
    profile, facts, type_ = loaded.profile, detected.facts, shape.gpu_type
    kinds = [kind for kind in facts.kinds if kind.partition == partition.name]
    gpu: dict[str, Any] = {}
    if not shape.gpus_per_node:
        cpus = share([(kind.cpus, 0) for kind in kinds], "CPUs")
        memory = share([(kind.memory_mb, 0) for kind in kinds], "MB")
    elif any(type_ in dict(kind.gpus) for kind in kinds):
        offer = offer_in(partition, type_, facts)
        cpus, memory, gpu = offer.cpus, offer.memory_mb, {"nodes": offer.nodes or None, "per_node": offer.per_node}
    else:  # sbatch says it best
        return profile
    default_s = partition.default_s or profile.time.default
    sections: dict[str, Any] = {
        "cpu": CpuSection(per_node=cpus.per_node, per_gpu=cpus.per_gpu) if cpus else CpuSection(),
        "memory": MemorySection(per_node=memory.per_node, per_gpu=memory.per_gpu) if memory else MemorySection(),
        "time": TimeSection(default=min(filter(None, (default_s, partition.max_s)), default=None), max=partition.max_s),
    }
    of_type = bool(shape.gpus_per_node) and type_ in profile.gpu.types
    prefix = ("gpu", "types", type_ or "") if of_type else ()
    changed: dict[str, Any] = {
        name: new for name, new in sections.items() if _is_detected(loaded, (*prefix, name), detected.path)
    }
    changed |= {"partition": partition.name}
    if of_type:
        entry = profile.gpu.types[type_ or ""].model_copy(update={**changed, **gpu})
        types = {**profile.gpu.types, type_ or "": entry}
        return profile.model_copy(update={"gpu": profile.gpu.model_copy(update={"types": types})})
    if not shape.gpus_per_node and partition.name in partitions_without_gpus(facts):
        return profile.model_copy(update={**changed, "gpu": GpuSection()})
    return profile.model_copy(update={**changed, "gpu": profile.gpu.model_copy(update=gpu)})


# --- account and QOS --------------------------------------------------------------------------------------------


def _enforced(facts: ClusterFacts) -> set[str]:
    """Return what the cluster enforces: ``associations``, ``qos`` ..."""
    return set(facts.config.get("AccountingStorageEnforce", "").lower().split(",")) - {"", "none"}


def _associations(request: JobRequest, profile: Profile, facts: ClusterFacts) -> list[Association]:
    """Return the user's associations for a job: those of its partition, and of its account if that is known."""
    name, account = _partition_of(request, profile), request.account or profile.account or facts.default_account
    mine = (each for each in facts.associations or () if each.partition in (None, name))
    return [each for each in mine if account in (None, each.account)]


def with_account(request: JobRequest, profile: Profile, facts: ClusterFacts, picker: Picker) -> JobRequest:
    """Return the request with the account to charge: the only one for the partition, or Slurm's default."""
    name = _partition_of(request, profile)
    if request.account or profile.account or not _enforced(facts):
        return request
    partition = next((part for part in facts.partitions if part.name == name), None)
    accounts = sorted({each.account for each in facts.associations or () if each.partition in (None, name)})
    fitting = [one for one in accounts if partition is None or why_closed(partition, facts, one) is None]
    if not fitting:
        return request
    if facts.default_account in fitting:
        fitting = [facts.default_account]
    if len(fitting) == 1:
        return request.model_copy(update={"account": fitting[0]})
    options = tuple(Option(one, f"--account {one}") for one in fitting)
    choice = Choice("account", "account", "you have several accounts", options)
    return request.model_copy(update={"account": picker.pick(choice)})


def with_qos(request: JobRequest, profile: Profile, facts: ClusterFacts, picker: Picker) -> JobRequest:
    """Return the request with a QOS, if Slurm's default for this user does not exist or is not for the partition."""
    name = _partition_of(request, profile)
    if request.qos or for_gpu_type(profile, request).qos or not {"qos", "all"} & _enforced(facts):
        return request
    mine = _associations(request, profile, facts)
    partition = next((part for part in facts.partitions if part.name == name), None)
    allowed = sorted({qos for each in mine for qos in each.qos})
    if partition is not None:
        allowed = [qos for qos in allowed if not partition.qos or qos in partition.qos]
        allowed = [qos for qos in allowed if qos not in partition.denied_qos]
    # without a default of its own an association has "normal" (slurmctld, job_mgr.c)
    defaults = {each.default_qos or "normal" for each in mine}
    if not allowed or defaults & set(allowed):
        return request
    if len(allowed) == 1:
        return request.model_copy(update={"qos": allowed[0]})
    reason = f"partition {name} takes several of your qualities of service, and none is your default"
    options = tuple(Option(qos, f"--qos {qos}") for qos in allowed)
    return request.model_copy(update={"qos": picker.pick(Choice("QOS", "qos", reason, options))})


def check_qos_limits(request: JobRequest, profile: Profile, facts: ClusterFacts) -> None:
    """Refuse a job that a QOS limit will never let start."""
    if not {"limits", "safe", "all"} & _enforced(facts):
        return
    typed = for_gpu_type(profile, request)
    gpus, time_s = decide_shape(request, typed).gpus, request.walltime_s or typed.time.default
    for limits in _limits_of(request, typed, facts):
        most = (
            (limits.gpus_per_job, "one job"),
            (limits.gpus_per_user, "one user at the same time"),
            (limits.gpus_in_all, "all its users together"),
        )
        for number, whom in most:
            if number is not None and gpus > number:
                raise PlanError(
                    f"{gpus} GPUs are more than the {number} that QOS {limits.name} allows {whom}", hint=_QOS
                )
        if limits.max_s is not None and time_s is not None and time_s > limits.max_s:
            option = "--time" if request.walltime_s else "the default time"
            longest = format_time(limits.max_s)
            raise PlanError(
                f"{option} {format_time(time_s)} is longer than the {longest} that QOS {limits.name} allows",
                hint=f"add --time {longest}, or choose another QOS with --qos; `sacctmgr show qos` shows the limits",
            )


def check_nodes(request: JobRequest, profile: Profile, facts: ClusterFacts) -> None:
    """Refuse a job of more nodes than its partition has: Slurm may accept it and never start it.

    Where the profile knows how many nodes have its GPUs, the plan is refused with their number, which is smaller.
    """
    typed = for_gpu_type(profile, request)
    name, shape = request.partition or typed.partition, decide_shape(request, typed)
    nodes = shape.nodes
    sizes = {
        part.name: min(sum(kind.nodes for kind in facts.kinds if kind.partition == part.name), part.max_nodes or 10**9)
        for part in facts.partitions
    }
    with_gpus = shape.gpus_per_node and typed.gpu.nodes is not None and name == typed.partition
    if name not in sizes or nodes <= sizes[name] or with_gpus:
        return
    larger = [part for part in facts.partitions if nodes <= sizes[part.name]]
    best = min(larger, key=lambda part: rank(part, facts, request.account or profile.account), default=None)
    raise PlanError(
        f"{nodes} nodes are more than the {sizes[name]} that partition {name} gives a job",
        hint=f"use --partition {best.name}: up to {sizes[best.name]}" if best else f"use --nodes {sizes[name]}",
    )


def _limits_of(request: JobRequest, typed: Profile, facts: ClusterFacts) -> list[QosLimits]:
    """Return the limits of a job: those of the partition's own QOS, and what these leave open of the job's QOS."""
    known = {limits.name: limits for limits in facts.qos}
    name, mine = request.partition or typed.partition, _associations(request, typed, facts)
    qos = request.qos or typed.qos or next((each.default_qos for each in mine if each.default_qos), "normal")
    of_partition = next((known.get(part.own_qos or "") for part in facts.partitions if part.name == name), None)
    of_job = known.get(qos)
    if of_partition is None or of_job is None:
        return [limits for limits in (of_partition, of_job) if limits]
    first, second = (of_job, of_partition) if of_job.over_partition else (of_partition, of_job)
    unset: dict[str, Any] = {limit: None for limit in _LIMITS if getattr(first, limit) is not None}
    return [first, replace(second, **unset)]


def _partition_of(request: JobRequest, profile: Profile) -> str | None:
    return request.partition or for_gpu_type(profile, request).partition


def closed_partition_note(request: JobRequest, profile: Profile, facts: ClusterFacts) -> str | None:
    """Return why Slurm may refuse the job in its partition, or let it wait; None if one of its partitions is open."""
    names = (_partition_of(request, profile) or "").split(",")
    if names == [""] or not facts.partitions or facts.user == "root":
        return None
    account = request.account or profile.account
    known, reasons = {part.name: part for part in facts.partitions}, []
    for name in names:
        # without --all Slurm lists no hidden partition, and none that is for other groups
        why = why_closed(known[name], facts, account) if name in known else "Slurm does not list it for you"
        if why is None:
            return None
        reasons.append(f"partition {name}: {why}")
    free = [part.name for part in facts.partitions if why_closed(part, facts, account) is None]
    words = f"{'; '.join(reasons)}. Slurm may refuse the job, or leave it pending"
    return words + (f"; open to you: {', '.join(free)}" if free else "")


def detected_note(request: JobRequest, profile: Profile, facts: ClusterFacts) -> str:
    """Return one line with the detected values, and how to keep or change them."""
    name = _partition_of(request, profile)
    default = any(part.default and part.name == name for part in facts.partitions)
    taken = [f"partition {name}" + (" (the default)" if default else "") if name else "the default partition"]
    account = request.account or profile.account
    is_default = account == facts.default_account and len(accounts_of(facts)) > 1
    taken += [f"account {account}" + (" (your default in Slurm)" if is_default else "")] if account else []
    taken += [f"qos {request.qos}"] if request.qos else []
    cluster = facts.config.get("ClusterName", "this one")
    return f"detected the cluster {cluster}: {', '.join(taken)}; keep or change it with hpcrun init"
