"""The choices that a detected cluster leaves open besides the GPU type: partition, account, QOS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcrun.actions.profiles.detect_types import (
    Share,
    accounts_of,
    may_use,
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
from hpcrun.job.request.node_choice import fewest_of
from hpcrun.job.resources.shape import GpuSize, decide_size, for_gpu_type
from hpcrun.job.text.spelling import spell, spell_row
from hpcrun.job.text.units import format_time
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import LoadedProfile
from hpcrun.profiles.yaml_file import Key
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, Partition, QosLimits

# limit of a QOS → for whom it limits the GPUs
_GPU_LIMITS = {
    "gpus_per_job": "one job",
    "gpus_per_user": "one user at the same time",
    "gpus_in_all": "all its users together",
}
_QOS = "request less, or choose another QOS with --qos; `sacctmgr show qos` shows the limits"


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job on a detected cluster."""

    request: JobRequest
    loaded: LoadedProfile  # with the values of the job's partition
    gpu_profile: Profile  # the same for the job's type of GPUs
    size: GpuSize
    facts: ClusterFacts

    @property
    def fewest_nodes(self) -> int:
        """The nodes that it needs at least."""
        return fewest_of(self.size.nodes)

    @property
    def fewest_gpus(self) -> int:
        """The GPUs that it needs at least."""
        return self.fewest_nodes * self.size.gpus_per_node

    @property
    def partition(self) -> str | None:
        """The name of its partition, or several with commas; None for Slurm's default."""
        return self.request.partition or self.gpu_profile.partition

    @property
    def account(self) -> str | None:
        """The account that is named."""
        return self.request.account or self.gpu_profile.account

    @property
    def known_partition(self) -> Partition | None:
        """Its partition, None if Slurm does not list it."""
        return _partition_named(self.partition, self.facts)

    @property
    def enforced(self) -> set[str]:
        """What the cluster enforces: ``associations``, ``qos`` ..."""
        enforced = self.facts.config.get("AccountingStorageEnforce", "")
        return set(enforced.lower().split(",")) - {"", "none"}

    def associations(self, account: str | None) -> list[Association]:
        """Return the user's associations for its partition, and for an account if that is known."""
        mine = self.facts.associations or []
        here = [each for each in mine if each.partition in (None, self.partition)]
        return [each for each in here if account in (None, each.account)]

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
        defaults = [part for part in fitting if part.default]
        if defaults:
            name = defaults[0].name
        elif fitting and (len(fitting) == 1 or not job.size.gpus_per_node):
            name = fitting[0].name
        elif fitting:
            name = picker.pick(_partition_choice(fitting, job.gpu_profile))
            job = replace(job, request=replace(job.request, partition=name))
    partition = _partition_named(name, job.facts)
    if partition is None or name == job.gpu_profile.partition:
        return job
    profile = _in_partition(job, partition, detected)
    gpu_profile = for_gpu_type(profile, job.request)
    # nodes of this partition may have more GPUs: then the job needs fewer of them
    size = decide_size(job.request, gpu_profile)
    return replace(
        job, loaded=replace(job.loaded, profile=profile), gpu_profile=gpu_profile, size=size
    )


def _partition_named(name: str | None, facts: ClusterFacts) -> Partition | None:
    """Return a partition by its name; None if Slurm does not list it."""
    return next((part for part in facts.partitions if part.name == name), None)


def _type_key(job: ClusterJob) -> Key:
    """Return the key of the section that names the partition of the job's GPU type.

    The key is empty if the partition is the profile's own.
    """
    if not job.size.gpus_per_node:
        return ()
    type_ = job.size.gpu_type or ""
    entry = job.gpu_profile.gpu.types.get(type_)
    if entry and entry.partition:
        return ("gpu", "types", type_)
    return ()


def _fitting_partitions(job: ClusterJob) -> list[Partition]:
    """Return the partitions in which a job can run, the best first.

    A job without GPUs gets the partitions without GPUs, the profile's own first. A partition in
    which jobs are preempted is left out if there is another one.
    """
    facts = job.facts
    fitting = [part for part in facts.partitions if _fits(job, part)]
    if not job.size.gpus_per_node:
        free = partitions_without_gpus(facts)
        fitting = [part for part in fitting if part.name in free] or fitting
        fitting = [part for part in fitting if part.name == job.gpu_profile.partition] or fitting
    fitting = [part for part in fitting if part.preempted is None] or fitting
    return sorted(fitting, key=lambda part: rank(part, facts, job.account))


