"""The time of a step's all-reduce of gradients: a ring over a profile's card and fabric.

t = buckets · latency + 2(N-1)/N · bytes / bandwidth, with the latency of 2(N-1) hops. The volume is the least of any
all-reduce (Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002; nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.job.profile import CardSection, FabricSection

NVLINK_USABLE = 0.8
"""Usable share of the rate: NCCL assumes 20.0 to 20.6 of 25 GB/s (SM70 to SM90_NVLINK_BW, src/graph/topo.h)."""

PCIE3_GB_S = 12.0
"""The rate of 16 lanes of PCIe 3 in one direction (PCI_BW, src/graph/topo.h of NCCL); each generation doubles it."""

BUCKET_BYTES = 25 * 1024**2
"""The size of DDP's buckets of gradients (torch.nn.parallel.DistributedDataParallel, bucket_cap_mb)."""

BACKWARD_SHARE = 2 / 3
"""Share of a step's computation: backward has twice the work of forward (Kaplan et al. 2020, arXiv:2001.08361, 2.1)."""

# NCCL, src/graph/tuning.cc: baseLat and hwLat of a ring with the protocol Simple, the one for large messages
_BASE_LATENCY_S = 8.4e-6
_NVLINK_LATENCY_S = 3.4e-6
_PCIE_LATENCY_S = 5.7e-6
_NETWORK_LATENCY_S = 14e-6

_BRIDGED = "8.6"
"""The compute capability of cards whose NVLink is a bridge between two (NVIDIA A40 product brief PB-09976)."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connection of two GPUs.

    Attributes:
        name: for display.
        bytes_per_s: in one direction, as assumed by NCCL.
        latency_s: of one hop.
    """

    name: str
    bytes_per_s: float
    latency_s: float


PCIE_3 = Link("PCIe 3", PCIE3_GB_S * 1e9, _PCIE_LATENCY_S)
ETHERNET_25 = Link("25 Gbit/s", 25e9 / 8, _NETWORK_LATENCY_S)
"""Links to assume where a profile names none: the slower ones of the last ten years."""


@dataclass(frozen=True, slots=True)
class Network:
    """The links between the GPUs of a job; None for a link that is not in the profile."""

    inside: Link | None
    between: Link | None


def link_inside(card: CardSection, gpus_per_node: int) -> Link | None:
    """Return the link between the GPUs of one node: NVLink if the card has it, else PCIe."""
    bridge_only = card.compute_capability == _BRIDGED and gpus_per_node > 2
    if card.nvlink_gb_s and not bridge_only:
        return Link("NVLink", card.nvlink_gb_s / 2 * 1e9 * NVLINK_USABLE, _NVLINK_LATENCY_S)
    if card.pcie_generation:
        gigabytes_per_s = PCIE3_GB_S * 2.0 ** (card.pcie_generation - 3)
        return Link(f"PCIe {card.pcie_generation}", gigabytes_per_s * 1e9, _PCIE_LATENCY_S)
    return None


def link_between(fabric: FabricSection) -> Link | None:
    """Return the link between the nodes: all adapters in the profile, or one."""
    if fabric.bandwidth_gbit_s is None:
        return None
    adapters = len(fabric.hcas) or 1
    rate = f"{fabric.bandwidth_gbit_s:g} Gbit/s"
    name = f"{fabric.kind or 'network'} {f'{adapters} × ' if adapters > 1 else ''}{rate}"
    return Link(name, adapters * fabric.bandwidth_gbit_s * 1e9 / 8, _NETWORK_LATENCY_S)


def ring_allreduce_s(payload_bytes: int, gpus_per_node: int, nodes: int, network: Network) -> float | None:
    """Return the time of a ring all-reduce; None if a link that it needs is unknown.

    The slowest link sets the bandwidth. Hops are counted like in NCCL: 2(nodes-1) of the 2(N-1) hops are between nodes.
    """
    gpus = gpus_per_node * nodes
    if gpus == 1:
        return 0.0
    links = [*([network.inside] if gpus_per_node > 1 else []), *([network.between] if nodes > 1 else [])]
    known = [link for link in links if link is not None]
    if len(known) < len(links):
        return None
    hops_between = 2 * (nodes - 1)
    hops_inside = 2 * (gpus - 1) - hops_between
    latency_s = _BASE_LATENCY_S
    latency_s += hops_inside * (network.inside.latency_s if network.inside else 0)
    latency_s += hops_between * (network.between.latency_s if network.between else 0)
    volume = 2 * (gpus - 1) / gpus * payload_bytes
    return bucket_count(payload_bytes) * latency_s + volume / min(link.bytes_per_s for link in known)


def bucket_count(payload_bytes: int) -> int:
    """Return the number of all-reduces in which DDP sums this many bytes of gradients."""
    return max(1, -(-payload_bytes // BUCKET_BYTES))


def bucket_overlap(payload_bytes: int) -> float:
    """Return the share of communication that DDP can start before the backward pass ends: all but the last bucket.

    PyTorch Distributed, Li et al. 2020 (arXiv:2006.15704).
    """
    return 1 - min(1.0, BUCKET_BYTES / payload_bytes)
