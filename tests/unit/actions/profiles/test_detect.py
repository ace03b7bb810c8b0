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
from hpcrun.job.profile import Profile
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
from hpcrun.schedulers.host import HostFacts
from tests.harness import REPO

RECORDED = REPO / "tests/data" / "22.05"
GPU = Partition("gpu", default=True, max_s=7200)
A100 = NodeKind("gpu", 2, 64, 512000, (("a100", 4),))
NOWHERE = HostFacts("login1", {}, {}, (), None)


def facts(kinds: list[NodeKind], partitions: list[Partition], **said: Any) -> ClusterFacts:
    values: dict[str, Any] = {
        "user": "me",
        "groups": ("lab",),
        "config": {},
        "associations": [Association("lab", None, ("normal",), None)],
        "accounting": True,
        **said,
    }
    return ClusterFacts(kinds=kinds, partitions=partitions, **values)


def text_of(found: ClusterFacts) -> str:
    return profile_text(found, host=NOWHERE)


def loaded(text: str) -> Profile:
    return load_text(text, Path("x.yaml"), [shipped_folder("cluster_profiles")]).profile


def test_the_development_cluster_as_it_was_recorded() -> None:
    nodes = (RECORDED / "scontrol-node.txt").read_text()
    partitions = (RECORDED / "scontrol-partition.txt").read_text()
    text = text_of(facts(parse_nodes(nodes), parse_partitions(partitions, preempts=True)))
    profile = loaded(text)
    assert (profile.partition, profile.account, profile.gpu.type) == ("cpu", "lab", None)
    assert list(profile.gpu.types) == ["a100", "a40", "h100", "h200", "l40s", "v100"]
    h100 = profile.gpu.types["h100"]
    assert (h100.per_node, h100.partition, h100.cpu.per_gpu, h100.memory.per_gpu) == (8, "gpu", 8, 64000)
    assert (h100.time.default, h100.time.max, profile.time.max) == (1800, 172800, 4 * 86400)
    assert '        default: "00:30:00"         # scontrol show partition: gpu, for jobs without --time\n' in text
    assert (h100.nodes, h100.card.memory_gb, profile.gpu.types["l40s"].card.nvlink_gb_s) == (2, 80, 0)
    assert "#   preempt: to 1-00:00:00; a100:4 h100:8; jobs may be displaced (REQUEUE) after 10 s" in text
    assert "partition: gpu                # also in partition h100, preempt" in text
    assert "per_gpu: 8                  # 64 CPUs / 8 GPUs" in text


def test_one_gpu_type_is_the_profiles_own_and_so_is_its_partition() -> None:
    found = facts([replace(A100, partition="big")], [GPU, Partition("big", max_s=86400, default_s=600)])
    profile = loaded(text_of(found))
    assert profile.gpu.types == {}
    assert (profile.gpu.type, profile.gpu.per_node, profile.gpu.directive) == ("a100", 4, "gres")
    assert (profile.partition, profile.time.max, profile.time.default) == ("big", 86400, 600)
    assert (profile.cpu.per_node, profile.cpu.per_gpu, profile.memory.per_gpu) == (64, 16, 128000)


def test_gpus_without_a_name() -> None:
    profile = loaded(text_of(facts([replace(A100, gpus=((None, 4),))], [GPU])))
    assert (profile.gpu.type, profile.gpu.per_node) == (None, 4)


def test_no_gpus() -> None:
    profile = loaded(text_of(facts([replace(A100, gpus=())], [GPU])))
    assert (profile.gpu.per_node, profile.cpu.per_node, profile.memory.per_node) == (0, 64, 512000)


def test_nodes_that_differ_limit_by_the_most_and_share_by_the_least() -> None:
    small = NodeKind("gpu", 1, 32, 100_000, (("a100", 8),))
    text = text_of(facts([A100, small], [GPU]))
    profile = loaded(text)
    assert (profile.gpu.per_node, profile.cpu.per_node, profile.cpu.per_gpu) == (8, 64, 4)
    assert (profile.memory.per_node, profile.memory.per_gpu) == (512000, 12500)
    assert "some nodes have 4" in text
    assert profile.gpu.nodes == 3


@pytest.mark.parametrize(
    "worse",
    [
        Partition("a", max_s=10**6, preempted="REQUEUE"),
        Partition("a", max_s=10**6, up=False),
        Partition("a", max_s=10**6, root_only=True),
        Partition("a", max_s=10**6, groups=("others",)),
        Partition("a", max_s=10**6, accounts=("others",)),
        Partition("a", max_s=10**6, denied_accounts=("lab",)),
        Partition("a", max_s=60),
    ],
    ids=str,
)
def test_the_partition_of_a_type_is_one_to_use(worse: Partition) -> None:
    kinds = [replace(A100, partition="a"), replace(A100, partition="b")]
    (offer,) = gpu_offers(facts(kinds, [worse, Partition("b", max_s=7200)]))
    assert (offer.partition.name, offer.also_in) == ("b", ("a",))


