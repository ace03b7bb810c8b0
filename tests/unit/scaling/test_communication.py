"""What summing gradients costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.job.profile import CardSection, FabricSection
from hpcrun.scaling.communication import (
    Link,
    Network,
    bucket_overlap,
    computed_s,
    exposed_s,
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


def test_communication_hides_behind_the_backward_pass_and_not_beyond() -> None:
    assert exposed_s(1.0, 30.0, 0.75) == 0.25
    assert exposed_s(10.0, 3.0, 0.75) == 8.0  # two of three seconds are the backward pass
    assert exposed_s(1.0, 30.0, 0) == 1.0


@given(
    compute_s=st.floats(1e-6, 1e3),
    comm_s=st.floats(0, 1e3),
    overlap=st.floats(0, 1),
)
def test_what_was_computed_follows_from_the_whole_step(compute_s: float, comm_s: float, overlap: float) -> None:
    step_s = compute_s + exposed_s(comm_s, compute_s, overlap)
    assert computed_s(step_s, comm_s, overlap) == pytest.approx(compute_s, rel=1e-6, abs=1e-9 * step_s)
