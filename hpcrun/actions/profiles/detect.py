"""profile detect: query the cluster, and write its profile.

Every value has its source, and every gap has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.profiles.detect_types import (
    GpuOffer,
    Share,
    accounts_of,
    best_partition,
    card_part,
    gpu_offers,
    may_use,
    partition_without_gpus,
    partitions_without_gpus,
    share,
)
from hpcrun.errors import HpcrunError, ProfileError
from hpcrun.job.profile_model import Profile
from hpcrun.job.text.units import format_memory, format_time
from hpcrun.profiles.folders import Source
from hpcrun.profiles.load import SUFFIX, load_text
from hpcrun.profiles.yaml_file import Key, flow, replace_text
from hpcrun.schedulers.cluster_facts import (
    Association,
    ClusterFacts,
    Partition,
    ask_facts,
    check_answered,
)

if TYPE_CHECKING:  # most submissions read the facts of an earlier command
    from hpcrun.machine.host import HostFacts
    from hpcrun.machine.process import SlurmSite

_COMMENT_COLUMN = 34
_USUAL_DEFAULT_S = 3600
"""The time of a job that requests none, from the base profile."""
_NODES = "scontrol show node"
_PARTITIONS = "scontrol show partition"


@dataclass(frozen=True, slots=True)
class DetectedValue:
    """A value of the profile."""

    key: Key
    value: str | None  # as YAML; None if it is not known
    source: str  # without a value the reason why there is none


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices that a cluster leaves to the user; None for a choice that was not made."""

    account: str | None = None
    gpu_type: str | None = None  # the type that ``--gpus N`` means
    launcher: str | None = None  # None or torchrun: hpcrun's own default


_NO_CHOICES = Choices()


@dataclass(frozen=True, slots=True)
class Detected:
    """A profile that was detected."""

    text: str
    profile: Profile
    offers: tuple[GpuOffer, ...]  # the GPU types that the user may use
    warnings: tuple[str, ...]  # the commands that failed
    path: Path | None = None  # the file that was written, None if none was


def detect(
    site: SlurmSite, host: str, folders: Sequence[Source], path: Path | None = None
) -> Detected:
    """Query the cluster and return the text of its profile, which loads.

    If a path is given, the function also writes the text there.
    """
    detected = replace(detected_profile(ask_cluster(site), site, host, folders), path=path)
    if path:
        replace_text(path, detected.text)
    return detected


def ask_cluster(site: SlurmSite) -> ClusterFacts:
    """Query the cluster."""
    facts = ask_facts(site)
    check_answered(facts)
    return facts


def detected_profile(
    facts: ClusterFacts,
    site: SlurmSite,
    host: str,
    folders: Sequence[Source],
    choices: Choices = _NO_CHOICES,
) -> Detected:
    """Return the profile of a cluster from its answers.

    Args:
        facts: the answers of Slurm.
        site: the cluster whose commands are on PATH, with their environment and timeout.
        host: the name of this host.
        folders: the folders with the profiles that the new one may extend.
        choices: the user's choices; the account decides which partitions are open.
    """
    from hpcrun.machine.host import host_facts  # a submission does not look at the host

    seen = host_facts(host, site.env, timeout_s=site.within_s)
    text = profile_text(facts, choices, seen, in_job="SLURM_JOB_ID" in site.env)
    profile = check_loads(text, folders)
    warnings = tuple(f"{command}: {why}" for command, why in facts.problems.items())
    return Detected(text, profile, tuple(gpu_offers(facts, choices.account)), warnings)


def check_loads(text: str, folders: Sequence[Source]) -> Profile:
    """Load the text as a profile: hpcrun writes only a profile that loads.

    Raises:
        HpcrunError: the text does not load as a profile, which is a bug in hpcrun.
    """
    path = Path(f"detected{SUFFIX}")  # for messages; nothing is written
    try:
        return load_text(text, path, folders).profile
    except ProfileError as error:
        message = error.message.replace(f"{path}:", "line ")
        raise HpcrunError(
            f"the detected profile is not valid: {message}\n{text}",
            hint="this is a bug in hpcrun; please report it with the text above",
        ) from None


