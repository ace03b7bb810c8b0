"""The text of a detected profile: every value with its source, every gap with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.profiles.detect_types import (
    GpuOffer,
    Share,
    accounts_of,
    card_part,
    gpu_offers,
    may_use,
    partition_without_gpus,
    partitions_without_gpus,
    share,
)
from hpcrun.errors import HpcrunError, ProfileError
from hpcrun.job.profile import Profile
from hpcrun.job.units import format_memory, format_time
from hpcrun.profiles.folders import Source
from hpcrun.profiles.load import SUFFIX, load_text
from hpcrun.schedulers.client import Trial
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, Partition
from hpcrun.schedulers.host import HostFacts

_PLAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_COMMENT_COLUMN = 34
_NODES, _PARTITIONS = "scontrol show node", "scontrol show partition"
# the time of a job that requests none, from the base profile
_USUAL_DEFAULT_S = 3600
_Times = tuple[int, int | None]  # seconds: of a job that says no time, and the most; None for no limit


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices that a cluster leaves to the user; None for a choice that was not made."""

    account: str | None = None
    gpu_type: str | None = None  # the type that ``--gpus N`` means


@dataclass(frozen=True, slots=True)
class DetectedCluster:
    """All detected facts."""

    facts: ClusterFacts
    offers: list[GpuOffer]
    trials: list[Trial] | None  # of the forms of the GPU directive; None if none was tried
    host: HostFacts | None  # None if it was not looked at
    in_job: bool  # whether the host is a compute node: hpcrun runs inside a job
    choices: Choices = Choices()


def profile_text(cluster: DetectedCluster) -> str:
    """Return the YAML of a profile."""
    facts = cluster.facts
    partition = partition_without_gpus(facts, cluster.choices.account)
    if len(cluster.offers) == 1:  # the only type's partition is the profile's own
        partition = cluster.offers[0].partition
    name, version = facts.config.get("ClusterName", "unknown"), facts.config.get("SLURM_VERSION", "of unknown version")
    lines = [
        *_heading(cluster),
        *(comment(f"No response: {command}: {why}") for command, why in facts.problems.items()),
        "extends: base/slurm",  # the values for every Slurm cluster
        _line(0, f"description: {scalar(f'{name}, Slurm {version}')}", "scontrol show config"),
        "scheduler: slurm",
        *_partition_lines(facts, partition),
        *_account_lines(facts, cluster.choices.account),
        *_gpu_lines(cluster, partition),
        *_own_lines(cluster, partition),
        "",
        *_table(facts, cluster.choices.account),
        *_accounting(facts),
        *(_host_lines(cluster.host, in_job=cluster.in_job) if cluster.host else []),
    ]
    return "\n".join(lines) + "\n"


def _heading(cluster: DetectedCluster) -> Iterator[str]:
    user, sources = cluster.facts.user, "A comment names the source of each value; values that were not found are "
    if cluster.host is None:
        yield comment(f"Detected by hpcrun for user {user}, and detected again when Slurm's configuration changes.")
        yield comment("`hpcrun profile set detected KEY=VALUE` changes a value; `hpcrun init` makes a profile of it.")
        yield comment(f"{sources}commented out.")
    else:
        yield comment(f"Detected by hpcrun on {cluster.host.name} for user {user}.")
        yield comment(f"{sources}commented out. Correct what is wrong.")


def scalar(value: str) -> str:
    """Return a word as YAML: plain if no character has a meaning, else in double quotes."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(_printable(value), ensure_ascii=False)


def comment(text: str) -> str:
    """Return text behind a ``#``, on one line."""
    return f"# {_printable(text)}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _line(depth: int, text: str, source: str = "") -> str:
    left = "  " * depth + text
    return f"{left:<{_COMMENT_COLUMN}}  {comment(source)}" if source else left


def _partition_lines(facts: ClusterFacts, chosen: Partition | None) -> list[str]:
    if chosen is None:
        return [_line(0, "# partition:", "scontrol named no partition; Slurm's default is used")]
    if chosen.name in partitions_without_gpus(facts) and any(kind.gpus for kind in facts.kinds):
        why = "for jobs without GPUs"
    elif chosen.default:
        why = "the default"
    elif any(partition.default for partition in facts.partitions):
        why = "Slurm's default partition has other nodes or is not open to you"
    else:
        why = "the cluster has no default partition"
    return [_line(0, f"partition: {scalar(chosen.name)}", f"{_PARTITIONS}: {why}")]