def _fits(job: ClusterJob, partition: Partition) -> bool:
    """Whether a partition is open to the user, and large enough for the job and its time."""
    if why_closed(partition, job.facts, job.account) is not None:
        return False
    if partition.max_nodes and job.fewest_nodes > partition.max_nodes:
        return False
    nodes = _nodes_with(partition, job)
    if nodes is not None and job.fewest_nodes > nodes:
        return False
    if nodes is None and partition.gpus is not None and job.fewest_gpus > partition.gpus:
        return False
    time_s = job.request.walltime_s or job.gpu_profile.time.default
    return partition.max_s is None or time_s is None or time_s <= partition.max_s


def _nodes_with(partition: Partition, job: ClusterJob) -> int | None:
    """Return how many nodes of a partition have what the job needs; None if Slurm shows no node.

    Compared are each node's GPUs of the wanted type, its CPUs and its memory.
    """
    kinds = job.facts.kinds_in(partition.name)
    if not kinds and (job.facts.kinds is None or partition.nodes):
        return None
    size = job.size
    cpus = job.request.cpus or 1
    memory_mb = job.request.memory_mb or 0  # 0: all of a node's memory, however large
    nodes = 0
    for kind in kinds:
        wanted = [count for type_, count in kind.gpus if size.gpu_type in (None, type_)]
        has_cpus = kind.cpus is None or kind.cpus >= cpus
        has_memory = kind.memory_mb is None or kind.memory_mb >= memory_mb
        has_gpus = sum(wanted) >= size.gpus_per_node
        if has_gpus and has_cpus and has_memory:
            nodes += kind.nodes
    return nodes


def _partition_choice(fitting: Sequence[Partition], gpu_profile: Profile) -> Choice:
    """Return the choice between partitions that a job fits."""
    options = []
    for part in fitting:
        limit = f"up to {format_time(part.max_s)}" if part.max_s else "no time limit"
        options.append(Option(part.name, f"-p {part.name}", limit))
    if gpu_profile.gpu.type in gpu_profile.gpu.types:
        key = f"gpu.types.{gpu_profile.gpu.type}.partition"
    else:
        key = "partition"
    reason = "the job fits several partitions, and none is Slurm's default"
    return Choice("partition", key, reason, tuple(options))


def _is_detected(loaded: LoadedProfile, key: Key, detected: Path) -> bool:
    """Whether no file of a user sets this value, or any value of this section."""
    shipped = shipped_folder("cluster_profiles")
    for known, origin in loaded.origins.items():
        if known[: len(key)] != key or origin.path == detected:
            continue
        if not origin.path.is_relative_to(shipped):
            return False
    return True


def _in_partition(job: ClusterJob, partition: Partition, detected: Path) -> Profile:
    """Return the profile with the values of another partition; values from a user's file stay."""
    if job.size.gpus_per_node:
        return _with_gpus_in_partition(job, partition, detected)
    profile = job.loaded.profile
    kinds = job.facts.kinds_in(partition.name)
    cpus = share([(kind.cpus, 0) for kind in kinds], "CPUs")
    memory = share([(kind.memory_mb, 0) for kind in kinds], "MB")
    sections = _sections(cpus, memory, partition, profile)
    changed = _without_user_values(sections, (), job.loaded, detected)
    if partition.name in partitions_without_gpus(job.facts):
        changed["gpu"] = GpuSection(per_node=0)
    changed["partition"] = partition.name
    return profile.model_copy(update=changed)