# --- its text ------------------------------------------------------------------------------------


def profile_text(
    facts: ClusterFacts,
    choices: Choices = _NO_CHOICES,
    host: HostFacts | None = None,
    *,
    in_job: bool = False,
) -> str:
    """Return the YAML of a profile.

    Args:
        facts: the answers of Slurm about the cluster.
        choices: the user's choices of an account, a GPU type and a launcher.
        host: the host it is detected on; None for the profile ``detected``, which is made of the
            facts alone.
        in_job: whether the host is one that jobs run on, seen from inside a job.
    """
    heading = list(_heading(facts, host))
    heading += [f"No response: {command}: {why}" for command, why in facts.problems.items()]
    rest = list(_table(facts, choices.account))
    if host:
        rest += _host_lines(host, in_job=in_job)
    lines = [comment(line) for line in heading]
    lines += _yaml_lines(_rows(facts, choices))
    lines.append("")
    lines += [comment(line) for line in rest]
    return "\n".join(lines) + "\n"


def _yaml_lines(rows: Iterable[DetectedValue]) -> Iterator[str]:
    """Yield rows as YAML, the rows of a section below its name."""
    opened: Key = ()
    for row in rows:
        section = row.key[:-1]
        for depth, name in enumerate(section):
            if opened[: depth + 1] != section[: depth + 1]:
                yield f"{'  ' * depth}{flow(name)}:"
        opened = section
        left = "  " * len(section)
        if row.value is None:
            left += "# "
        left += f"{row.key[-1]}:"
        if row.value:
            left += f" {row.value}"
        if row.source:
            left = f"{left:<{_COMMENT_COLUMN}}  {comment(row.source)}"
        yield left


def comment(text: str) -> str:
    """Return text behind a ``#``, on one line."""
    return "# " + "".join(char if char.isprintable() else "?" for char in text)


def _rows(facts: ClusterFacts, choices: Choices) -> Iterator[DetectedValue]:
    """Yield the values of the profile, in the order of its lines."""
    offers = gpu_offers(facts, choices.account)
    name = facts.config.get("ClusterName", "unknown")
    version = facts.config.get("SLURM_VERSION", "of unknown version")
    yield DetectedValue(("extends",), "base/slurm", "")  # the values for every Slurm cluster
    yield DetectedValue(("description",), flow(f"{name}, Slurm {version}"), "scontrol show config")
    yield DetectedValue(("scheduler",), "slurm", "")
    if choices.launcher == "srun":
        yield DetectedValue(("launcher",), "srun", "your choice: srun starts the ranks")
    if len(offers) == 1:
        # the only type's partition is the profile's own
        yield _partition_row(facts, offers[0].partition)
        yield from _account_rows(facts, choices.account)
        yield from _only_type_rows(offers[0])
        return
    partition = _usual_partition(facts, choices.account)
    yield _partition_row(facts, partition)
    yield from _account_rows(facts, choices.account)
    if offers:
        yield from _types_rows(offers, choices.gpu_type, partition)
    else:
        yield _row_of_no_offer(facts)
    yield from _rows_without_gpus(facts, offers, partition)


def _usual_partition(facts: ClusterFacts, account: str | None) -> Partition | None:
    """Return the partition of a profile whose GPU types, if any, name their own."""
    if facts.kinds is None:  # then there are no types: a job with GPUs takes this one as well
        with_gpus = {partition.name for partition in facts.partitions if partition.gpus}
        if with_gpus:
            return best_partition(facts, with_gpus, account)
    return partition_without_gpus(facts, account)