def _account_lines(facts: ClusterFacts, chosen: str | None) -> list[str]:
    source = "sacctmgr show assoc"
    if chosen and not facts.associations:
        return [_line(0, f"account: {scalar(chosen)}", "your choice"), _line(0, "# qos:", f"{source}: does not say")]
    if facts.associations is None:
        why = facts.problems.get(source, "no response")
        return [_line(0, "# account:", f"{source}: {why}"), _line(0, "# qos:", "as account")]
    if not facts.associations:
        return [_line(0, "# account:", f"{source}: user {facts.user} has none"), _line(0, "# qos:", "as account")]
    accounts = accounts_of(facts)
    if chosen:
        why = "your default in Slurm" if chosen == facts.default_account else "your choice"
        account = _line(0, f"account: {scalar(chosen)}", f"{why}; {source}: {', '.join(accounts)}")
    elif len(accounts) == 1:
        account = _line(0, f"account: {scalar(accounts[0])}", f"{source}: your only one")
    else:
        account = _line(0, "# account:", f"{source}: {', '.join(accounts)}; Slurm takes your default one")
    charged = chosen or (accounts[0] if len(accounts) == 1 else None)
    return [account, _qos_line([each for each in facts.associations if charged in (None, each.account)], source)]


def _qos_line(mine: Sequence[Association], source: str) -> str:
    """Return the line of the QOS: it has a value only if the user may not use Slurm's default."""
    qos = sorted({qos for association in mine for qos in association.qos})
    # without a default of its own an association has "normal" (slurmctld, job_mgr.c)
    defaults = {association.default_qos or "normal" for association in mine}
    if len(qos) == 1 and not defaults & set(qos):
        return _line(0, f"qos: {scalar(qos[0])}", f"{source}: your only one, and not the one that Slurm would take")
    return _line(0, "# qos:", f"{source}: {', '.join(qos) or 'none'}; Slurm takes the default one")


def _gpu_lines(cluster: DetectedCluster, partition: Partition | None) -> list[str]:
    if not cluster.offers:
        return [_line(0, "# gpu:", f"{_NODES}: no node has a GPU that a job can request")]
    lines = ["gpu:", _directive_line(cluster.trials)]
    if len(cluster.offers) == 1:
        only = cluster.offers[0]
        if only.type:
            lines.append(_line(1, f"type: {scalar(only.type)}", _NODES))
        else:
            lines.append(_line(1, "# type:", f"{_NODES}: Slurm has no type for these GPUs"))
        return [*lines, *_node_lines(1, only), *_card_lines(0, only)]
    if cluster.choices.gpu_type:
        lines.append(_line(1, f"type: {scalar(cluster.choices.gpu_type)}", "your choice: the type of --gpus N"))
    else:
        lines.append(_line(1, "# type:", "the type of --gpus N; without it, --gpus N is an error"))
    lines.append("  types:")
    for offer in cluster.offers:
        lines += _type_lines(offer, _own_times(cluster, partition))
    return lines


def _directive_line(trials: list[Trial] | None) -> str:
    if trials is None:  # each trial uses up a job id, and every Slurm takes this form
        return _line(1, "directive: gres", "not tried; every Slurm accepts --gres")
    accepted = [trial.form for trial in trials if trial.accepted]
    if accepted:
        refused = [trial.form for trial in trials if not trial.accepted]
        answer = f"accepted {', '.join(accepted)}" + (f"; not {', '.join(refused)}" if refused else "")
        return _line(1, f"directive: {accepted[0]}", f"sbatch --test-only: {answer}")
    why = trials[0].message if trials else "not tried"
    return _line(1, "# directive: gres", f"sbatch --test-only accepted no form: {why or 'no response'}")


