"""The nodes that a job waits for: only those whose return lets it start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hpcrun.machine.process import Completed, SlurmSite
from hpcrun.schedulers.away_nodes import (
    AwaitedNodes,
    ListedNode,
    choose_awaited,
    may_wait,
    nodes_words,
    parse_listed,
)

H100 = (("h100", 8),)
DRAINED = ListedNode("h100-1", "gpu", "drained", "bad fan", H100, 64, 512000)
IDLE = ListedNode("h100-2", "gpu", "idle", None, H100, 64, 512000)
OTHER = ListedNode("a100-1", "gpu", "down*", "Not responding", (("a100", 4),), 64, 512000)
LISTED = [DRAINED, IDLE, OTHER]
TWO = {"nodes": "2", "gres": "gpu:h100:8"}


def names(directives: dict[str, str], *listed: ListedNode) -> list[str]:
    return [node.name for node in choose_awaited(listed or LISTED, directives)]


@pytest.mark.parametrize(
    ("directives", "awaited"),
    [
        pytest.param(TWO, ["h100-1"], id="too few without it"),
        pytest.param({**TWO, "nodes": "1"}, [], id="another has what it needs"),
        pytest.param({**TWO, "nodes": "3"}, [], id="too few with it"),
        pytest.param({**TWO, "cpus-per-task": "65"}, [], id="no node has the CPUs"),
        pytest.param({**TWO, "mem": "600G"}, [], id="no node has the memory"),
        pytest.param({**TWO, "nodes": "1", "nodelist": "h100-1"}, ["h100-1"], id="it is named"),
        pytest.param({"nodes": "1", "gpus": "a100:4"}, ["a100-1"], id="GPUs of the job"),
        pytest.param({"nodes": "1", "gpus-per-node": "a100:4"}, ["a100-1"], id="GPUs of a node"),
    ],
)
def test_a_job_waits_for_the_nodes_that_it_cannot_do_without(
    directives: dict[str, str], awaited: list[str]
) -> None:
    listed = [DRAINED] if "nodelist" in directives else LISTED
    assert names(directives, *listed) == awaited


@pytest.mark.parametrize("state", ["drained", "draining", "down*", "reserved", "maint", "idle*"])
def test_no_job_starts_on_a_node_in_such_a_state(state: str) -> None:
    node = ListedNode("n1", "cpu*", state, None, (), 64, None)
    assert names({}, node) == ["n1"]


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "planned", "idle~"])
def test_a_job_does_not_wait_for_a_node_that_only_works_or_sleeps(state: str) -> None:
    assert names({}, ListedNode("n1", "cpu*", state, None, (), 64, None)) == []


def test_a_job_of_the_reservation_does_not_wait_for_its_nodes() -> None:
    reserved = ListedNode("n1", "cpu*", "reserved", None, (), 64, None)
    assert names({"reservation": "course"}, reserved) == []


def test_the_nodes_are_named_with_their_states_and_reasons() -> None:
    words = "h100-1 is drained (bad fan), h100-2 is idle"
    assert nodes_words([DRAINED, IDLE]) == words
    assert nodes_words([IDLE] * 6).endswith("h100-2 is idle, and 2 more")


def test_sinfo_is_read_and_a_memory_that_is_not_set_is_unknown() -> None:
    line = "\x1f".join(["n1", "cpu*", "drained", "bad fan", "(null)", "64", "1"])
    assert parse_listed(f"{line}\nodd\n") == [
        ListedNode("n1", "cpu*", "drained", "bad fan", (), 64, None)
    ]
    line = "\x1f".join(["n1", "cpu", "idle", "none", "gpu:a100:4(S:0)", "64", "512000"])
    (node,) = parse_listed(line)
    assert node.reason is None
    assert node.gpus == (("a100", 4),)


@dataclass(frozen=True)
class Answers(SlurmSite):
    """A cluster whose sinfo answers so."""

    done: Completed | None = None

    def run(self, argv: Any, **variables: str) -> Completed:
        assert self.done is not None
        return self.done


def test_nodes_that_slurm_does_not_show_are_not_awaited() -> None:
    refused = Completed("sinfo", 1, "", "slurm_load_node: Access/permission denied")
    assert AwaitedNodes(Answers({}, done=refused)).of_job([("nodes", "1")]) == ()


def test_without_a_partition_the_default_one_counts() -> None:
    lines = []
    for name, partition in (("n1", "cpu*"), ("n2", "gpu")):
        lines.append("\x1f".join([name, partition, "drained", "none", "", "64", "1000"]))
    done = Completed("sinfo", 0, "\n".join(lines), "")
    nodes = AwaitedNodes(Answers({}, done=done)).of_job([("nodes", "1")])
    assert [node.name for node in nodes] == ["n1"]


def test_sbatch_has_the_same_words_for_a_job_that_waits() -> None:
    assert may_wait("allocation failure: Requested node configuration is not available")
    assert may_wait("Required node not available (down, drained or reserved)")
    assert not may_wait("Invalid qos specification")


def test_slurm_is_asked_once_and_once_for_each_nodelist() -> None:
    commands: list[Any] = []

    class Asked(Answers):
        def run(self, argv: Any, **variables: str) -> Completed:
            commands.append(argv)
            lines = []
            for name, partition in (("n1", "cpu*"), ("n2", "gpu"), ("n2", "debug")):
                row = [name, partition, "drained", "none", "", "64", "1000"]
                lines.append("\x1f".join(row))
            return Completed("sinfo", 0, "\n".join(lines), "")

    awaited = AwaitedNodes(Asked({}))
    for partition, names in (("gpu", ["n2"]), ("cpu", ["n1"]), ("cpu,debug", ["n1", "n2"])):
        nodes = awaited.of_job([("partition", partition)])
        assert [node.name for node in nodes] == names
    awaited.of_job([("nodelist", "n2")])
    assert ["--nodes=n2" in argv for argv in commands] == [False, True]