def _with_gpus_in_partition(job: ClusterJob, partition: Partition, detected: Path) -> Profile:
    """Return the profile with another partition's values for the GPU type of a job."""
    profile = job.loaded.profile
    type_ = job.size.gpu_type
    kinds = job.facts.kinds_in(partition.name)
    if job.facts.kinds is None and type_ not in profile.gpu.types:
        time = {"time": _sections(None, None, partition, profile)["time"]}
        changed = _without_user_values(time, (), job.loaded, detected)
        return profile.model_copy(update={**changed, "partition": partition.name})
    if not any(type_ in dict(kind.gpus) for kind in kinds):
        return profile  # sbatch says it best
    offer = offer_in(partition, type_, job.facts)
    gpus = {"nodes": offer.nodes or None, "per_node": offer.per_node}
    sections = _sections(offer.cpus, offer.memory_mb, partition, profile)
    name = type_ or ""
    entry = profile.gpu.types.get(name)
    if entry is None:
        changed = _without_user_values(sections, (), job.loaded, detected)
        changed["gpu"] = profile.gpu.model_copy(update=gpus)
        changed["partition"] = partition.name
        return profile.model_copy(update=changed)
    changed = _without_user_values(sections, ("gpu", "types", name), job.loaded, detected)
    changed["partition"] = partition.name
    types = {**profile.gpu.types, name: entry.model_copy(update={**changed, **gpus})}
    return profile.model_copy(update={"gpu": profile.gpu.model_copy(update={"types": types})})


def _without_user_values(
    sections: Mapping[str, object], prefix: Key, loaded: LoadedProfile, detected: Path
) -> dict[str, object]:
    """Return the sections below a key of which no file of a user sets a value."""
    changed = {}
    for name, section in sections.items():
        if _is_detected(loaded, (*prefix, name), detected):
            changed[name] = section
    return changed


def _sections(
    cpus: Share | None, memory: Share | None, partition: Partition, profile: Profile
) -> dict[str, CpuSection | MemorySection | TimeSection]:
    """Return the sections of a profile that a partition decides, by their names."""
    cpu_section = CpuSection()
    if cpus:
        cpu_section = CpuSection(per_node=cpus.per_node, per_gpu=cpus.per_gpu)
    memory_section = MemorySection()
    if memory:
        memory_section = MemorySection(per_node=memory.per_node, per_gpu=memory.per_gpu)
    default_s = partition.default_s or profile.time.default
    times = [time_s for time_s in (default_s, partition.max_s) if time_s]
    time_section = TimeSection(default=min(times, default=None), max=partition.max_s)
    return {"cpu": cpu_section, "memory": memory_section, "time": time_section}


# --- account and QOS -----------------------------------------------------------------------------


def with_account(job: ClusterJob, picker: Picker) -> ClusterJob:
    """Return the job with the account to charge.

    The account is the only one for the partition, or Slurm's default.
    """
    if job.account or not job.enforced:
        return job
    partition = job.known_partition
    default = job.facts.default_account
    fitting = sorted({each.account for each in job.associations(None)})
    if partition is not None:
        fitting = [name for name in fitting if may_use(partition, job.facts, name)]
    if not fitting:
        return job
    if default in fitting:
        fitting = [default]
    return job.with_one("account", "account", "you have several accounts", fitting, picker)


def with_qos(job: ClusterJob, picker: Picker) -> ClusterJob:
    """Return the job with a QOS, if Slurm's default QOS for this user cannot be used.

    The default cannot be used if it does not exist or is not for the partition.
    """
    if job.request.qos or job.gpu_profile.qos:
        return job
    if not {"qos", "all"} & job.enforced:
        return job
    mine = job.associations(job.account or job.facts.default_account)
    allowed = _allowed_qos(mine, job.known_partition)
    # without a default of its own an association has "normal" (slurmctld, job_mgr.c)
    defaults = {each.default_qos or "normal" for each in mine}
    if not allowed or defaults & set(allowed):
        return job
    reason = (
        f"partition {job.partition} takes several of your qualities of service, and none is "
        "your default"
    )
    return job.with_one("qos", "QOS", reason, allowed, picker)


def _allowed_qos(associations: Sequence[Association], partition: Partition | None) -> list[str]:
    """Return the names of the QOS that the associations have and the partition takes."""
    names: set[str] = set()
    for association in associations:
        names.update(association.qos)
    if partition is not None:
        names -= set(partition.denied_qos)
        if partition.qos:
            names &= set(partition.qos)
    return sorted(names)


