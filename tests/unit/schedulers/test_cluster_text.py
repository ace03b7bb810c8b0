"""What a cluster says of itself, read as records: the recorded answers of Slurm 22.05, and any text at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.schedulers.cluster_text import (
    Association,
    NodeKind,
    Partition,
    QosLimits,
    command_name,
    parse_assoc,
    parse_config,
    parse_gres,
    parse_nodes,
    parse_partitions,
    parse_qos,
    parse_records,
)
from hpcrun.schedulers.slurm_text import SEPARATOR

RECORDED = Path(__file__).parents[2] / "data" / "22.05"
WORDS = [
    "NodeName=",
    "PartitionName=x",
    " Gres=gpu:a:4",
    " CPUTot=²",
    " Partitions=a,b",
    "=",
    ",",
    "|",
    SEPARATOR,
    "\n",
]
ANYTHING = st.text() | st.lists(st.sampled_from(WORDS) | st.text(max_size=5)).map("".join)


def recorded(name: str) -> str:
    return (RECORDED / name).read_text("utf-8")


def test_kinds_of_nodes() -> None:
    kinds = parse_nodes(recorded("scontrol-node.txt"))
    assert NodeKind("gpu", 2, 64, 512000, (("h100", 8),)) in kinds
    assert NodeKind("cpu", 1, 64, 512000, ()) in kinds


def test_partitions() -> None:
    partitions = parse_partitions(recorded("scontrol-partition.txt"), preempts=True)
    by_name = {partition.name: partition for partition in partitions}
    assert list(by_name) == ["gpu", "h100", "preempt", "cpu", "debug"]
    assert by_name["gpu"] == Partition("gpu", default=True, max_s=172800, default_s=1800, priority=10)
    assert by_name["preempt"] == Partition("preempt", max_s=86400, priority=1, preempted="REQUEUE", grace_s=10)


def test_who_may_use_a_partition_whose_mode_of_preemption_means_nothing_here() -> None:
    text = "PartitionName=a AllowGroups=staff,lab AllowAccounts=ALL DenyAccounts=guest RootOnly=YES State=DOWN"
    (partition,) = parse_partitions(f"{text} PreemptMode=REQUEUE\n", preempts=False)
    assert partition == Partition("a", up=False, groups=("staff", "lab"), denied_accounts=("guest",), root_only=True)


def test_the_configuration() -> None:
    config = parse_config(recorded("scontrol-config.txt"))
    assert config["ClusterName"] == "dev"
    assert config["SLURM_VERSION"] == "22.05.8"
    assert config["PreemptType"] == "preempt/partition_prio"
    assert "Epilog" not in config  # (null)
    assert "PowerPlugin" not in config  # nothing at all


def test_associations() -> None:
    assert parse_assoc(recorded("sacctmgr-assoc.txt")) == [Association("lab", None, ("normal", "short"), None)]


def test_what_is_kept_for_the_system_is_not_offered() -> None:
    text = "NodeName=n1 CPUEfctv=60 CPUTot=64 Gres=gpu:4 RealMemory=1000 MemSpecLimit=100 Partitions=a\n"
    assert parse_nodes(text) == [NodeKind("a", 1, 60, 900, ((None, 4),))]


def test_values_with_blanks() -> None:
    text = "NodeName=n1 OS=Linux 5.1 #1 SMP Reason=bad disk [root@x] Partitions=a \n"
    assert parse_records(text, "NodeName") == [
        {"NodeName": "n1", "OS": "Linux 5.1 #1 SMP", "Reason": "bad disk [root@x]", "Partitions": "a"}
    ]


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:4", [("a100", 4)]),
        ("gpu:a100:4(S:0-1)", [("a100", 4)]),
        ("gpu:a100:2(S:0,2),gpu:v100:1(S:1)", [("a100", 2), ("v100", 1)]),
        ("gpu:8", [(None, 8)]),
        ("gpu", [(None, 1)]),
        ("gpu:h100:no_consume:8", [("h100", 8)]),
        ("nvme:1,gpu:nvidia_a100-sxm4-80gb:8", [("nvidia_a100-sxm4-80gb", 8)]),
        ("shard:a100:16", []),
        ("gpu:a100:many", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_gres(gres: str, gpus: list[tuple[str | None, int]]) -> None:
    assert list(parse_gres(gres)) == gpus


def test_a_command_is_named_without_its_options() -> None:
    assert command_name(["scontrol", "--oneliner", "show", "node"]) == "scontrol show node"
    assert command_name(["sacctmgr", "--noheader", "show", "assoc", "user=me", "format=qos"]) == "sacctmgr show assoc"


def read_all(text: str) -> None:
    parse_nodes(text)
    parse_partitions(text, preempts=True)
    parse_config(text)
    parse_assoc(text)
    parse_gres(text)
    parse_qos(text)


@given(ANYTHING)
def test_no_text_raises(text: str) -> None:
    read_all(text)


@given(st.data())
def test_no_mutilated_answer_raises(data: st.DataObject) -> None:
    names = ["scontrol-node.txt", "scontrol-partition.txt", "scontrol-config.txt"]
    text = recorded(data.draw(st.sampled_from(names)))[:3000]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    read_all(text[:start] + data.draw(st.text(max_size=5)) + text[end:])


def test_the_limits_of_each_qos() -> None:
    short = "short|cpu=64,gres/gpu=8|gres/gpu=4,node=2|gres/gpu:a100=2|00:10:00|DenyOnLimit,OverPartQOS"
    text = f"normal|||||\n{short}\nodd\n"
    assert parse_qos(text) == [QosLimits("normal"), QosLimits("short", 8, 4, None, 600, over_partition=True)]
