"""The choices that a detected cluster leaves open besides the GPU type: partition, account, QOS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcrun.actions.profiles.detect_types import (
    accounts_of,
    offer_in,
    partitions_without_gpus,
    rank,
    share,
    why_closed,
)
from hpcrun.actions.user_choice import Choice, Option, Picker
from hpcrun.errors import PlanError
from hpcrun.job.profile_model import CpuSection, GpuSection, MemorySection, Profile, TimeSection
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.shape import GpuSize, decide_size, for_gpu_type
from hpcrun.job.text.units import format_time
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import LoadedProfile
from hpcrun.profiles.yaml_file import Key
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, Partition

# limit of a QOS → for whom it limits the GPUs; empty for the time
_LIMITS = {
    "gpus_per_job": "one job",
    "gpus_per_user": "one user at the same time",
    "gpus_in_all": "all its users together",
    "max_s": "",
}
_QOS = "request less, or choose another QOS with --qos; `sacctmgr show qos` shows the limits"


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job on a detected cluster."""

    request: JobRequest
    loaded: LoadedProfile  # with the values of the job's partition
    typed: Profile  # the same for the job's type of GPUs
    size: GpuSize
    facts: ClusterFacts

    @property
    def partition(self) -> str | None:
        """The name of its partition, or several with commas; None for Slurm's default."""
        return self.request.partition or self.typed.partition

    @property
    def account(self) -> str | None:
        """The account that is named."""
        return self.request.account or self.typed.account

    @property
    def known_partition(self) -> Partition | None:
        """Its partition, None if Slurm does not list it."""
        return next((part for part in self.facts.partitions if part.name == self.partition), None)

    @property
    def enforced(self) -> set[str]:
        """What the cluster enforces: ``associations``, ``qos`` ..."""
        return set(self.facts.config.get("AccountingStorageEnforce", "").lower().split(",")) - {
            "",
            "none",
        }

    def associations(self, account: str | None) -> list[Association]:
        """Return the user's associations for its partition, and for an account if that is known."""
        mine = (
            each
            for each in self.facts.associations or ()
            if each.partition in (None, self.partition)
        )
        return [each for each in mine if account in (None, each.account)]

    def with_one(
        self, option: str, what: str, reason: str, values: Sequence[str], picker: Picker
    ) -> ClusterJob:
        """Return the job with one value of an option.

        The value is the only one, or the user picks one of several.
        """
        options = tuple(Option(value, f"--{option} {value}") for value in values)
        if len(values) == 1:
            value = values[0]
        else:
            value = picker.pick(Choice(what, option, reason, options))
        chosen: dict[str, Any] = {option: value}
        return replace(self, request=replace(self.request, **chosen))


def with_partition(job: ClusterJob, detected: Path, picker: Picker) -> ClusterJob:
    """Return the job with its partition; its profile has the values of the partition.

    Args:
        job: the job, with the profile as it was loaded.
        detected: the file of the detected profile.
        picker: asks the user if several partitions fit.
    """
    name = job.request.partition
    if name is None and _is_detected(job.loaded, (*_type_key(job), "partition"), detected):
        fitting = _fitting_partitions(job)
        default = [part for part in fitting if part.default]
        if fitting and (default or len(fitting) == 1 or not job.size.gpus_per_node):
            name = (default or fitting)[0].name
        elif fitting:
            name = picker.pick(_partition_choice(fitting, job.typed))
            job = replace(job, request=replace(job.request, partition=name))
    partition = next((part for part in job.facts.partitions if part.name == name), None)
    if partition is None or name == job.typed.partition:
        return job
    profile = _in_partition(job, partition, detected)
    typed = for_gpu_type(profile, job.request)
    # nodes of this partition may have more GPUs: then the job needs fewer of them
    size = decide_size(job.request, typed)
    return replace(job, loaded=replace(job.loaded, profile=profile), typed=typed, size=size)


def _type_key(job: ClusterJob) -> Key:
    """Return the key of the section that names the partition of the job's GPU type.

    The key is empty if the partition is the profile's own.
    """
    if not job.size.gpus_per_node:
        return ()
    type_ = job.size.gpu_type or ""
    entry = job.typed.gpu.types.get(type_)
    return ("gpu", "types", type_) if entry and entry.partition else ()


def _fitting_partitions(job: ClusterJob) -> list[Partition]:
    """Return the partitions in which a job can run, the best first.

    A job without GPUs gets the partitions without GPUs, the profile's own first. A partition in
    which jobs are preempted is left out if there is another one.
    """
    facts = job.facts
    time_s = job.request.walltime_s or job.typed.time.default
    fitting = [
        part
        for part in facts.partitions
        if why_closed(part, facts, job.account) is None
        and job.size.nodes <= min(_nodes_with(part, job), part.max_nodes or 10**9)
        and (part.max_s is None or time_s is None or time_s <= part.max_s)
    ]
    if not job.size.gpus_per_node:
        free = partitions_without_gpus(facts)
        fitting = [part for part in fitting if part.name in free] or fitting
        fitting = [part for part in fitting if part.name == job.typed.partition] or fitting
    fitting = [part for part in fitting if part.preempted is None] or fitting
    return sorted(fitting, key=lambda part: rank(part, facts, job.account))


