"""The facts of a cluster: the answers of a few commands of Slurm, and their copy in the cache.

hpcrun runs the commands at once. The copy is in the user's cache. Thanks to the copy, a submission
without a profile asks Slurm nothing more for an hour. If it cannot be read or written, Slurm is
asked. Of the answers, a field that is missing, or in the unknown form of another version, is None,
or its line is ignored. A site may hide its nodes from users (PrivateData=nodes): then the nodes are
None, which is not "no nodes", and partitions say how many nodes and GPUs they have in all.
"""

from __future__ import annotations

import grp
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hpcrun.errors import SchedulerError
from hpcrun.job.text.units import slurm_seconds
from hpcrun.machine.process import Completed, SlurmSite, user_name
from hpcrun.schedulers.slurm_text import (
    allocated_gpus,
    parse_config,
    resources,
    rows_of,
    whole_number,
)

_ASSOC_FIELDS = ("account", "partition", "qos", "defaultqos")
_QOS_FIELDS = ("name", "maxtres", "maxtrespu", "grptres", "maxwall", "flags")
_LONGEST_LIMIT = 16  # characters of a time limit
MEMORY_NOT_SET = 1  # MB: the default of RealMemory (slurm.conf(5))
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:.\[\]]*)=")
# answers of the same database as the associations: one message for all
_OF_ASSOC = frozenset({"account", "qos"})
_CONFIG = ["scontrol", "show", "config"]
_CONFIG_KEYS = frozenset(
    [
        "ClusterName",
        "SLURM_VERSION",
        "AccountingStorageType",
        "AccountingStorageEnforce",
        "PreemptType",
        "PreemptMode",
    ]
)
_PARTITIONS = ["scontrol", "--oneliner", "show", "partition"]
_NODES = ["scontrol", "--oneliner", "show", "node"]
_SACCT = [
    "sacct",
    "--allocations",
    "--noheader",
    "--parsable2",
    "--starttime=now",
    "--format=JobID",
]

Gpus = tuple[tuple[str | None, int], ...]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike, in one partition."""

    partition: str
    nodes: int
    cpus: int | None
    memory_mb: int | None
    # (type, count) of each kind of GPU in one node; type None if Slurm has no name for it
    gpus: Gpus


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, its users and its qualities of service; a list is empty if all are allowed."""

    name: str
    default: bool = False
    up: bool = True
    max_s: int | None = None  # time limit in seconds, None if there is none
    max_nodes: int | None = None  # the most nodes of one job, None if there is no limit
    nodes: int | None = None  # how many it has
    gpus: int | None = None  # how many all its nodes have; None where Slurm does not count GPUs
    default_s: int | None = None
    priority: int = 0
    # what Slurm does with a preempted job (REQUEUE, CANCEL ...), None if jobs are not preempted
    preempted: str | None = None
    grace_s: int = 0  # the grace time of such a job in seconds
    accounts: tuple[str, ...] = ()
    denied_accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    denied_qos: tuple[str, ...] = ()
    root_only: bool = False
    own_qos: str | None = None  # the QOS whose limits hold for all jobs in it


@dataclass(frozen=True, slots=True)
class Association:
    """An account that a user may charge, and its qualities of service."""

    account: str
    partition: str | None
    qos: tuple[str, ...]
    default_qos: str | None


@dataclass(frozen=True, slots=True)
class QosLimits:
    """The limits of a QOS that can make a job impossible; None for no limit."""

    name: str
    # gpus_per_job, gpus_per_user, gpus_in_all: at the same time
    gpus_per_job: int | None = None
    gpus_per_user: int | None = None
    gpus_in_all: int | None = None
    max_s: int | None = None  # the longest time limit of a job, in seconds
    # whether these limits have priority over those of a partition's own QOS
    over_partition: bool = False


def assoc_command(user: str) -> list[str]:
    """Ask the accounting database for a user's associations."""
    return sacctmgr("assoc", f"user={user}", fields=_ASSOC_FIELDS)


def sacctmgr(*what: str, fields: Sequence[str]) -> list[str]:
    """Ask the accounting database for fields, in the form that :func:`rows_of` reads."""
    return ["sacctmgr", "--noheader", "--parsable2", "show", *what, f"format={','.join(fields)}"]


