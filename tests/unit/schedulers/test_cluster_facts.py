"""The facts of a cluster: read from recorded answers and from any text at all, and for how long
they are valid.
"""

from __future__ import annotations

import grp
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import SchedulerError
from hpcrun.machine.process import Completed, SlurmSite
from hpcrun.schedulers.cluster_facts import (
    Association,
    ClusterFacts,
    NodeKind,
    Partition,
    QosLimits,
    _groups,
    ask_facts,
    check_answered,
    command_name,
    parse_assoc,
    parse_gres,
    parse_nodes,
    parse_partitions,
    parse_qos,
    parse_records,
)
from hpcrun.schedulers.cluster_facts_cache import VALID_S, FactsCache
from hpcrun.schedulers.slurm_text import parse_config
from hpcrun.version import __version__

RECORDED = Path(__file__).parents[2] / "data" / "22.05"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text("utf-8")


def test_recorded_nodes_partitions_configuration_and_associations() -> None:
    kinds = parse_nodes(recorded("scontrol-node.txt"))
    assert NodeKind("gpu", 2, 64, 512000, (("h100", 8),)) in kinds
    assert NodeKind("cpu", 1, 64, 512000, ()) in kinds
    partitions = parse_partitions(recorded("scontrol-partition.txt"), preempts=True)
    by_name = {partition.name: partition for partition in partitions}
    assert list(by_name) == ["gpu", "h100", "preempt", "cpu", "debug"]
    assert by_name["gpu"] == Partition(
        "gpu", default=True, max_s=172800, default_s=1800, priority=10, nodes=10, gpus=52
    )
    assert by_name["preempt"] == Partition(
        "preempt",
        max_s=86400,
        priority=1,
        preempted="REQUEUE",
        grace_s=10,
        nodes=4,
        gpus=24,
    )
    assert by_name["cpu"].gpus == 0
    config = parse_config(recorded("scontrol-config.txt"))
    assert config["ClusterName"] == "dev"
    assert config["SLURM_VERSION"] == "22.05.8"
    assert config["PreemptType"] == "preempt/partition_prio"
    assert "Epilog" not in config  # (null)
    assert "PowerPlugin" not in config  # nothing at all
    assert parse_assoc(recorded("sacctmgr-assoc.txt")) == [
        Association("lab", None, ("normal", "short"), None)
    ]


def test_partitions_nodes_and_limits_as_other_sites_have_them() -> None:
    text = (
        "PartitionName=a AllowGroups=staff,lab AllowAccounts=ALL DenyAccounts=guest "
        "RootOnly=YES State=DOWN"
    )
    (partition,) = parse_partitions(f"{text} PreemptMode=REQUEUE\n", preempts=False)
    assert partition == Partition(
        "a", up=False, groups=("staff", "lab"), denied_accounts=("guest",), root_only=True
    )
    # what is kept for the system is not offered
    text = (
        "NodeName=n1 CPUEfctv=60 CPUTot=64 Gres=gpu:4 RealMemory=1000 MemSpecLimit=100 "
        "Partitions=a\n"
    )
    assert parse_nodes(text) == [NodeKind("a", 1, 60, 900, ((None, 4),))]
    text = "NodeName=n1 OS=Linux 5.1 #1 SMP Reason=bad disk [root@x] Partitions=a \n"
    assert parse_records(text, "NodeName") == [
        {
            "NodeName": "n1",
            "OS": "Linux 5.1 #1 SMP",
            "Reason": "bad disk [root@x]",
            "Partitions": "a",
        }
    ]
    short = (
        "short|cpu=64,gres/gpu=8|gres/gpu=4,node=2|gres/gpu:a100=2|00:10:00|DenyOnLimit,OverPartQOS"
    )
    text = f"normal|||||\n{short}\nodd\n"
    assert parse_qos(text) == [
        QosLimits("normal"),
        QosLimits("short", 8, 4, None, 600, over_partition=True),
    ]
    assert command_name(["scontrol", "--oneliner", "show", "node"]) == "scontrol show node"
    assert (
        command_name(["sacctmgr", "--noheader", "show", "assoc", "user=me", "format=qos"])
        == "sacctmgr show assoc"
    )


def test_a_memory_that_is_not_set_is_unknown() -> None:
    (kind,) = parse_nodes("NodeName=n1 CPUTot=64 RealMemory=1 Partitions=a\n")
    assert kind.memory_mb is None


def test_where_slurm_counts_no_gpus_their_number_is_unknown() -> None:
    text = "PartitionName=a TotalNodes=2 TRES=cpu=8,mem=2G,node=2\n"
    (partition,) = parse_partitions(text, preempts=False)
    assert partition == Partition("a", nodes=2, gpus=None)


@dataclass(frozen=True)
class HidesNodes(SlurmSite):
    """A cluster whose scontrol shows its partitions, and answers so about its nodes."""

    answer: Completed | None = None

    def run(self, argv: Sequence[str], **variables: str) -> Completed:
        if argv[-1] == "node":
            assert self.answer is not None
            return self.answer
        if argv[-1] == "partition":
            return Completed("scontrol", 0, recorded("scontrol-partition.txt"), "")
        return Completed("scontrol", 0, "", "")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Completed("scontrol", 1, "", "slurm_load_nodes: Access denied\n"), id="fails"),
        pytest.param(Completed("scontrol", 0, "", ""), id="prints nothing"),
    ],
)
def test_nodes_that_slurm_hides_are_unknown(answer: Completed) -> None:
    facts = ask_facts(HidesNodes({}, answer=answer))
    assert facts.kinds is None
    assert "scontrol show node" in facts.problems


