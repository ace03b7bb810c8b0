"""How a job goes on behind an attempt: in its allocation, through the queue, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.launch import slurm, step
from hpcrun.launch.dead_nodes import silent_nodes
from hpcrun.launch.decide import (
    CANCELLED,
    FAILURE,
    OVER,
    OWN_END,
    PREEMPTION,
    REQUEUE,
    RESTART,
    Ended,
    Rules,
    used_up,
    what_next,
    why_it_ended,
)
from hpcrun.launch.environment import SRUN_FAILED
from hpcrun.launch.records import NODE_FAILURE, TERMINATED, TIME_LIMIT, lost_nodes
from hpcrun.launch.slurm import JobSays, parse_job

BOTH = Rules(times=1, restarts=1)


def next_(why: str, rules: Rules, *, requeues: int = 0, restarts: int = 0, enough: bool = True) -> str:
    return what_next(why, rules, requeues=requeues, restarts=restarts, enough=enough)


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (NODE_FAILURE, RESTART),
        (FAILURE, OVER),
        (TIME_LIMIT, REQUEUE),
        (PREEMPTION, REQUEUE),
        (OWN_END, OVER),
        (CANCELLED, OVER),
        (TERMINATED, OVER),
    ],
)
def test_only_what_leaves_the_allocation_is_restarted_in_it(why: str, expected: str) -> None:
    assert next_(why, BOTH) == expected


def test_a_failure_of_the_program_is_restarted_where_that_was_asked_for() -> None:
    assert next_(FAILURE, Rules(restarts=1, on_failure=True)) == RESTART


def test_behind_the_restarts_come_the_requeues() -> None:
    assert next_(NODE_FAILURE, BOTH, restarts=1) == REQUEUE
    assert next_(NODE_FAILURE, BOTH, restarts=1, requeues=1) == OVER
    assert next_(NODE_FAILURE, Rules(restarts=1), restarts=1) == OVER


def test_too_few_nodes_are_requeued() -> None:
    assert next_(NODE_FAILURE, BOTH, enough=False) == REQUEUE
    assert next_(NODE_FAILURE, Rules(restarts=2), enough=False) == OVER


def test_without_restarts_all_is_as_before() -> None:
    assert next_(NODE_FAILURE, Rules(times=1)) == REQUEUE
    assert next_(NODE_FAILURE, Rules()) == OVER


@pytest.mark.parametrize(
    ("why", "rules", "enough", "expected"),
    [
        (NODE_FAILURE, Rules(times=2), True, "not requeued: --requeue 2 is used up"),
        (NODE_FAILURE, Rules(restarts=2), True, "not restarted: --restarts 2 is used up"),
        (NODE_FAILURE, Rules(restarts=2), False, "not restarted: too few nodes are left to restart on"),
        (NODE_FAILURE, BOTH, True, "not restarted or requeued: --restarts 1 is used up, --requeue 1 is used up"),
        (TIME_LIMIT, BOTH, True, "not requeued: --requeue 1 is used up"),
        (TIME_LIMIT, Rules(restarts=1), True, ""),
        (OWN_END, BOTH, True, ""),
        (NODE_FAILURE, Rules(), True, ""),
    ],
)
def test_a_job_that_does_not_go_on_says_why(why: str, rules: Rules, *, enough: bool, expected: str) -> None:
    assert used_up(why, rules, enough=enough) == expected


def test_a_step_that_was_ended_for_a_silent_node_ended_by_that_node() -> None:
    ended = Ended(137, stop=frozenset({TERMINATED}), silent=True)
    assert why_it_ended(ended, lambda: JobSays("RUNNING"), list) == NODE_FAILURE


def test_one_that_was_cancelled_meanwhile_was_cancelled() -> None:
    ended = Ended(137, signalled=True, cancelled=True, silent=True)
    assert why_it_ended(ended, lambda: JobSays("COMPLETING"), list) == CANCELLED


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ({"a": 3.0, "b": 26.0}, ["b"]),
        ({"a": 3.0, "b": 24.0}, []),
        ({"a": 16.0, "b": 26.0}, []),  # nobody is heard: it may be the file system
        ({"a": 30.0, "b": 31.0}, []),
        ({"a": 1.0, "b": 40.0, "c": 50.0}, ["b", "c"]),
        ({}, []),
    ],
)
def test_a_node_is_silent_only_while_others_are_heard(ages: dict[str, float], expected: list[str]) -> None:
    assert silent_nodes(ages) == expected


SHOWN = "JobId=3 JobState=RUNNING Restarts=0 ReqNodeList=(null) ExcNodeList=a-[1-2] NodeList={nodes} BatchHost=n-1"


@pytest.mark.parametrize(("nodes", "lost"), [("n-[1-3]", False), ("n-[2-3]", True), ("(null)", False)])
def test_a_job_has_lost_its_script_with_the_node_of_it(nodes: str, *, lost: bool) -> None:
    said = parse_job(SHOWN.format(nodes=nodes))
    assert (said.excluded, said.lost_its_script) == ("a-[1-2]", lost)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ('{"reason": "node_failure", "nodes": ["n2"]}', ["n2"]),
        ('{"reason": "time_limit", "nodes": ["n2"]}', []),
        ('{"reason": "node_failure", "nodes": "n2"}', []),
        (None, []),
    ],
)
def test_the_nodes_that_the_attempt_before_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str | None, expected: list[str]
) -> None:
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
    if end is not None:
        (tmp_path / "0/exit").write_text(end)
    for number, nodes in ((0, []), (1, expected)):
        monkeypatch.setenv("HPCRUN_ATTEMPT", str(number))
        monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path / str(number)))
        assert lost_nodes() == nodes


def test_the_hour_of_waiting_for_the_controller_begins_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back for a moment, and goes away again with each request."""
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    for name, value in (("CONTROLLER_S", 0.5), ("PROMPT_S", -1.0), ("ASK_AGAIN_S", 0.0)):
        monkeypatch.setattr(step, name, value)
    monkeypatch.setattr(slurm, "job", lambda: JobSays("RUNNING"))
    command = ["sh", "-c", f"echo >>{tmp_path}/requests; exit {SRUN_FAILED}"]
    assert step.JobStep(None, [], lambda _: None, lambda: False).run(command, []) == 1
    assert (tmp_path / "requests").read_text().count("\n") > 1
