"""Which GPU types a cluster has for a person, and in which partition to ask for each. Pure choice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpcrun.schedulers.detect import ClusterFacts
from hpcrun.schedulers.detect_text import NodeKind, Partition

_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Share:
    """What a node has, and what falls to each of its GPUs.

    Where nodes differ, ``per_node`` (a limit) is the most of them, and ``per_gpu`` (what a job gets) the least.
    """

    per_node: int
    per_gpu: int | None = None
    arithmetic: str = ""


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """The GPUs of one type.

    Attributes:
        type: Slurm's name for it, None where it has none.
        per_node: of the nodes that have most.
        counts: every number of them that a node has.
        also_in: further partitions with this type.
    """

    type: str | None
    partition: Partition
    also_in: tuple[str, ...]
    nodes: int
    per_node: int
    counts: tuple[int, ...]
    cpus: Share | None
    memory_mb: Share | None


def best_partition(facts: ClusterFacts, names: Iterable[str] | None = None) -> Partition | None:
    """Return the partition to ask for: one the person may use, not preempted, the default, else the longest."""
    wanted = None if names is None else set(names)
    found = [part for part in facts.partitions if wanted is None or part.name in wanted]
    return min(
        found,
        key=lambda part: (
            not may_use(part, facts),
            part.preempted is not None,
            not part.default,
            -(part.max_s or 10**9),
            part.name,
        ),
        default=None,
    )


def may_use(partition: Partition, facts: ClusterFacts) -> bool:
    """Return whether a person's jobs may go there, as far as partition, groups and accounts tell."""
    return why_closed(partition, facts) is None


def why_closed(partition: Partition, facts: ClusterFacts, account: str | None = None) -> str | None:
    """Return why a person's jobs may not go to a partition, None where they may.

    Args:
        account: the one that is charged; None for any of the person's.
    """
    if not partition.up:
        return "it is not up"
    if partition.root_only:
        return "it is for root alone"
    if partition.groups and not set(partition.groups) & set(facts.groups):
        return f"it is for members of {', '.join(partition.groups)}"
    mine = {account} if account else {association.account for association in facts.associations or ()}
    if mine and partition.accounts and not mine & set(partition.accounts):
        return f"it is for the accounts {', '.join(partition.accounts)}"
    if mine and not mine - set(partition.denied_accounts):
        return f"it is closed to the account {', '.join(sorted(mine))}"
    return None


def gpu_offers(facts: ClusterFacts) -> list[GpuOffer]:
    """Return the GPU types, by name; those whose name ``--gpus TYPE:N`` cannot say are left out."""
    types = {type_ for kind in facts.kinds for type_, _ in kind.gpus}
    named = sorted(type_ for type_ in types if type_ and _NAME.fullmatch(type_))
    unnamed: list[str | None] = [None] if None in types else []
    offers = [_offer(type_, facts) for type_ in named or unnamed]
    return [offer for offer in offers if offer]


def _offer(type_: str | None, facts: ClusterFacts) -> GpuOffer | None:
    holding = [kind for kind in facts.kinds if type_ in dict(kind.gpus)]
    partition = best_partition(facts, {kind.partition for kind in holding})
    if partition is None:
        return None
    here = [kind for kind in holding if kind.partition == partition.name]
    counts = {dict(kind.gpus)[type_] for kind in here}
    return GpuOffer(
        type_,
        partition,
        tuple(sorted({kind.partition for kind in holding} - {partition.name})),
        nodes=sum(kind.nodes for kind in here),
        per_node=max(counts),
        counts=tuple(sorted(counts)),
        cpus=share([(kind.cpus, _gpus_of(kind)) for kind in here], "CPUs"),
        memory_mb=share([(kind.memory_mb, _gpus_of(kind)) for kind in here], "MB"),
    )


def _gpus_of(kind: NodeKind) -> int:
    return sum(count for _, count in kind.gpus)


def share(nodes: list[tuple[int | None, int]], unit: str) -> Share | None:
    """Return what nodes have of a thing, given (how much, GPUs) of each kind; None where nothing is known."""
    known = [(amount, gpus) for amount, gpus in nodes if amount]
    if not known:
        return None
    most = max(amount for amount, _ in known)
    shares = [(amount // gpus, amount, gpus) for amount, gpus in known if gpus and amount >= gpus]
    if not shares:
        return Share(most)
    per_gpu, amount, gpus = min(shares)
    return Share(most, per_gpu, f"{amount} {unit} / {gpus} {'GPU' if gpus == 1 else 'GPUs'}")