def _only_type_rows(offer: GpuOffer) -> Iterator[DetectedValue]:
    """Yield the values for the only GPU type."""
    if offer.type:
        yield DetectedValue(("gpu", "type"), flow(offer.type), _NODES)
    else:
        yield DetectedValue(("gpu", "type"), None, f"{_NODES}: Slurm has no type for these GPUs")
    yield from _offer_rows((), offer, _USUAL_DEFAULT_S)


def _types_rows(
    offers: Sequence[GpuOffer], chosen: str | None, partition: Partition | None
) -> Iterator[DetectedValue]:
    """Yield the values for several GPU types, and which type ``--gpus N`` means."""
    if chosen:
        yield DetectedValue(("gpu", "type"), flow(chosen), "your choice: the type of --gpus N")
    else:
        reason = "the type of --gpus N; without it, --gpus N is an error"
        yield DetectedValue(("gpu", "type"), None, reason)
    top_s = _USUAL_DEFAULT_S
    if partition is not None:
        top_s = _default_s(partition, _USUAL_DEFAULT_S)
    for offer in offers:
        yield from _offer_rows(("gpu", "types", offer.type or ""), offer, top_s)


def _row_of_no_offer(facts: ClusterFacts) -> DetectedValue:
    """Return the GPUs of a node where Slurm shows none: 0 only if all partitions have none."""
    key = ("gpu", "per_node")
    if facts.kinds is not None:
        return DetectedValue(key, "0", f"{_NODES}: no node has a GPU that a job can request")
    counts = [partition.gpus for partition in facts.partitions]
    if counts and not any(counts) and None not in counts:
        return DetectedValue(key, "0", f"{_PARTITIONS}: no partition has GPUs")
    reason = facts.problems.get(_NODES, "no nodes")
    return DetectedValue(key, None, f"not known, Slurm decides; {_NODES}: {reason}")


def _rows_without_gpus(
    facts: ClusterFacts, offers: Sequence[GpuOffer], partition: Partition | None
) -> Iterator[DetectedValue]:
    """Yield the values for jobs without GPUs."""
    name = partition.name if partition else None
    here = facts.kinds_in(name) if name else []
    yield from _share_rows(("cpu",), share([(kind.cpus, 0) for kind in here], "CPUs"))
    yield from _share_rows(("memory",), share([(kind.memory_mb, 0) for kind in here], "MB"))
    if partition is not None:
        # an entry of gpu.types cannot take the profile's limit away
        unlimited = any(offer.partition.max_s is None for offer in offers)
        yield from _time_rows((), partition, _USUAL_DEFAULT_S, limited=not unlimited)


def _has_gpus(facts: ClusterFacts) -> bool:
    """Whether GPUs of the cluster are known."""
    if facts.kinds is None:
        return any(partition.gpus for partition in facts.partitions)
    return any(kind.gpus for kind in facts.kinds)


def _partition_row(facts: ClusterFacts, chosen: Partition | None) -> DetectedValue:
    if chosen is None:
        reason = "scontrol named no partition; Slurm's default is used"
        return DetectedValue(("partition",), None, reason)
    if chosen.name in partitions_without_gpus(facts) and _has_gpus(facts):
        why = "for jobs without GPUs"
    elif chosen.default:
        why = "the default"
    elif any(partition.default for partition in facts.partitions):
        why = "Slurm's default partition has other nodes or is not open to you"
    else:
        why = "the cluster has no default partition"
    return DetectedValue(("partition",), flow(chosen.name), f"{_PARTITIONS}: {why}")