def parse_nodes(text: str) -> list[NodeKind]:
    """Read ``scontrol --oneliner show node``: kinds of nodes, one for each of their partitions."""
    counted: dict[NodeKind, int] = {}  # a kind without its number of nodes → that number
    for fields in parse_records(text, "NodeName"):
        # CPUEfctv (22.05 and later) leaves out the CPUs that CoreSpecCount and CpuSpecList reserve
        # for the system
        cpus = whole_number(fields.get("CPUEfctv")) or whole_number(fields.get("CPUTot"))
        memory = whole_number(fields.get("RealMemory"))
        if memory == MEMORY_NOT_SET:
            memory = None
        if memory is not None:
            memory -= min(memory, whole_number(fields.get("MemSpecLimit")) or 0)
        gpus = parse_gres(fields.get("Gres", ""))
        for partition in _words(fields.get("Partitions")):
            kind = NodeKind(partition, 0, cpus, memory, gpus)
            counted[kind] = counted.get(kind, 0) + 1
    return [replace(kind, nodes=nodes) for kind, nodes in counted.items()]


def parse_partitions(text: str, *, preempts: bool) -> list[Partition]:
    """Read ``scontrol --oneliner show partition``.

    With ``preempts``, partitions preempt each other's jobs (PreemptType=preempt/partition_prio).
    """
    partitions = []
    records = parse_records(text, "PartitionName")
    # a site may not count GPUs (AccountingStorageTRES); where it does, no entry means no GPU
    counts_gpus = any("gres/gpu" in fields.get("TRES", "") for fields in records)
    for fields in records:
        mode = fields.get("PreemptMode", "OFF")
        own_qos = fields.get("QoS", "N/A")
        partitions.append(
            Partition(
                fields["PartitionName"],
                default=fields.get("Default") == "YES",
                up=fields.get("State", "UP") == "UP",
                max_s=_seconds(fields.get("MaxTime", "")),
                max_nodes=whole_number(fields.get("MaxNodes")),
                nodes=whole_number(fields.get("TotalNodes")),
                gpus=allocated_gpus(fields.get("TRES", "")) or (0 if counts_gpus else None),
                default_s=_seconds(fields.get("DefaultTime", "")),
                priority=whole_number(fields.get("PriorityTier")) or 0,
                preempted=mode if preempts and mode not in ("OFF", "") else None,
                grace_s=whole_number(fields.get("GraceTime")) or 0,
                accounts=_allowed(fields.get("AllowAccounts")),
                denied_accounts=_words(fields.get("DenyAccounts")),
                groups=_allowed(fields.get("AllowGroups")),
                qos=_allowed(fields.get("AllowQos")),
                denied_qos=_words(fields.get("DenyQos")),
                root_only=fields.get("RootOnly") == "YES",
                own_qos=own_qos if own_qos not in ("N/A", "") else None,
            )
        )
    return partitions


def parse_records(text: str, first: str) -> list[dict[str, str]]:
    """Read lines of ``KEY=VALUE`` pairs whose values may contain blanks (OS, Reason).

    The first value of a key counts.
    """
    records = []
    for line in text.splitlines():
        keys = list(_FIELD.finditer(line))
        if not keys or keys[0][1] != first:
            continue
        fields: dict[str, str] = {}
        value_ends = [key.start() for key in keys[1:]]
        value_ends.append(len(line))
        for key, value_end in zip(keys, value_ends, strict=True):
            fields.setdefault(key[1], line[key.end() : value_end].strip())
        if fields[first]:
            records.append(fields)
    return records


def parse_assoc(text: str) -> list[Association]:
    """Read the answer to :func:`assoc_command`."""
    associations = []
    for account, partition, qos, default_qos in rows_of(text, len(_ASSOC_FIELDS), "|"):
        if account:
            associations.append(
                Association(account, partition or None, _words(qos), default_qos or None)
            )
    return associations


def parse_qos(text: str) -> list[QosLimits]:
    """Read sacctmgr's ``_QOS_FIELDS``.

    A limit of GPUs is the limit of any type: ``cpu=64,gres/gpu=4`` → 4.
    """
    qos = []
    for name, per_job, per_user, in_all, wall, flags in rows_of(text, len(_QOS_FIELDS), "|"):
        if not name:
            continue
        qos.append(
            QosLimits(
                name,
                gpus_per_job=_gpu_limit(per_job),
                gpus_per_user=_gpu_limit(per_user),
                gpus_in_all=_gpu_limit(in_all),
                max_s=_seconds(wall),
                over_partition="OverPartQOS" in flags,
            )
        )
    return qos


def _gpu_limit(tres: str) -> int | None:
    return whole_number(resources(tres).get("gres/gpu"))


def parse_gres(text: str) -> Gpus:
    """Read the GPUs of a node's generic resources: ``gpu:a100:4(S:0-1),nvme:1`` → a100 × 4."""
    counts: dict[str | None, int] = {}
    for item in re.sub(r"\([^()]*\)", "", text).split(","):
        parts = item.strip().split(":")
        if parts[0] != "gpu":
            continue
        details = [part for part in parts[1:] if part != "no_consume"]
        if len(details) > 2:
            continue
        count = whole_number(details[-1]) if details else 1
        type_ = details[0] if len(details) == 2 else ""
        if count:
            counts[type_ or None] = counts.get(type_ or None, 0) + count
    return tuple(counts.items())


