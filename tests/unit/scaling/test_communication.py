"""What summing gradients costs."""

from __future__ import annotations

import pytest

from hpcrun.job.profile import CardSection, FabricSection
from hpcrun.scaling.communication import (
    Link,
    Network,
    bucket_overlap,
    link_between,
    link_inside,
    ring_allreduce_s,
)

NVLINK = Link("NVLink", 360e9, 3.4e-6)
NETWORK = Link("infiniband", 50e9, 14e-6)
BOTH = Network(NVLINK, NETWORK)


def test_one_gpu_has_nothing_to_sum() -> None:
    assert ring_allreduce_s(10**9, 1, 1, Network(None, None)) == 0


def test_inside_a_node_the_formula_of_the_issue_and_six_hops() -> None:
    megabytes = 20 * 10**6  # one bucket
    expected = 2 * 3 / 4 * megabytes / 360e9 + 8.4e-6 + 6 * 3.4e-6
    assert ring_allreduce_s(megabytes, 4, 1, BOTH) == pytest.approx(expected)


def test_between_nodes_the_slowest_link_counts_and_each_bucket_waits() -> None:
    payload = 100 * 10**6  # four buckets of 25 MiB
    latency_s = 8.4e-6 + (2 * 15 - 2) * 3.4e-6 + 2 * 14e-6
    expected = 2 * 15 / 16 * payload / 50e9 + 4 * latency_s
    assert ring_allreduce_s(payload, 8, 2, BOTH) == pytest.approx(expected)


def test_one_gpu_on_each_node_uses_no_nvlink() -> None:
    assert ring_allreduce_s(10**6, 1, 4, Network(None, NETWORK)) is not None
    assert ring_allreduce_s(10**6, 2, 2, Network(None, NETWORK)) is None
    assert ring_allreduce_s(10**6, 2, 2, Network(NVLINK, None)) is None


def test_the_links_of_cards() -> None:
    h100 = CardSection(nvlink_gb_s=900, pcie_generation=5, compute_capability="9.0")
    a40 = CardSection(nvlink_gb_s=112.5, pcie_generation=4, compute_capability="8.6")
    l40s = CardSection(nvlink_gb_s=0, pcie_generation=4, compute_capability="8.9")
    assert link_inside(h100, 8) == Link("NVLink", 360e9, 3.4e-6)
    assert link_inside(a40, 2) == Link("NVLink", 45e9, 3.4e-6)
    assert link_inside(a40, 4) == link_inside(l40s, 4) == Link("PCIe 4", 24e9, 5.7e-6)
    assert link_inside(CardSection(), 4) is None


def test_the_links_of_fabrics() -> None:
    one = FabricSection(kind="infiniband", bandwidth_gbit_s=400)
    two = FabricSection(kind="infiniband", bandwidth_gbit_s=400, hcas=("mlx5_0", "mlx5_1"))
    assert link_between(one) == Link("infiniband 400 Gbit/s", 50e9, 14e-6)
    assert link_between(two) == Link("infiniband 2 × 400 Gbit/s", 100e9, 14e-6)
    assert link_between(FabricSection(kind="ethernet")) is None


def test_a_model_of_one_bucket_hides_nothing() -> None:
    assert bucket_overlap(10**6) == 0
    assert bucket_overlap(100 * 1024**2) == 0.75
