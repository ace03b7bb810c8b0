"""The text of a detected profile: what is chosen, what is said of it, and that it always loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.actions.profiles.detect import profile_text
from hpcrun.actions.profiles.detect_types import card_part, gpu_offers
from hpcrun.job.profile_model import Profile
from hpcrun.machine.host import HostFacts
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import load_text
from hpcrun.schedulers.cluster_facts import (
    Association,
    ClusterFacts,
    NodeKind,
    Partition,
    parse_nodes,
    parse_partitions,
)
from tests.harness import REPO

RECORDED = REPO / "tests/data" / "22.05"
GPU = Partition("gpu", default=True, max_s=7200)
A100 = NodeKind("gpu", 2, 64, 512000, (("a100", 4),))
NOWHERE = HostFacts("login1", {}, {}, (), None)


LAB = Association("lab", None, ("normal",), None)


def facts(kinds: list[NodeKind] | None, partitions: list[Partition], **said: Any) -> ClusterFacts:
    values = {
        "user": "me",
        "groups": ("lab",),
        "config": {},
        "associations": [LAB],
        "accounting": True,
        **said,
    }
    return ClusterFacts(kinds=kinds, partitions=partitions, **values)


def made(
    kinds: list[NodeKind] | None, partitions: list[Partition], **said: Any
) -> tuple[str, Profile]:
    """The text of the profile of such a cluster, and what that says."""
    text = profile_text(facts(kinds, partitions, **said), host=NOWHERE)
    return text, load_text(text, Path("x.yaml"), [shipped_folder("cluster_profiles")]).profile


def test_the_development_cluster_as_it_was_recorded() -> None:
    nodes = (RECORDED / "scontrol-node.txt").read_text()
    partitions = (RECORDED / "scontrol-partition.txt").read_text()
    text, profile = made(parse_nodes(nodes), parse_partitions(partitions, preempts=True))
    assert profile.partition == "cpu"
    assert profile.account == "lab"
    assert profile.gpu.type is None
    assert list(profile.gpu.types) == ["a100", "a40", "h100", "h200", "l40s", "v100"]
    h100 = profile.gpu.types["h100"]
    assert h100.per_node == 8
    assert h100.partition == "gpu"
    assert h100.cpu.per_gpu == 8
    assert h100.memory.per_gpu == 64000
    assert h100.time.default == 1800
    assert h100.time.max == 172800
    assert profile.time.max == 4 * 86400
    assert (
        '        default: "00:30:00"         # scontrol show partition: gpu, for jobs without '
        "--time\n" in text
    )
    assert h100.nodes == 2
    assert h100.card.memory_gb == 80
    assert profile.gpu.types["l40s"].card.nvlink_gb_s == 0
    assert (
        "#   preempt: to 1-00:00:00; a100:4 h100:8; jobs may be displaced (REQUEUE) after 10 s"
        in text
    )
    assert "partition: gpu                # also in partition h100, preempt" in text
    assert "per_gpu: 8                  # 64 CPUs / 8 GPUs" in text


def test_one_gpu_type_is_the_profiles_own_and_so_is_its_partition() -> None:
    partitions = [GPU, Partition("big", max_s=86400, default_s=600)]
    _, profile = made([replace(A100, partition="big")], partitions)
    assert profile.gpu.types == {}
    assert profile.gpu.type == "a100"
    assert profile.gpu.per_node == 4
    assert profile.gpu.directive == "gres"
    assert profile.partition == "big"
    assert profile.time.max == 86400
    assert profile.time.default == 600
    assert profile.cpu.per_node == 64
    assert profile.cpu.per_gpu == 16
    assert profile.memory.per_gpu == 128000


def test_gpus_without_a_name_and_no_gpus() -> None:
    _, profile = made([replace(A100, gpus=((None, 4),))], [GPU])
    assert profile.gpu.type is None
    assert profile.gpu.per_node == 4
    _, profile = made([replace(A100, gpus=())], [GPU])
    assert profile.gpu.per_node == 0
    assert profile.cpu.per_node == 64
    assert profile.memory.per_node == 512000


HIDDEN = {"scontrol show node": "Access/permission denied"}


def test_gpus_of_hidden_nodes_stay_unknown_with_the_reason() -> None:
    partitions = [replace(GPU, nodes=2, gpus=8), Partition("cpu", nodes=1, gpus=0)]
    text, profile = made(None, partitions, problems=HIDDEN)
    assert profile.partition == "gpu"
    assert profile.gpu.per_node is None
    assert "# per_node:" in text
    assert "not known, Slurm decides; scontrol show node: Access/permission denied" in text
    assert "no node has a GPU" not in text
    assert "gpu: default; to 02:00:00; 8 GPUs in all" in text


@pytest.mark.parametrize(("gpus", "per_node"), [(0, 0), (None, None)])
def test_hidden_nodes_have_no_gpus_only_if_their_partitions_have_none(
    gpus: int | None, per_node: int | None
) -> None:
    _, profile = made(None, [replace(GPU, nodes=2, gpus=gpus)], problems=HIDDEN)
    assert profile.gpu.per_node == per_node


def test_nodes_that_differ_limit_by_the_most_and_share_by_the_least() -> None:
    text, profile = made([A100, NodeKind("gpu", 1, 32, 100_000, (("a100", 8),))], [GPU])
    assert profile.gpu.per_node == 8
    assert profile.cpu.per_node == 64
    assert profile.cpu.per_gpu == 4
    assert profile.memory.per_node == 512000
    assert profile.memory.per_gpu == 12500
    assert "some nodes have 4" in text
    assert profile.gpu.nodes == 3


@pytest.mark.parametrize(
    "worse",
    [
        {"preempted": "REQUEUE"},
        {"up": False},
        {"root_only": True},
        {"groups": ("others",)},
        {"accounts": ("others",)},
        {"denied_accounts": ("lab",)},
        {"max_s": 60},
    ],
    ids=str,
)
def test_the_partition_of_a_type_is_one_to_use(worse: dict[str, Any]) -> None:
    kinds = [replace(A100, partition="a"), replace(A100, partition="b")]
    partitions = [Partition("a", **{"max_s": 10**6, **worse}), Partition("b", max_s=7200)]
    (offer,) = gpu_offers(facts(kinds, partitions))
    assert offer.partition.name == "b"
    assert offer.also_in == ("a",)


@pytest.mark.parametrize(
    ("times", "top", "each"),
    [
        (((None, 7200), (None, 7200), (None, 600)), (3600, 7200), [(None, 7200), (600, 600)]),
        (((900, 7200), (600, 3600), (None, 3600)), (900, 7200), [(600, 3600), (None, 3600)]),
        (((None, 300), (600, 3600), (600, None)), (300, None), [(600, 3600), (600, None)]),
    ],
    ids=str,
)
def test_gpu_types_have_their_own_times_and_inherit_the_default_one(
    times: Any, top: Any, each: Any
) -> None:
    cpu, *others = (
        Partition(name, default_s=time[0], max_s=time[1])
        for name, time in zip("cab", times, strict=True)
    )
    kinds = [replace(A100, partition="c", gpus=()), replace(A100, partition="a")]
    kinds.append(replace(A100, partition="b", gpus=(("h100", 4),)))
    text, profile = made(kinds, [cpu, *others])
    assert (profile.time.default, profile.time.max) == top
    assert [(entry.time.default, entry.time.max) for entry in profile.gpu.types.values()] == each
    assert ("# time.max:" in text) == (times[2][1] is None)


def test_a_short_limit_lowers_the_default_time() -> None:
    _, profile = made([A100], [Partition("gpu", default=True, max_s=600)])
    assert profile.time.default == 600
    assert profile.time.max == 600


def test_what_could_not_be_found_is_a_comment_with_the_reason() -> None:
    problems = {
        "sacctmgr show assoc": "timed out after 10 s",
        "scontrol show config": "exit status 1",
    }
    text, profile = made([A100], [GPU], associations=None, accounting=False, problems=problems)
    assert "# No response: scontrol show config: exit status 1" in text
    assert "# account:                          # sacctmgr show assoc: timed out after 10 s" in text
    assert profile.account is None
    # for the person to choose from
    both = [Association(name, None, (), None) for name in ("b", "a")]
    text, _ = made([A100], [GPU], associations=both)
    assert "# account:                          # sacctmgr show assoc: a, b;" in text


@pytest.mark.parametrize(
    ("qos", "default", "line"),
    [
        (("gpu",), None, "qos: gpu # sacctmgr show assoc: your only one, and not the one"),
        (("gpu",), "gpu", "# qos: # sacctmgr show assoc: gpu; Slurm takes the default one"),
        (("normal",), None, "# qos:"),
        (("gpu", "long"), None, "# qos:"),
        ((), None, "# qos:"),
    ],
)
def test_a_qos_is_written_where_slurm_would_take_one_that_the_person_may_not_use(
    qos: tuple[str, ...], default: str | None, line: str
) -> None:
    text, profile = made([A100], [GPU], associations=[replace(LAB, qos=qos, default_qos=default)])
    (found,) = (each for each in text.splitlines() if "qos:" in each.partition("  ")[0])
    assert " ".join(found.split()).startswith(line)
    assert profile.qos == (None if line.startswith("#") else "gpu")


WORD = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=6) | st.sampled_from(
    ["null", "a: b", "#", "'", '"', "1", "\udcff", "\x85", "\ufeff"]
)
AMOUNT, COUNT, TIMES = (
    st.none() | st.integers(0, 10**6),
    st.integers(1, 16),
    st.none() | st.integers(1, 10**7),
)
GPUS = st.lists(
    st.tuples(st.none() | st.sampled_from(["x", "1g.10gb", "null"]) | WORD, COUNT), max_size=2
).map(tuple)
KINDS = st.lists(
    st.builds(NodeKind, st.sampled_from(["a", "b", "c"]), COUNT, AMOUNT, AMOUNT, GPUS), max_size=4
)
PARTITIONS = st.lists(
    st.builds(
        Partition, st.sampled_from(["a", "b"]) | WORD, st.booleans(), st.booleans(), TIMES, TIMES
    ),
    max_size=3,
)


@given(
    KINDS,
    PARTITIONS,
    st.none() | st.lists(st.builds(Association, WORD, st.none(), st.just(()), st.none())),
    WORD,
)
def test_whatever_a_cluster_says_the_profile_loads(
    kinds: list[NodeKind],
    partitions: list[Partition],
    associations: list[Association] | None,
    word: str,
) -> None:
    said = {"config": {"ClusterName": word}, "problems": {"x": word}}
    text, profile = made(kinds, partitions, associations=associations, **said)
    text.encode("utf-8")
    assert (
        profile.time.default is None
        or profile.time.max is None
        or profile.time.default <= profile.time.max
    )


def test_the_card_is_known_by_slurms_name_of_its_type() -> None:
    for line in """
        a100 A100 a100_80gb | a100
        nvidia_a100-sxm4-40gb | a100-40gb
        tesla_v100-sxm2-32gb | v100
        nvidia_h100_80gb_hbm3 | h100
        nvidia_gh200_480gb | gh200
        gb200 | gb200
        nvidia_l40s | l40s
        mi300x amd_instinct_mi300x | mi300x
        nvidia_a100_80gb_pcie a100_3g.20gb nvidia_a100_1g.5gb a100l |
        v100s h100_nvl l40 gtx1080ti h100_64gb |
        """.strip().splitlines():
        types, _, part = line.partition(" |")
        for type_ in types.split():
            assert card_part(type_) == (f"gpu/{part.strip()}" if part else None), type_
        assert (
            not part or (shipped_folder("cluster_profiles") / f"gpu/{part.strip()}.yaml").is_file()
        )


def test_the_nodes_of_a_job_are_no_more_than_the_partition_allows() -> None:
    assert made([A100], [GPU])[1].gpu.nodes == 2
    text, profile = made([A100], [replace(GPU, max_nodes=1)])
    assert profile.gpu.nodes == 1
    assert "MaxNodes=1 of partition gpu" in text
