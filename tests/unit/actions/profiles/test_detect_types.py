"""Which partition is requested, and which have no GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcrun.actions.profiles.detect_types import (
    best_partition,
    partition_without_gpus,
    partitions_without_gpus,
)
from hpcrun.schedulers.cluster_facts import NodeKind, Partition
from tests.unit.actions.profiles.test_detect import A100, GPU, facts

CPU = Partition("cpu", max_s=3600)
CPUS = NodeKind("cpu", 3, 64, 512000, ())


def best(*partitions: Partition) -> str:
    """The name of the best of these partitions."""
    partition = best_partition(facts([], list(partitions)))
    assert partition is not None
    return partition.name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Partition("b"), Partition("a", root_only=True)),
        (Partition("b"), Partition("a", preempted="REQUEUE", default=True)),
        (Partition("b", default=True), Partition("a", max_s=10**6)),
        (Partition("b", max_s=7200), Partition("a", max_s=3600)),
        (Partition("b"), Partition("a", max_s=10**6)),
        (Partition("a", max_s=3600), Partition("b", max_s=3600)),
    ],
    ids=["closed", "preempted", "default", "longer", "unlimited", "by name"],
)
def test_the_best_partition_comes_first(first: Partition, second: Partition) -> None:
    assert best(first, second) == best(second, first) == first.name


def test_without_partitions_none_is_best() -> None:
    assert best_partition(facts([], [])) is None
    assert best_partition(facts([], [GPU]), ["other"]) is None


def test_the_partition_without_gpus_is_one_whose_nodes_have_none() -> None:
    found = facts([A100, CPUS], [GPU, CPU])
    assert partitions_without_gpus(found) == {"cpu"}
    assert partition_without_gpus(found) == CPU


def test_a_partition_with_some_gpus_is_not_without() -> None:
    mixed = facts([A100, replace(CPUS, partition="gpu")], [GPU])
    assert partitions_without_gpus(mixed) == set()
    assert partition_without_gpus(mixed) == GPU


def test_of_hidden_nodes_the_count_of_the_partition_tells() -> None:
    one = Partition("one", gpus=1)
    none = Partition("none", gpus=0)
    unknown = Partition("unknown")
    assert partitions_without_gpus(facts(None, [one, none, unknown])) == {"none"}


def test_a_closed_partition_without_gpus_is_not_requested() -> None:
    closed = replace(CPU, root_only=True)
    assert partition_without_gpus(facts([A100, CPUS], [GPU, closed])) == GPU