def _node_lines(depth: int, offer: GpuOffer) -> list[str]:
    differ = f"some nodes have {', '.join(str(count) for count in offer.counts[:-1])}" if len(offer.counts) > 1 else ""
    lines = [_line(depth, f"per_node: {offer.per_node}", f"{_NODES}: {differ}" if differ else _NODES)]
    most = offer.partition.max_nodes
    why = f"MaxNodes={most} of partition {offer.partition.name}" if offer.nodes == most else "a job cannot have more"
    return [*lines, _line(depth, f"nodes: {offer.nodes}", f"{_NODES}: {why}")] if offer.nodes else lines


def _card_lines(depth: int, offer: GpuOffer) -> list[str]:
    if offer.type is None:
        return []
    part = card_part(offer.type)
    if part is None:
        return [_line(depth, "# card:", "hpcrun has no data of this card")]
    return [_line(depth, f"card: {part}", "by the name of the type; `hpcrun scale plan` computes with its data")]


def _type_lines(offer: GpuOffer, inherited: _Times) -> list[str]:
    times = _default_s(offer.partition, inherited[0]), offer.partition.max_s
    also = f"also in partition {', '.join(offer.also_in)}" if offer.also_in else ""
    return [
        _line(2, f"{scalar(offer.type or '')}:"),
        *_node_lines(3, offer),
        _line(3, f"partition: {scalar(offer.partition.name)}", also or _PARTITIONS),
        *_share_lines(3, offer.cpus, offer.memory_mb),
        *_time_lines(3, offer.partition, times, inherited),
        *_card_lines(3, offer),
    ]


def _share_lines(depth: int, cpus: Share | None, memory_mb: Share | None) -> list[str]:
    lines = []
    for key, amounts in (("cpu", cpus), ("memory", memory_mb)):
        if amounts is None:
            lines.append(_line(depth, f"# {key}:", f"{_NODES}: does not say"))
            continue
        form = format_memory if key == "memory" else str
        lines += [f"{'  ' * depth}{key}:", _line(depth + 1, f"per_node: {form(amounts.per_node)}", _NODES)]
        if amounts.per_gpu:
            lines.append(_line(depth + 1, f"per_gpu: {form(amounts.per_gpu)}", amounts.arithmetic))
    return lines


def _own_lines(cluster: DetectedCluster, partition: Partition | None) -> list[str]:
    """Return the values for the only GPU type; if there are several or none, those for jobs without GPUs."""
    if len(cluster.offers) == 1:
        only = cluster.offers[0]
        lines = _share_lines(0, only.cpus, only.memory_mb)
    else:
        here = [kind for kind in cluster.facts.kinds if partition and kind.partition == partition.name]
        cpus = share([(kind.cpus, 0) for kind in here], "CPUs")
        lines = _share_lines(0, cpus, share([(kind.memory_mb, 0) for kind in here], "MB"))
    if partition is None:
        return lines
    return [*lines, *_time_lines(0, partition, _own_times(cluster, partition), (_USUAL_DEFAULT_S, None))]


def _own_times(cluster: DetectedCluster, partition: Partition | None) -> _Times:
    """Return the times at the top of the profile, which GPU types inherit; a default that all types share is there."""
    if partition is None:
        return _USUAL_DEFAULT_S, None
    theirs = {offer.partition.default_s for offer in cluster.offers}
    shared_s = theirs.pop() if len(theirs) == 1 else None
    # an entry of gpu.types cannot take the profile's limit away
    unlimited = any(offer.partition.max_s is None for offer in cluster.offers)
    default_s = _default_s(partition, shared_s or _USUAL_DEFAULT_S)
    return default_s, None if unlimited else partition.max_s


def _default_s(partition: Partition, otherwise_s: int) -> int:
    """Return the time of a partition's jobs that request none."""
    default_s = partition.default_s or otherwise_s
    return default_s if partition.max_s is None else min(default_s, partition.max_s)