def _nodes_with(partition: Partition, job: ClusterJob) -> int:
    """Return how many nodes of a partition have what the job needs on each node.

    Compared are each node's GPUs of the wanted type, its CPUs and its memory.
    """
    size = job.size
    cpus = job.request.cpus or 1
    memory_mb = job.request.memory_mb or 0  # 0: all of a node's memory, however large
    nodes = 0
    for kind in job.facts.kinds:
        if kind.partition != partition.name:
            continue
        gpus = sum(count for type_, count in kind.gpus if size.gpu_type in (None, type_))
        has_cpus = kind.cpus is None or kind.cpus >= cpus
        has_memory = kind.memory_mb is None or kind.memory_mb >= memory_mb
        if gpus >= size.gpus_per_node and has_cpus and has_memory:
            nodes += kind.nodes
    return nodes


def _partition_choice(fitting: Sequence[Partition], typed: Profile) -> Choice:
    options = [
        Option(
            part.name,
            f"-p {part.name}",
            f"up to {format_time(part.max_s)}" if part.max_s else "no time limit",
        )
        for part in fitting
    ]
    if typed.gpu.type in typed.gpu.types:
        key = f"gpu.types.{typed.gpu.type}.partition"
    else:
        key = "partition"
    return Choice(
        "partition",
        key,
        "the job fits several partitions, and none is Slurm's default",
        tuple(options),
    )


def _is_detected(loaded: LoadedProfile, key: Key, detected: Path) -> bool:
    """Whether no file of a user sets this value, or any value of this section."""
    files = {origin.path for known, origin in loaded.origins.items() if known[: len(key)] == key}
    return all(
        file == detected or file.is_relative_to(shipped_folder("cluster_profiles"))
        for file in files
    )


def _in_partition(job: ClusterJob, partition: Partition, detected: Path) -> Profile:
    """Return the profile with the values of another partition; values from a user's file stay."""
    profile = job.loaded.profile
    facts = job.facts
    gpus = job.size.gpus_per_node
    type_ = job.size.gpu_type
    kinds = [kind for kind in facts.kinds if kind.partition == partition.name]
    gpu: dict[str, Any] = {}
    if not gpus:
        cpus = share([(kind.cpus, 0) for kind in kinds], "CPUs")
        memory = share([(kind.memory_mb, 0) for kind in kinds], "MB")
    elif any(type_ in dict(kind.gpus) for kind in kinds):
        offer = offer_in(partition, type_, facts)
        cpus, memory, gpu = (
            offer.cpus,
            offer.memory_mb,
            {"nodes": offer.nodes or None, "per_node": offer.per_node},
        )
    else:  # sbatch says it best
        return profile
    default_s = partition.default_s or profile.time.default
    sections: dict[str, Any] = {
        "cpu": CpuSection(per_node=cpus.per_node, per_gpu=cpus.per_gpu) if cpus else CpuSection(),
        "memory": MemorySection(per_node=memory.per_node, per_gpu=memory.per_gpu)
        if memory
        else MemorySection(),
        "time": TimeSection(
            default=min(filter(None, (default_s, partition.max_s)), default=None),
            max=partition.max_s,
        ),
    }
    of_type = bool(gpus) and type_ in profile.gpu.types
    prefix = ("gpu", "types", type_ or "") if of_type else ()
    changed: dict[str, Any] = {
        name: new
        for name, new in sections.items()
        if _is_detected(job.loaded, (*prefix, name), detected)
    }
    changed |= {"partition": partition.name}
    if of_type:
        entry = profile.gpu.types[type_ or ""].model_copy(update={**changed, **gpu})
        types = {**profile.gpu.types, type_ or "": entry}
        return profile.model_copy(update={"gpu": profile.gpu.model_copy(update={"types": types})})
    if not gpus and partition.name in partitions_without_gpus(facts):
        return profile.model_copy(update={**changed, "gpu": GpuSection()})
    return profile.model_copy(update={**changed, "gpu": profile.gpu.model_copy(update=gpu)})


# --- account and QOS -----------------------------------------------------------------------------


def with_account(job: ClusterJob, picker: Picker) -> ClusterJob:
    """Return the job with the account to charge.

    The account is the only one for the partition, or Slurm's default.
    """
    if job.account or not job.enforced:
        return job
    partition = job.known_partition
    default = job.facts.default_account
    accounts = sorted({each.account for each in job.associations(None)})
    fitting = [
        one
        for one in accounts
        if partition is None or why_closed(partition, job.facts, one) is None
    ]
    if not fitting:
        return job
    fitting = [default] if default in fitting else fitting
    return job.with_one("account", "account", "you have several accounts", fitting, picker)