def _words(text: str | None) -> tuple[str, ...]:
    words = re.split(r"[,\s]+", text or "")
    return tuple(name for name in words if name not in ("", "(null)", "NONE"))


def _allowed(text: str | None) -> tuple[str, ...]:
    words = _words(text)
    return () if "ALL" in words else words


def _seconds(text: str) -> int | None:
    if len(text) > _LONGEST_LIMIT:  # Slurm cannot have written it
        return None
    return slurm_seconds(text) or None


def command_name(command: Sequence[str]) -> str:
    """Return a command as a comment names it: ``scontrol show node``, without its options."""
    return " ".join(part for part in command if not part.startswith("-") and "=" not in part)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts that a cluster reports."""

    user: str
    groups: tuple[str, ...]
    config: dict[str, str]
    kinds: list[NodeKind] | None  # kinds of nodes, by partition; None if Slurm shows none
    partitions: list[Partition]
    associations: list[Association] | None  # of the user; None if the database did not respond
    accounting: bool
    default_account: str | None = None  # of the user, which Slurm charges for a job without one
    qos: list[QosLimits] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)  # command → why it reported nothing

    @property
    def shown_kinds(self) -> list[NodeKind]:
        """The kinds of nodes that Slurm shows: none is no proof that there are none."""
        return self.kinds or []

    def kinds_in(self, partition: str) -> list[NodeKind]:
        """Return the kinds of nodes in a partition that Slurm shows."""
        return [kind for kind in self.shown_kinds if kind.partition == partition]


def ask_facts(site: SlurmSite) -> ClusterFacts:
    """Ask everything at once, so that commands that hang take ten seconds together, not each."""
    user = user_name()
    commands = {
        "config": _CONFIG,
        "partitions": _PARTITIONS,
        "nodes": _NODES,
        "assoc": assoc_command(user),
        "account": sacctmgr("user", user, fields=["defaultaccount"]),  # of a job that names none
        "qos": sacctmgr("qos", fields=_QOS_FIELDS),
        "sacct": _SACCT,
    }
    # not for those who only read what an earlier command asked
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(commands)) as pool:
        answers = dict(zip(commands, pool.map(site.run, commands.values()), strict=True))
    names = {key: command_name(command) for key, command in commands.items()}
    return _facts(user, answers, names)


def _facts(user: str, answers: dict[str, Completed], names: dict[str, str]) -> ClusterFacts:
    problems = {}
    for key, answer in answers.items():
        if not answer.ok and key not in _OF_ASSOC:
            problems[names[key]] = _last_line(answer.stderr) or f"exit status {answer.status}"
    config = parse_config(_output(answers["config"]))
    # the cluster has nodes: an empty answer hides them
    kinds = parse_nodes(_output(answers["nodes"])) or None
    preempts = "partition_prio" in config.get("PreemptType", "")
    partitions = parse_partitions(answers["partitions"].stdout, preempts=preempts)
    for key, facts in (("nodes", kinds), ("partitions", partitions), ("config", config)):
        if answers[key].ok and not facts:
            problems[names[key]] = "its output was not understood"
    associations = parse_assoc(answers["assoc"].stdout) if answers["assoc"].ok else None
    default_account = _output(answers["account"]).strip().partition("\n")[0].strip()
    return ClusterFacts(
        user=user,
        groups=_groups(),
        config={key: value for key, value in config.items() if key in _CONFIG_KEYS},
        kinds=kinds,
        partitions=partitions,
        associations=associations,
        accounting=answers["sacct"].ok,
        qos=parse_qos(_output(answers["qos"])),
        default_account=default_account or None,
        problems=problems,
    )


def _output(answer: Completed) -> str:
    """Return the output of a command that succeeded; else the empty string."""
    return answer.stdout if answer.ok else ""


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _groups() -> tuple[str, ...]:
    names = []
    for gid in os.getgroups():
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:  # a directory service that does not know its own group
            continue
    return tuple(names)


def check_answered(facts: ClusterFacts, otherwise: str = "") -> None:
    """Refuse facts without any node and partition.

    Args:
        facts: the facts of the cluster.
        otherwise: what else a person can do, for the hint.

    Raises:
        SchedulerError: there is no node and no partition.
    """
    if facts.partitions or facts.shown_kinds:
        return
    reasons = "\n".join(f"{command}: {why}" for command, why in facts.problems.items())
    if reasons:
        problem = f"Slurm does not respond:\n{reasons}"
    else:
        problem = "this cluster has no partitions"
    hint = f"run it on a machine where `sinfo` works{otherwise}"
    raise SchedulerError(problem, hint=hint)
