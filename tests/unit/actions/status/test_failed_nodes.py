"""Which nodes failed by a run's attempts, and which a submission leaves out."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.status.status import failures_of
from hpcrun.job.layout import AttemptFolder
from hpcrun.runs.attempt import Attempt, ExitRecord
from hpcrun.runs.failed_nodes import FailedNode
from tests.unit import given

FAILED = (
    FailedNode("a-1", "big", 5.0, "down or not responding", "r1"),
    FailedNode("b-1", "other", 5.0, "down or not responding", "r2"),
    FailedNode("a-2", "big", 4.0, "down or not responding", "r3"),
)


def attempt(number: int, exit_: ExitRecord | None) -> Attempt:
    return Attempt(AttemptFolder(Path("/runs/r")), number, "4711", f"head-{number}", 100.0, exit_, 150.0)


def test_the_nodes_of_a_node_failure_failed_and_no_others() -> None:
    dead = attempt(
        0, ExitRecord(137, "", 200.0, reason="node_failure", again=True, how="restart", nodes=("a-1", "a-2"))
    )
    wrong = attempt(1, ExitRecord(3, "", 300.0, reason="failure", again=True, how="restart", nodes=("a-3",)))
    run = given.run(cluster="big")
    found = [(one.node, one.cluster, one.failed_s) for one in failures_of(run, [attempt(2, None), wrong, dead])]
    assert found == [("a-1", "big", 200.0), ("a-2", "big", 200.0)]


def test_an_attempt_that_left_no_word_was_on_a_node_that_died_once_another_has_started() -> None:
    run = given.run(cluster="big")
    assert list(failures_of(run, [attempt(0, None)])) == []
    assert [one.node for one in failures_of(run, [attempt(1, None), attempt(0, None)])] == ["head-0"]
