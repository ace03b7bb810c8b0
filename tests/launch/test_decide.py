"""Why an attempt ended, whether it is started again, and its status: tables of records and of Slurm's answers."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.launch.decide import Ended, Rules, final_status, is_passing, why_it_ended
from hpcrun.launch.slurm import JobSays, expand, parse_job

TOLD, WARNED = frozenset({"terminated"}), frozenset({"time_limit"})
HEARD = ({"rank": 0, "status": 0, "ended": 1.0, "heard": True},)


def rank(number: int, status: int, ended: float, told: str = "") -> dict[str, Any]:
    return {"rank": number, "node": f"n{number}", "status": status, "ended": ended, "told": told}


@pytest.mark.parametrize(
    ("ended", "says", "dead", "why"),
    [
        (Ended(0), JobSays(), [], ""),
        (Ended(1), JobSays(), [], "failure"),
        (Ended(1), JobSays(), ["n2"], "node_failure"),
        (Ended(0, stop=WARNED), JobSays(), [], ""),  # done before it had heard
        (Ended(0, HEARD, stop=WARNED), JobSays(), [], "time_limit"),
        (Ended(1, stop=WARNED), JobSays(), [], "time_limit"),
        (Ended(0, stop=WARNED, given_up=True), JobSays(), [], "time_limit"),
        (Ended(143, signalled=True, cancelled=True), JobSays("RUNNING"), [], "cancelled"),
        (Ended(143, signalled=True), JobSays("COMPLETING"), [], "cancelled"),
        (Ended(143, signalled=True), JobSays("CANCELLED"), [], "cancelled"),
        (Ended(143, signalled=True), JobSays(), [], "terminated"),  # Slurm is away
        (Ended(143, signalled=True), JobSays("COMPLETING", "TimeLimit"), [], "time_limit"),
        (Ended(143, signalled=True), JobSays("TIMEOUT"), [], "time_limit"),
        (Ended(143, signalled=True), JobSays("COMPLETING", "NodeDown"), [], "node_failure"),
        (Ended(143, signalled=True), JobSays("PREEMPTED"), [], "preemption"),
        (Ended(0, HEARD, stop=TOLD), JobSays("RUNNING", preempted=True), [], "preemption"),
        (Ended(0, HEARD, stop=TOLD, was_preempted=True), JobSays("RUNNING"), [], "preemption"),
        (Ended(0, stop=TOLD), JobSays("RUNNING", preempted=True), [], ""),
        (Ended(1, stop=TOLD), JobSays("RUNNING"), [], "terminated"),
        (Ended(1, stop=TOLD), JobSays("RUNNING"), ["n2"], "node_failure"),
        (Ended(1, with_returned=True), JobSays(), [], "node_failure"),
        (Ended(3, (rank(0, 3, 1.0),), with_returned=True), JobSays(), [], "failure"),
        (Ended(137, stop=TOLD, with_returned=True), JobSays("RUNNING"), [], "node_failure"),
        (Ended(137, (rank(0, 3, 1.0),), stop=TOLD, with_returned=True), JobSays("RUNNING"), [], "terminated"),
        (Ended(0, stop=TOLD, with_returned=True), JobSays("RUNNING"), [], "terminated"),
        (Ended(1, stop=TOLD | WARNED), JobSays("RUNNING"), [], "time_limit"),
        (Ended(1, stop=TOLD), JobSays("RUNNING", restarts=1), [], "node_failure"),  # it runs elsewhere already
        (Ended(143, signalled=True), JobSays("PENDING", restarts=1), [], "requeued"),
        (Ended(143, signalled=True, was_preempted=True), JobSays("PENDING", restarts=1), [], "preemption"),
        (Ended(143, signalled=True), JobSays("PENDING", restarts=1), ["n2"], "node_failure"),
        (Ended(143, signalled=True, stop=WARNED), JobSays("PENDING", restarts=1), [], "time_limit"),  # Lightning's
        (Ended(143, signalled=True, requeues=1), JobSays("COMPLETING", restarts=1), [], "cancelled"),
        (Ended(143, stop=TOLD, idle=True), JobSays("RUNNING"), [], "idle"),
        (Ended(0, HEARD, stop=TOLD, idle=True), JobSays("RUNNING"), [], "idle"),
        (Ended(0, stop=TOLD, idle=True), JobSays("RUNNING"), [], ""),  # its ranks were done before they knew
        (Ended(143, signalled=True, cancelled=True, idle=True), JobSays("RUNNING"), [], "cancelled"),
    ],
)
def test_why_it_ended(ended: Ended, says: JobSays, dead: list[str], why: str) -> None:
    assert why_it_ended(ended, lambda: says, lambda: dead) == why


def test_nobody_is_asked_about_a_good_end() -> None:
    def nobody() -> Any:
        raise AssertionError

    assert why_it_ended(Ended(0), nobody, nobody) == ""
    assert why_it_ended(Ended(0, stop=WARNED), nobody, nobody) == ""
    assert why_it_ended(Ended(143, signalled=True, cancelled=True), nobody, nobody) == "cancelled"


@pytest.mark.parametrize(
    ("why", "on_failure", "again"),
    [
        ("", True, False),
        ("cancelled", True, False),
        ("terminated", True, False),
        ("idle", True, False),
        ("failure", False, False),
        ("failure", True, True),
        ("time_limit", False, True),
        ("preemption", False, True),
        ("node_failure", False, True),
        ("requeued", False, True),
    ],
)
def test_what_is_a_reason_to_start_again(why: str, on_failure: bool, again: bool) -> None:
    assert is_passing(why, Rules(1, on_failure=on_failure)) == again


@pytest.mark.parametrize(
    ("ended", "why", "status"),
    [
        (Ended(0), "", 0),
        (Ended(0, HEARD), "time_limit", 124),
        (Ended(1, (rank(0, 143, 1.0), rank(1, 139, 2.0), rank(2, 1, 3.0))), "failure", 139),
        (Ended(1, (rank(0, 1, 1.0, "cleared"), rank(1, 7, 2.0))), "failure", 7),
        (Ended(137, (rank(0, 143, 1.0),)), "failure", 137),
        (Ended(9), "failure", 9),
        # torchrun's agent of n1 failed before it had ranks, and srun then terminated n0
        (Ended(143, nodes=(rank(0, 143, 3.0), rank(1, 1, 2.0))), "failure", 1),
        (Ended(1, (rank(0, 7, 2.5),), nodes=(rank(0, 1, 2.0),)), "failure", 7),
        (Ended(143, (rank(0, 137, 2.0, "cleared"),), nodes=(rank(0, 137, 3.0),)), "failure", 137),
        (Ended(0, signalled=True), "cancelled", 143),
        (Ended(0, HEARD, idle=True), "idle", 124),
        (Ended(1, (rank(0, 1, 1.0),), idle=True), "idle", 143),
    ],
)
def test_the_jobs_status(ended: Ended, why: str, status: int) -> None:
    assert final_status(ended, why, Rules(1)) == status


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a1", ["a1"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[08-10,2],b", ["a08", "a09", "a10", "a2", "b"]),
        ("r[1-2]n[1,3]x,c-1", ["r1n1x", "r1n3x", "r2n1x", "r2n3x", "c-1"]),
    ],
)
def test_a_list_of_nodes(text: str, nodes: list[str]) -> None:
    assert expand(text) == nodes


def test_an_empty_list_of_nodes_is_an_error() -> None:
    with pytest.raises(ValueError, match="no list of nodes"):
        expand("")


def test_scontrols_line_is_read() -> None:
    line = (
        "JobId=7 JobName=a Reason=b JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=2 "
        "PreemptEligibleTime=2026-11-21T20:00:00 PreemptTime=None ExcNodeList=(null)"
    )
    assert parse_job(line) == JobSays("RUNNING", "None", 2, preempted=False, excluded="")
    now = parse_job(line.replace("PreemptTime=None", "PreemptTime=2026-11-21T20:10:00").replace("(null)", "a[1-2]"))
    assert (now.preempted, now.excluded) == (True, "a[1-2]")
    assert parse_job("slurm_load_jobs error: Unable to contact slurm controller") == JobSays()
