"""Nodes without a heartbeat as time passes: when Slurm is asked, and when a node is dead."""

from __future__ import annotations

import os
import time

import pytest

from hpcrun.in_job.launch import slurm_requests
from hpcrun.in_job.launch.per_job import dead_nodes
from hpcrun.in_job.launch.per_job.dead_nodes import Heartbeats
from hpcrun.in_job.launch.slurm_requests import JobSays
from tests.unit.in_job.attempts import Attempt


class Cluster:
    """Two nodes, what Slurm says of the second, and whether it answers, by a clock of its own."""

    def __init__(self, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = attempt.folder
        self.now_s = 100.0
        self.asked_s: list[float] = []
        self.is_down = False
        self.does_answer = True
        self.beats = Heartbeats(["n1", "n2"])
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(dead_nodes, "answers", lambda node: node == "n1" or self.does_answer)
        monkeypatch.setattr(slurm_requests, "nodes_dead", self._nodes_dead)
        monkeypatch.setattr(slurm_requests, "job", lambda: JobSays("RUNNING", nodes="n[1-2]"))
        for node in ("n1", "n2"):
            self.beat(node)
        assert self.beats.check() == []

    def _nodes_dead(self, nodes: list[str]) -> dict[str, bool]:
        self.asked_s.append(self.now_s)
        return {node: node == "n2" and self.is_down for node in nodes}

    def beat(self, node: str) -> None:
        """Touch the record of a node."""
        path = self.folder / f"node-{node}.start"
        path.touch()
        os.utime(path, (0, self.now_s))

    def check_until(self, end_s: float) -> list[str]:
        """Check each second while n1 alone has heartbeats; return the dead nodes, once there are.

        Args:
            end_s: the end, in seconds after the last heartbeat of n2.
        """
        while self.now_s < 100 + end_s:
            self.now_s += 1
            self.beat("n1")
            dead = self.beats.check()
            if dead:
                return dead
        return []


@pytest.fixture
def cluster(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(attempt, monkeypatch)


def test_slurm_is_asked_of_a_late_node_twice_a_minute(cluster: Cluster) -> None:
    assert cluster.check_until(95) == []
    assert cluster.asked_s == [130, 160, 190]


def test_a_late_node_that_slurm_reports_down_is_dead(cluster: Cluster) -> None:
    cluster.is_down = True
    assert cluster.check_until(24) == []
    assert cluster.check_until(60) == ["n2"]
    assert cluster.now_s == 130
    assert cluster.beats.dead == ["n2"]


def test_a_late_node_that_does_not_answer_is_dead(cluster: Cluster) -> None:
    cluster.does_answer = False
    assert cluster.check_until(60) == ["n2"]


def test_a_node_behind_a_firewall_is_not_dead(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(attempt, monkeypatch)
    cluster.does_answer = False
    cluster.beats = Heartbeats(["n1", "n2"])  # which has not answered to begin with
    assert cluster.check_until(95) == []


def test_while_no_node_has_heartbeats_the_file_system_is_slow(cluster: Cluster) -> None:
    cluster.is_down = True
    for _ in range(20):
        cluster.now_s += 5
        assert cluster.beats.check() == []
    assert cluster.asked_s == []


def test_a_node_that_beats_again_is_alive(cluster: Cluster) -> None:
    assert cluster.check_until(40) == []
    cluster.beat("n2")
    cluster.is_down = True
    for _ in range(20):
        cluster.now_s += 1
        cluster.beat("n1")
        assert cluster.beats.check() == []


@pytest.mark.parametrize(
    ("age_s", "does_answer", "dead"),
    [(20, False, ["n2"]), (20, True, []), (14, False, [])],
    ids=["late", "answers", "fresh"],
)
def test_after_the_step_a_node_counts_sooner(
    cluster: Cluster, age_s: float, does_answer: bool, dead: list[str]
) -> None:
    cluster.check_until(age_s)
    cluster.does_answer = does_answer
    assert cluster.beats.look_closer(["n1", "n2"]) == dead
    cluster.does_answer = False
    assert cluster.beats.look_closer(["n1", "n2"]) == dead
    assert len(cluster.asked_s) == 1


def test_a_node_removed_from_the_job_has_failed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_requests, "job", lambda: JobSays("RUNNING", nodes="n1"))
    assert cluster.beats.look_closer(["n1", "n2"]) == ["n2"]