def test_gres() -> None:
    table: dict[str, list[tuple[str | None, int]]] = {
        "gpu:a100:4(S:0-1)": [("a100", 4)],
        "gpu:a100:2(S:0,2),gpu:v100:1(S:1)": [("a100", 2), ("v100", 1)],
        "gpu:8": [(None, 8)],
        "gpu": [(None, 1)],
        "gpu:h100:no_consume:8": [("h100", 8)],
        "nvme:1,gpu:nvidia_a100-sxm4-80gb:8": [("nvidia_a100-sxm4-80gb", 8)],
        "shard:a100:16": [],
        "gpu:a100:many": [],
        "(null)": [],
        "": [],
        "gpu:a100:nvlink:4": [],  # no form of Slurm's
    }
    assert {gres: list(parse_gres(gres)) for gres in table} == table


def read_all(text: str) -> None:
    parse_nodes(text)
    parse_partitions(text, preempts=True)
    parse_config(text)
    parse_assoc(text)
    parse_gres(text)
    parse_qos(text)


@given(st.data())
def test_no_mutilated_answer_raises(data: st.DataObject) -> None:
    names = ["scontrol-node.txt", "scontrol-partition.txt", "scontrol-config.txt"]
    text = recorded(data.draw(st.sampled_from(names)))[:3000]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    read_all(text[:start] + data.draw(st.text(max_size=5)) + text[end:])


NOW = 1_000_000.0
FACTS = ClusterFacts(
    user="me",
    groups=("lab", "gpu"),
    config={"ClusterName": "dev", "AccountingStorageType": "accounting_storage/slurmdbd"},
    kinds=[NodeKind("gpu", 2, 64, None, (("a100", 4), (None, 2)))],
    partitions=[Partition("gpu", default=True, max_s=60, accounts=("lab",), qos=("normal",))],
    associations=[Association("lab", None, ("normal", "short"), None)],
    accounting=True,
    default_account="lab",
    qos=[QosLimits("normal", gpus_per_user=4)],
)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    cache = FactsCache(tmp_path / "cache", "dev")
    for facts in (FACTS, replace(FACTS, associations=None, kinds=None)):
        assert cache.load(NOW) is None
        cache.save(facts, NOW)
        assert cache.load(NOW + 1) == facts
        assert FactsCache(tmp_path / "cache", "other").load(NOW + 1) is None
        cache.path.chmod(0o666)  # others can write it
        assert cache.load(NOW + 1) is None
        cache.save(facts, NOW)
        cache.drop()


def test_whole_answers_are_kept_for_an_hour(tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, None)
    no_database = replace(FACTS, config={}, problems={"sacctmgr show assoc": "no accounting"})
    for facts in (FACTS, no_database):
        cache.save(facts, NOW)
        assert cache.load(NOW + VALID_S - 1) == facts
        assert cache.load(NOW + VALID_S) is None
        assert cache.load(NOW - 10) is None  # of a clock that was set back


@pytest.mark.parametrize("command", ["sacctmgr show assoc", "scontrol show node"])
def test_a_partial_answer_is_not_kept(command: str, tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, None)
    cache.save(replace(FACTS, problems={command: "timed out after 5 s"}), NOW)
    assert cache.load(NOW) is None


BAD_FACTS = json.dumps(
    {"version": __version__, "asked_s": NOW - 1, "valid_s": 9e9, "facts": {"kinds": 7}}
)


def test_a_damaged_file_is_asked_again(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cache = FactsCache(tmp_path, "dev")
    os.mkfifo(cache.path, 0o600)
    assert cache.load(NOW) is None
    cache.path.unlink()
    for text in ("", "{}", "[]", BAD_FACTS, "[" * 200_000):
        with subtests.test(text=text):
            cache.path.write_text(text)
            assert cache.load(NOW) is None


def test_a_group_without_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known = os.getgid()
    monkeypatch.setattr(os, "getgroups", lambda: [2**31 - 5, known])
    assert _groups() == (grp.getgrgid(known).gr_name,)


def nothing(**problems: str) -> ClusterFacts:
    """The facts of a cluster that shows neither nodes nor partitions."""
    return ClusterFacts(
        user="me",
        groups=(),
        config={},
        kinds=None,
        partitions=[],
        associations=None,
        accounting=False,
        problems=problems,
    )


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        pytest.param(
            nothing(sinfo="timed out"), "Slurm does not respond:\nsinfo: timed out", id="no answer"
        ),
        pytest.param(nothing(), "this cluster has no partitions", id="none"),
    ],
)
def test_a_cluster_without_nodes_and_partitions_is_refused(
    facts: ClusterFacts, message: str
) -> None:
    with pytest.raises(SchedulerError) as refused:
        check_answered(facts, ", or --profile local")
    assert refused.value.message == message
    assert refused.value.hint == "run it on a machine where `sinfo` works, or --profile local"


def test_a_cluster_of_hidden_nodes_has_answered() -> None:
    check_answered(replace(nothing(), partitions=[Partition("gpu")]))
