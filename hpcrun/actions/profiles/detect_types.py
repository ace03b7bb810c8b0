"""The GPU types that a user can have on a cluster, their cards, and the partition of each. Pure.

The partition is the one in which to request the type.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from hpcrun.schedulers.cluster_facts import ClusterFacts, Partition

_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_VENDORS = re.compile(r"nvidia|tesla|amd|instinct")
_CARDS: dict[str, dict[int, str]] = {
    "a100": {80: "a100", 40: "a100-40gb"},
    "a40": {48: "a40"},
    "b200": {180: "b200"},
    "b300": {288: "b300"},
    "gb200": {186: "gb200"},
    "gb300": {},
    # NVML's name says the memory of the CPU: nvidia_gh200_480gb
    "gh200": {96: "gh200", 480: "gh200"},
    "h100": {80: "h100"},
    "h200": {141: "h200"},
    "l40s": {48: "l40s"},
    "mi300x": {192: "mi300x"},
    "mi325x": {256: "mi325x"},
    "mi355x": {288: "mi355x"},
    "v100": {16: "v100", 32: "v100"},
}
"""Model → GB → the shipped part cluster_profiles/gpu/NAME.yaml."""
_OTHER_RATES = frozenset({"pcie", "nvl"})
"""A PCIe card of these models has other rates than the SXM card of the part."""
_GIGABYTES = re.compile(r"\d{2,3}gb?")
_SLICE = re.compile(r"(?<![a-z0-9])\d+g\.\d+gb|(?<![a-z0-9])mig(?![a-z])")


@dataclass(frozen=True, slots=True)
class Share:
    """The amount of a resource on a node, and its share for each GPU.

    If nodes differ, ``per_node`` (a limit) is the largest value, and ``per_gpu`` (a default) the
    smallest.
    """

    per_node: int
    per_gpu: int | None = None
    arithmetic: str = ""


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """The GPUs of one type."""

    type: str | None  # Slurm's name for it, None where it has none
    partition: Partition
    also_in: tuple[str, ...]  # further partitions with this type
    nodes: int  # how many of them a job can have
    per_node: int  # of the nodes that have most
    counts: tuple[int, ...]  # every number of them that a node has
    cpus: Share | None
    memory_mb: Share | None


def card_part(type_: str) -> str | None:
    """Return the part with the data of a card, given Slurm's name of the card's type.

    Sites choose the names, or take NVML's: ``a100``, ``a100_80gb``, ``tesla_v100-sxm2-16gb``,
    ``nvidia_h100_80gb_hbm3``. A MIG slice (``a100_3g.20gb``) is not the whole card.

    Returns:
        The name of the part; None for an unknown card.
    """
    name = type_.lower()
    parts = re.split(r"[^a-z0-9]+", _VENDORS.sub(" ", name))
    model = next((part for part in parts if part in _CARDS), None)
    if model is None or _SLICE.search(name) or _OTHER_RATES & set(parts):
        return None
    card: str | None = model
    size = next((part for part in parts if _GIGABYTES.fullmatch(part)), None)
    if size:
        card = _CARDS[model].get(int(size.rstrip("gb")))
    return f"gpu/{card}" if card else None


def best_partition(
    facts: ClusterFacts, names: Collection[str] | None = None, account: str | None = None
) -> Partition | None:
    """Return the best partition to request.

    A partition that the user may use comes first, then one without preemption, then the default,
    then the one with the longest time limit.
    """
    partitions = [part for part in facts.partitions if names is None or part.name in names]
    return min(partitions, key=lambda part: rank(part, facts, account), default=None)


def rank(
    partition: Partition, facts: ClusterFacts, account: str | None = None
) -> tuple[bool, bool, bool, int, str]:
    """Return the place of a partition among others: the lowest is the best one."""
    return (
        not may_use(partition, facts, account),
        partition.preempted is not None,
        not partition.default,
        -(partition.max_s or 10**9),
        partition.name,
    )


def partition_without_gpus(facts: ClusterFacts, account: str | None = None) -> Partition | None:
    """Return the partition for jobs without GPUs.

    The partition is one whose nodes have no GPUs, if there is one, else the best one.
    """
    free = partitions_without_gpus(facts)
    best = best_partition(facts, free, account)
    if best and may_use(best, facts, account):
        return best
    return best_partition(facts, account=account)


def partitions_without_gpus(facts: ClusterFacts) -> set[str]:
    """Return the partitions whose nodes have no GPUs."""
    if facts.kinds is None:
        return {partition.name for partition in facts.partitions if partition.gpus == 0}
    with_gpus = {kind.partition for kind in facts.kinds if kind.gpus}
    return {kind.partition for kind in facts.kinds} - with_gpus


def may_use(partition: Partition, facts: ClusterFacts, account: str | None = None) -> bool:
    """Return whether the user's jobs may run in a partition.

    The groups and accounts of the partition decide, as far as they tell.
    """
    return why_closed(partition, facts, account) is None


def accounts_of(facts: ClusterFacts) -> list[str]:
    """Return the accounts that the user may charge; none if the database does not say."""
    return sorted({association.account for association in facts.associations or ()})


def why_closed(partition: Partition, facts: ClusterFacts, account: str | None = None) -> str | None:
    """Return why the user's jobs may not run in a partition.

    The charged account decides, or any of the user's accounts.

    Returns:
        The reason; None if the jobs may run.
    """
    if not partition.up:
        return "it is not up"
    if partition.root_only:
        return "it is for root alone"
    if partition.groups and not set(partition.groups) & set(facts.groups):
        return f"it is for members of {', '.join(partition.groups)}"
    mine = {account} if account else set(accounts_of(facts))
    if mine and partition.accounts and not mine & set(partition.accounts):
        return f"it is for the accounts {', '.join(partition.accounts)}"
    if mine and not mine - set(partition.denied_accounts):
        return f"it is closed to the account {', '.join(sorted(mine))}"
    return None


def gpu_offers(facts: ClusterFacts, account: str | None = None) -> list[GpuOffer]:
    """Return the GPU types, by name, for the charged account; none if Slurm hides its nodes.

    A type that ``--gpus TYPE:N`` cannot say is left out.
    """
    kinds = facts.shown_kinds
    offers = []
    for type_ in _types_to_request(facts):
        partitions = {kind.partition for kind in kinds if type_ in dict(kind.gpus)}
        partition = best_partition(facts, partitions, account)
        if partition:
            offers.append(offer_in(partition, type_, facts))
    return offers


def _types_to_request(facts: ClusterFacts) -> list[str | None]:
    """Return Slurm's names of the GPU types, or only None if no GPU has a name."""
    types: set[str | None] = set()
    for kind in facts.shown_kinds:
        types.update(type_ for type_, _ in kind.gpus)
    named: list[str | None] = []
    named += sorted(type_ for type_ in types if type_ and _NAME.fullmatch(type_))
    if not named and None in types:
        return [None]
    return named