def _account_rows(facts: ClusterFacts, chosen: str | None) -> Iterator[DetectedValue]:
    """Yield the account that is charged and the QOS of its jobs."""
    source = "sacctmgr show assoc"
    accounts = accounts_of(facts)
    charged = chosen
    if facts.associations is None:
        known = facts.problems.get(source, "no response")
    else:
        known = ", ".join(accounts) or f"user {facts.user} has none"
    if chosen:
        is_default = chosen == facts.default_account
        whose = "your default in Slurm" if is_default else "your choice"
        why = f"{whose}; {source}: {known}"
    elif len(accounts) == 1:
        charged = accounts[0]
        why = f"{source}: your only one"
    else:
        why = f"{source}: {known}"
        if accounts:
            why += "; Slurm takes your default one"
    yield DetectedValue(("account",), flow(charged) if charged else None, why)
    if facts.associations:
        mine = [each for each in facts.associations if charged in (None, each.account)]
        yield _qos_row(mine, source)
    else:
        yield DetectedValue(("qos",), None, "as account")


def _qos_row(mine: Sequence[Association], source: str) -> DetectedValue:
    """Return the row of the QOS: it has a value only if the user may not use Slurm's default."""
    names: set[str] = set()
    for association in mine:
        names.update(association.qos)
    qos = sorted(names)
    # without a default of its own an association has "normal" (slurmctld, job_mgr.c)
    defaults = {association.default_qos or "normal" for association in mine}
    if len(qos) == 1 and qos[0] not in defaults:
        why = f"{source}: your only one, and not the one that Slurm would take"
        return DetectedValue(("qos",), flow(qos[0]), why)
    why = f"{source}: {', '.join(qos) or 'none'}; Slurm takes the default one"
    return DetectedValue(("qos",), None, why)


def _offer_rows(prefix: Key, offer: GpuOffer, top_s: int) -> Iterator[DetectedValue]:
    """Yield the values for a GPU type.

    The values stand in an entry of ``gpu.types`` or, for the only type, in the profile itself.
    """
    gpu = prefix or ("gpu",)
    source = _NODES
    if len(offer.counts) > 1:
        smaller = [str(number) for number in offer.counts[:-1]]
        source += f": some nodes have {', '.join(smaller)}"
    yield DetectedValue((*gpu, "per_node"), str(offer.per_node), source)
    if offer.nodes:
        most = offer.partition.max_nodes
        if offer.nodes == most:
            why = f"MaxNodes={most} of partition {offer.partition.name}"
        else:
            why = "a job cannot have more"
        yield DetectedValue((*gpu, "nodes"), str(offer.nodes), f"{_NODES}: {why}")
    if prefix:
        if offer.also_in:
            also = f"also in partition {', '.join(offer.also_in)}"
        else:
            also = _PARTITIONS
        yield DetectedValue((*prefix, "partition"), flow(offer.partition.name), also)
    yield from _share_rows((*prefix, "cpu"), offer.cpus)
    yield from _share_rows((*prefix, "memory"), offer.memory_mb)
    yield from _time_rows(prefix, offer.partition, top_s)
    if offer.type is not None:
        part = card_part(offer.type)
        why = "hpcrun has no data of this card"
        if part:
            why = "by the name of the type; `hpcrun scale plan` computes with its data"
        yield DetectedValue((*prefix, "card"), part, why)


def _share_rows(key: Key, amounts: Share | None) -> Iterator[DetectedValue]:
    form = format_memory if key[-1] == "memory" else str
    if amounts is None:
        yield DetectedValue(key, None, f"{_NODES}: does not say")
        return
    yield DetectedValue((*key, "per_node"), form(amounts.per_node), _NODES)
    if amounts.per_gpu:
        yield DetectedValue((*key, "per_gpu"), form(amounts.per_gpu), amounts.arithmetic)


def _default_s(partition: Partition, otherwise_s: int) -> int:
    """Return the time of a partition's jobs that request none."""
    default_s = partition.default_s or otherwise_s
    if partition.max_s:
        return min(default_s, partition.max_s)
    return default_s