@pytest.mark.parametrize(
    ("times", "top", "each"),
    [
        (((None, 7200), (None, 7200), (None, 600)), (3600, 7200), [(None, 7200), (600, 600)]),
        (((900, 7200), (600, 3600), (None, 3600)), (900, 7200), [(600, 3600), (None, 3600)]),
        (((None, 300), (600, 3600), (600, None)), (300, None), [(600, 3600), (600, None)]),
    ],
    ids=str,
)
def test_gpu_types_have_their_own_times_and_inherit_the_default_one(times: Any, top: Any, each: Any) -> None:
    cpu, *others = (Partition(name, default_s=time[0], max_s=time[1]) for name, time in zip("cab", times, strict=True))
    kinds = [replace(A100, partition="c", gpus=()), replace(A100, partition="a")]
    kinds.append(replace(A100, partition="b", gpus=(("h100", 4),)))
    text = text_of(facts(kinds, [cpu, *others]))
    profile = loaded(text)
    assert (profile.time.default, profile.time.max) == top
    assert [(entry.time.default, entry.time.max) for entry in profile.gpu.types.values()] == each
    assert ("# time.max:" in text) == (times[2][1] is None)


def test_a_short_limit_lowers_the_default_time() -> None:
    profile = loaded(text_of(facts([A100], [Partition("gpu", default=True, max_s=600)])))
    assert (profile.time.default, profile.time.max) == (600, 600)


def test_what_could_not_be_found_is_a_comment_with_the_reason() -> None:
    problems = {"sacctmgr show assoc": "timed out after 10 s", "scontrol show config": "exit status 1"}
    found = facts([A100], [GPU], associations=None, accounting=False, problems=problems)
    text = text_of(found)
    assert "# No response: scontrol show config: exit status 1" in text
    assert "# account:                          # sacctmgr show assoc: timed out after 10 s" in text
    assert loaded(text).account is None


def test_several_accounts_are_for_the_person_to_choose_from() -> None:
    both = [Association(name, None, (), None) for name in ("b", "a")]
    assert "# account:                          # sacctmgr show assoc: a, b;" in text_of(
        facts([A100], [GPU], associations=both)
    )


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
    text = text_of(facts([A100], [GPU], associations=[Association("lab", None, qos, default)]))
    (found,) = (each for each in text.splitlines() if "qos:" in each.partition("  ")[0])
    assert " ".join(found.split()).startswith(" ".join(line.split()))
    assert loaded(text).qos == (None if line.startswith("#") else "gpu")


WORD = st.text(min_size=1, max_size=6) | st.sampled_from(
    ["null", "a: b", "#", "'", '"', "1", "\udcff", "\x85", "\ufeff"]
)
AMOUNT = st.none() | st.integers(0, 10**6)
COUNT = st.integers(1, 16)
KINDS = st.lists(
    st.builds(
        NodeKind,
        st.sampled_from(["a", "b", "c"]),
        COUNT,
        AMOUNT,
        AMOUNT,
        st.lists(st.tuples(st.none() | st.sampled_from(["x", "1g.10gb", "null"]) | WORD, COUNT), max_size=2).map(tuple),
    ),
    max_size=4,
)
TIMES = st.none() | st.integers(1, 10**7)
PARTITIONS = st.lists(
    st.builds(Partition, st.sampled_from(["a", "b"]) | WORD, st.booleans(), st.booleans(), TIMES, TIMES), max_size=3
)


@given(KINDS, PARTITIONS, st.none() | st.lists(st.builds(Association, WORD, st.none(), st.just(()), st.none())), WORD)
def test_whatever_a_cluster_says_the_profile_loads(
    kinds: list[NodeKind], partitions: list[Partition], associations: list[Association] | None, word: str
) -> None:
    found = facts(kinds, partitions, associations=associations, config={"ClusterName": word}, problems={"x": word})
    text = text_of(found)
    text.encode("utf-8")
    profile = loaded(text)
    assert profile.time.default is None or profile.time.max is None or profile.time.default <= profile.time.max


@pytest.mark.parametrize(
    ("type_", "part"),
    [
        ("a100", "a100"),
        ("A100", "a100"),
        ("a100_80gb", "a100"),
        ("nvidia_a100-sxm4-40gb", "a100-40gb"),
        ("nvidia_a100_80gb_pcie", None),
        ("a100_3g.20gb", None),
        ("nvidia_a100_1g.5gb", None),
        ("a100l", None),
        ("tesla_v100-sxm2-32gb", "v100"),
        ("v100s", None),
        ("nvidia_h100_80gb_hbm3", "h100"),
        ("h100_nvl", None),
        ("nvidia_gh200_480gb", "gh200"),
        ("gb200", "gb200"),
        ("l40", None),
        ("nvidia_l40s", "l40s"),
        ("mi300x", "mi300x"),
        ("amd_instinct_mi300x", "mi300x"),
        ("gtx1080ti", None),
        ("h100_64gb", None),
    ],
)
def test_the_card_is_known_by_slurms_name_of_its_type(type_: str, part: str | None) -> None:
    assert card_part(type_) == (f"gpu/{part}" if part else None)
    if part:
        assert (shipped_folder("cluster_profiles") / f"gpu/{part}.yaml").is_file()


def test_the_nodes_of_a_job_are_no_more_than_the_partition_allows() -> None:
    assert loaded(text_of(facts([A100], [GPU]))).gpu.nodes == 2
    text = text_of(facts([A100], [replace(GPU, max_nodes=1)]))
    assert loaded(text).gpu.nodes == 1
    assert "MaxNodes=1 of partition gpu" in text