def offer_in(partition: Partition, type_: str | None, facts: ClusterFacts) -> GpuOffer:
    """Return the GPUs of a type in a partition that has some."""
    holding = [kind for kind in facts.shown_kinds if type_ in dict(kind.gpus)]
    here = [kind for kind in holding if kind.partition == partition.name]
    others = {kind.partition for kind in holding} - {partition.name}
    counts = {dict(kind.gpus)[type_] for kind in here}
    nodes = sum(kind.nodes for kind in here)
    if partition.max_nodes is not None:
        nodes = min(nodes, partition.max_nodes)
    cpus = []
    memory_mb = []
    for kind in here:
        gpus = sum(dict(kind.gpus).values())
        cpus.append((kind.cpus, gpus))
        memory_mb.append((kind.memory_mb, gpus))
    return GpuOffer(
        type_,
        partition,
        tuple(sorted(others)),
        nodes=nodes,
        per_node=max(counts),
        counts=tuple(sorted(counts)),
        cpus=share(cpus, "CPUs"),
        memory_mb=share(memory_mb, "MB"),
    )


def share(nodes: list[tuple[int | None, int]], unit: str) -> Share | None:
    """Return the share of a resource, given (amount, GPUs) of each kind of node.

    Returns:
        The share; None if nothing is known.
    """
    known = [(amount, gpus) for amount, gpus in nodes if amount]
    if not known:
        return None
    most = max(amount for amount, _ in known)
    shared = [(amount, gpus) for amount, gpus in known if gpus and amount >= gpus]
    if not shared:
        return Share(most)
    amount, gpus = min(shared, key=lambda node: (node[0] // node[1], node))
    noun = "GPU" if gpus == 1 else "GPUs"
    return Share(most, amount // gpus, f"{amount} {unit} / {gpus} {noun}")