def _time_rows(
    prefix: Key, partition: Partition, inherited_s: int, *, limited: bool = True
) -> Iterator[DetectedValue]:
    """Yield the times of a partition.

    Args:
        prefix: the key of the section in which the times stand.
        partition: the partition with its default and its longest time.
        inherited_s: the default time in seconds, unless the partition has its own.
        limited: the longest time is written here.
    """
    default_s = _default_s(partition, inherited_s)
    most = partition.max_s
    source = f"{_PARTITIONS}: {partition.name}"
    if most is None:
        yield DetectedValue((*prefix, "time.max"), None, f"{source} has no limit")
    elif not limited:
        why = "left out, since a GPU type has no time limit, and would inherit this one"
        yield DetectedValue((*prefix, "time.max"), None, f"{source} has {format_time(most)}: {why}")
    if partition.default_s or default_s != inherited_s:
        default = json.dumps(format_time(default_s))
        yield DetectedValue(
            (*prefix, "time", "default"), default, f"{source}, for jobs without --time"
        )
    if most is not None and limited:
        yield DetectedValue((*prefix, "time", "max"), json.dumps(format_time(most)), source)


# --- its comments --------------------------------------------------------------------------------


def _heading(facts: ClusterFacts, host: HostFacts | None) -> Iterator[str]:
    sources = (
        "A comment names the source of each value; values that were not found are commented out."
    )
    if host is None:
        yield (
            f"Detected by hpcrun for user {facts.user}, and detected again when Slurm's "
            "configuration changes."
        )
        yield (
            "`hpcrun profile set detected KEY=VALUE` changes a value; `hpcrun init` makes a "
            "profile of it."
        )
        yield sources
    else:
        yield f"Detected by hpcrun on {host.name} for user {facts.user}."
        yield f"{sources} Correct what is wrong."


def _table(facts: ClusterFacts, account: str | None) -> Iterator[str]:
    """Yield a line about each partition, the default one first."""
    yield f"Partitions ({_PARTITIONS}):"
    for part in sorted(facts.partitions, key=lambda part: (not part.default, part.name)):
        words = []
        if part.default:
            words.append("default")
        words.append(f"to {format_time(part.max_s)}" if part.max_s else "no time limit")
        words.append(_gpus_in(part, facts))
        if part.preempted:
            words.append(f"jobs may be displaced ({part.preempted}) after {part.grace_s} s")
        if not may_use(part, facts, account):
            words.append("probably not open to you")
        yield f"  {part.name}: {'; '.join(words)}"


def _gpus_in(partition: Partition, facts: ClusterFacts) -> str:
    """Return the types and numbers of GPUs that the nodes of a partition have."""
    if facts.kinds is None:
        if partition.gpus is None:
            return "GPUs unknown"
        return f"{partition.gpus} GPUs in all" if partition.gpus else "no GPUs"
    gpus: set[str] = set()
    for kind in facts.kinds_in(partition.name):
        gpus.update(f"{type_ or 'gpu'}:{count}" for type_, count in kind.gpus)
    return " ".join(sorted(gpus)) or "no GPUs"


def _host_lines(host: HostFacts, *, in_job: bool) -> Iterator[str]:
    if in_job:
        where = "a compute node"
    else:
        where = "not inside a job: run it in one to see a compute node"
    gpus = ", ".join(f"{count} × {model}" for model, count in host.gpus.items())
    hcas = ", ".join(f"{name} ({link})" if link else name for name, link in host.hcas.items())
    if host.modules:
        modules = f"{host.modules}; `module avail` lists what modules: [...] may load"
    else:
        modules = "none"
    yield f"Seen on {host.name} ({where}):"
    yield f"  GPUs (nvidia-smi): {host.problem or gpus or 'none'}"
    yield f"  InfiniBand and RoCE (/sys/class/infiniband): {hcas or 'none'}"
    yield f"  interfaces (/sys/class/net): {', '.join(host.interfaces) or 'none'}"
    yield f"  modules: {modules}"
    yield (
        "NCCL finds its network by itself. Name interfaces or adapters only if that fails, and "
        "only those that"
    )
    yield (
        "every node has: a name in NCCL_SOCKET_IFNAME or NCCL_IB_HCA that a node lacks fails "
        "every rank."
    )