def with_qos(job: ClusterJob, picker: Picker) -> ClusterJob:
    """Return the job with a QOS, if Slurm's default QOS for this user cannot be used.

    The default cannot be used if it does not exist or is not for the partition.
    """
    if job.request.qos or job.typed.qos or not {"qos", "all"} & job.enforced:
        return job
    mine = job.associations(job.account or job.facts.default_account)
    partition = job.known_partition
    allowed = sorted({qos for each in mine for qos in each.qos})
    if partition is not None:
        allowed = [qos for qos in allowed if not partition.qos or qos in partition.qos]
        allowed = [qos for qos in allowed if qos not in partition.denied_qos]
    # without a default of its own an association has "normal" (slurmctld, job_mgr.c)
    if not allowed or {each.default_qos or "normal" for each in mine} & set(allowed):
        return job
    reason = (
        f"partition {job.partition} takes several of your qualities of service, and none is "
        "your default"
    )
    return job.with_one("qos", "QOS", reason, allowed, picker)


def check_qos_limits(job: ClusterJob) -> None:
    """Refuse a job that a QOS limit will never let start.

    The limit is one of the partition's own QOS, or else one of the job's QOS.

    Raises:
        PlanError: the job has more GPUs or a longer time than a QOS allows.
    """
    if not {"limits", "safe", "all"} & job.enforced:
        return
    request, typed, partition = job.request, job.typed, job.known_partition
    gpus = job.size.gpus
    time_s = request.walltime_s or typed.time.default
    mine = job.associations(job.account or job.facts.default_account)
    qos = (
        request.qos
        or typed.qos
        or next((each.default_qos for each in mine if each.default_qos), "normal")
    )
    known = {limits.name: limits for limits in job.facts.qos}
    names = [partition.own_qos if partition else None, qos]
    if qos in known and known[qos].over_partition:
        names.reverse()
    order = [known[name] for name in names if name in known]
    for limit, whom in _LIMITS.items():
        limits = next((each for each in order if getattr(each, limit) is not None), None)
        most = getattr(limits, limit, None)
        if limits is None or most is None:
            continue
        if whom and gpus > most:
            raise PlanError(
                f"{gpus} GPUs are more than the {most} that QOS {limits.name} allows {whom}",
                hint=_QOS,
            )
        if not whom and time_s is not None and time_s > most:
            option = "--time" if request.walltime_s else "the default time"
            allows = f"the {format_time(most)} that QOS {limits.name} allows"
            raise PlanError(f"{option} {format_time(time_s)} is longer than {allows}", hint=_QOS)


def check_nodes(job: ClusterJob) -> None:
    """Refuse a job of more nodes than its partition has: Slurm may accept it and never start it.

    Where the profile knows how many nodes have its GPUs, the plan is refused with their number,
    which is smaller.

    Raises:
        PlanError: the partition does not give a job this number of nodes.
    """
    facts, typed, partition = job.facts, job.typed, job.known_partition
    nodes = job.size.nodes

    def most_nodes(part: Partition) -> int:
        return min(
            sum(kind.nodes for kind in facts.kinds if kind.partition == part.name),
            part.max_nodes or 10**9,
        )

    of_profile = typed.gpu.nodes is not None and job.partition == typed.partition
    with_gpus = job.size.gpus_per_node and of_profile
    if partition is None or nodes <= most_nodes(partition) or with_gpus:
        return
    larger = [part for part in facts.partitions if nodes <= most_nodes(part)]
    best = min(larger, key=lambda part: rank(part, facts, job.account), default=None)
    raise PlanError(
        f"{nodes} nodes are more than the {most_nodes(partition)} that partition {partition.name} "
        "gives a job",
        hint=f"use --partition {best.name}: up to {most_nodes(best)}"
        if best
        else f"use --nodes {most_nodes(partition)}",
    )


def detected_note(job: ClusterJob) -> str:
    """Return one line with the detected values, and how to keep or change them."""
    facts, name, account, partition = job.facts, job.partition, job.account, job.known_partition
    default = " (the default)" if partition and partition.default else ""
    taken = [f"partition {name}{default}" if name else "the default partition"]
    if account:
        is_default = account == facts.default_account and len(accounts_of(facts)) > 1
        remark = " (your default in Slurm)" if is_default else ""
        taken.append(f"account {account}{remark}")
    if job.request.qos:
        taken.append(f"qos {job.request.qos}")
    cluster = facts.config.get("ClusterName", "this one")
    return f"detected the cluster {cluster}: {', '.join(taken)}; keep or change it with hpcrun init"