def _time_lines(depth: int, partition: Partition, times: _Times, inherited: _Times) -> list[str]:
    """Return the times of a partition that are not inherited."""
    (default_s, most), source = times, f"{_PARTITIONS}: {partition.name}"
    values, notes = [], []
    if default_s != inherited[0] or (depth == 0 and partition.default_s):
        is_own = partition.default_s or default_s == partition.max_s
        whose = source if is_own else f"{_PARTITIONS}: all partitions with GPUs"
        values.append(_line(depth + 1, f"default: {_time(default_s)}", f"{whose}, for jobs without --time"))
    if partition.max_s is None:
        notes.append(_line(depth, "# time.max:", f"{source} has no limit"))
    elif most is None:
        why = "left out: a GPU type has no time limit, and would inherit this one"
        notes.append(_line(depth, f"# time.max: {_time(partition.max_s)}", f"{source}; {why}"))
    elif most != inherited[1]:
        values.append(_line(depth + 1, f"max: {_time(most)}", source))
    return [*notes, *(["  " * depth + "time:", *values] if values else [])]


def _time(seconds: int) -> str:
    return json.dumps(format_time(seconds))


def _table(facts: ClusterFacts, account: str | None) -> list[str]:
    lines = [comment(f"Partitions ({_PARTITIONS}):")]
    for part in sorted(facts.partitions, key=lambda part: (not part.default, part.name)):
        gpus = sorted({f"{type_ or 'gpu'}:{n}" for k in facts.kinds if k.partition == part.name for type_, n in k.gpus})
        words = [
            "default" if part.default else "",
            f"to {format_time(part.max_s)}" if part.max_s else "no time limit",
            " ".join(gpus) or "no GPUs",
            f"jobs may be displaced ({part.preempted}) after {part.grace_s} s" if part.preempted else "",
            "" if may_use(part, facts, account) else "probably not open to you",
        ]
        lines.append(comment(f"  {part.name}: {'; '.join(text for text in words if text)}"))
    return lines


def _accounting(facts: ClusterFacts) -> Iterator[str]:
    enforced = facts.config.get("AccountingStorageEnforce", "nothing")
    works = "answers" if facts.accounting else f"does not respond: {facts.problems.get('sacct', 'unknown')}"
    type_, mode = (facts.config.get(key, "unknown") for key in ("PreemptType", "PreemptMode"))
    yield comment(f"Accounting: sacct {works}; enforced: {enforced}")
    yield comment(f"Preemption (scontrol show config): {type_}, {mode}")


def _host_lines(host: HostFacts, *, in_job: bool) -> list[str]:
    where = "a compute node" if in_job else "not inside a job: run it in one to see a compute node"
    gpus = ", ".join(f"{count} × {model}" for model, count in host.gpus.items())
    hcas = ", ".join(f"{name} ({link})" if link else name for name, link in host.hcas.items())
    modules = f"{host.modules}; `module avail` lists what modules: [...] may load" if host.modules else "none"
    return [
        comment(f"Seen on {host.name} ({where}):"),
        comment(f"  GPUs (nvidia-smi): {host.problem or gpus or 'none'}"),
        comment(f"  InfiniBand and RoCE (/sys/class/infiniband): {hcas or 'none'}"),
        comment(f"  interfaces (/sys/class/net): {', '.join(host.interfaces) or 'none'}"),
        comment(f"  modules: {modules}"),
        "# NCCL finds its network by itself. Name interfaces or adapters only if that fails, and only those that",
        "# every node has: a name in NCCL_SOCKET_IFNAME or NCCL_IB_HCA that a node lacks fails every rank.",
    ]


def quick_profile_text(facts: ClusterFacts) -> str:
    """Return the text of the profile ``detected``.

    sbatch is not asked for the form of its GPU directive: each --test-only uses up a job id, and --gres works on every
    Slurm that has GPUs.
    """
    return profile_text(DetectedCluster(facts, gpu_offers(facts), None, None, in_job=False))


def check_loads(text: str, folders: Sequence[Source]) -> Profile:
    """Load the text as a profile: hpcrun writes only a profile that loads."""
    path = Path(f"detected{SUFFIX}")  # for messages; nothing is written
    try:
        return load_text(text, path, folders).profile
    except ProfileError as error:
        message = error.message.replace(f"{path}:", "line ")
        raise HpcrunError(
            f"the detected profile is not valid: {message}\n{text}",
            hint="this is a bug in hpcrun; please report it with the text above",
        ) from None