def check_qos_limits(job: ClusterJob) -> None:
    """Refuse a job that a QOS limit will never let start.

    The limit is one of the partition's own QOS, or else one of the job's QOS.

    Raises:
        PlanError: the job has more GPUs or a longer time than a QOS allows.
    """
    if not {"limits", "safe", "all"} & job.enforced:
        return
    order = _qos_in_order(job)
    gpus = job.fewest_gpus
    for limit, whom in _GPU_LIMITS.items():
        qos = _first_with(limit, order)
        if qos is not None and gpus > getattr(qos, limit):
            raise PlanError(
                f"{gpus} GPUs are more than the {getattr(qos, limit)} that QOS {qos.name} "
                f"allows {whom}",
                hint=spell_row(_QOS),
            )
    qos = _first_with("max_s", order)
    time_s = job.request.walltime_s or job.gpu_profile.time.default
    if qos is None or qos.max_s is None or time_s is None:
        return
    if time_s > qos.max_s:
        option = spell("time") if job.request.walltime_s else "the default time"
        allows = f"the {format_time(qos.max_s)} that QOS {qos.name} allows"
        raise PlanError(
            f"{option} {format_time(time_s)} is longer than {allows}", hint=spell_row(_QOS)
        )


def _qos_in_order(job: ClusterJob) -> list[QosLimits]:
    """Return the QOS of the partition and of the job; a limit of the first has priority."""
    name = job.request.qos or job.gpu_profile.qos
    if not name:
        mine = job.associations(job.account or job.facts.default_account)
        name = next((each.default_qos for each in mine if each.default_qos), "normal")
    known = {limits.name: limits for limits in job.facts.qos}
    partition = job.known_partition
    names = [name]
    if partition is not None and partition.own_qos:
        names.insert(0, partition.own_qos)
    if name in known and known[name].over_partition:
        names.reverse()
    return [known[name] for name in names if name in known]


def _first_with(limit: str, order: Sequence[QosLimits]) -> QosLimits | None:
    """Return the first QOS that has a limit."""
    return next((qos for qos in order if getattr(qos, limit) is not None), None)


def check_nodes(job: ClusterJob) -> None:
    """Refuse a job of more nodes than its partition has: Slurm may accept it and never start it.

    Where the profile knows how many nodes have its GPUs, the plan is refused with their number,
    which is smaller.

    Raises:
        PlanError: the partition does not give a job this number of nodes.
    """
    partition = job.known_partition
    if partition is None:
        return
    nodes = job.fewest_nodes
    most = _most_nodes(partition, job.facts)
    is_of_profile = (
        job.gpu_profile.gpu.nodes is not None and job.partition == job.gpu_profile.partition
    )
    if most is None or nodes <= most or (job.size.gpus_per_node and is_of_profile):
        return
    larger = []
    for part in job.facts.partitions:
        if nodes <= (_most_nodes(part, job.facts) or 0):
            larger.append(part)
    best = min(larger, key=lambda part: rank(part, job.facts, job.account), default=None)
    hint = f"use {spell('nodes', most)}" if most else f"choose another with {spell('partition')}"
    if best is not None:
        hint = f"use {spell('partition', best.name)}: up to {_most_nodes(best, job.facts)}"
    raise PlanError(
        f"{nodes} nodes are more than the {most} that partition {partition.name} gives a job",
        hint=hint,
    )


def _most_nodes(partition: Partition, facts: ClusterFacts) -> int | None:
    """Return the number of nodes that a partition can give one job; None if it is not known."""
    nodes = partition.nodes
    if nodes is None and facts.kinds is not None:
        nodes = sum(kind.nodes for kind in facts.kinds_in(partition.name))
    known = [number for number in (nodes, partition.max_nodes) if number is not None]
    return min(known, default=None)


def detected_note(job: ClusterJob) -> str:
    """Return one line with the detected values, and how to keep or change them."""
    taken = [_partition_text(job)]
    account = job.account
    if account:
        is_default = account == job.facts.default_account and len(accounts_of(job.facts)) > 1
        remark = " (your default in Slurm)" if is_default else ""
        taken.append(f"account {account}{remark}")
    if job.request.qos:
        taken.append(f"qos {job.request.qos}")
    cluster = job.facts.config.get("ClusterName", "this one")
    return f"detected the cluster {cluster}: {', '.join(taken)}; keep or change it with hpcrun init"


def _partition_text(job: ClusterJob) -> str:
    """Return the partition of a job for a note."""
    if not job.partition:
        return "the default partition"
    text = f"partition {job.partition}"
    if job.known_partition and job.known_partition.default:
        text += " (the default)"
    return text
