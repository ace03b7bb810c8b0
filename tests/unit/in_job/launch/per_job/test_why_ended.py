"""Why an attempt ended, whether it is started again, and its status: tables of records and of
Slurm's answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import job_step, slurm_requests
from hpcrun.in_job.launch.per_job.dead_nodes import note_dead_before, silent_nodes
from hpcrun.in_job.launch.per_job.why_ended import (
    FAILURE,
    Ended,
    Rules,
    final_status,
    what_next,
    why_it_ended,
    why_not_continued,
)
from hpcrun.in_job.launch.rank_environment import SRUN_FAILED
from hpcrun.in_job.launch.records import (
    NODE_FAILURE,
    OVER,
    REQUEUE,
    RESTART,
    TERMINATED,
    TIME_LIMIT,
    lost_nodes,
)
from hpcrun.in_job.launch.slurm_requests import JobSays, expand, parse_job

TOLD, WARNED = frozenset({"terminated"}), frozenset({"time_limit"})
HEARD = ({"rank": 0, "status": 0, "ended": 1.0, "heard": True},)


def rank(number: int, status: int, ended: float, told: str = "") -> dict[str, Any]:
    return {"rank": number, "node": f"n{number}", "status": status, "ended": ended, "told": told}


# an administrator has set the node down: Slurm terminates the rank, and srun may end with status 0
LOST = (rank(0, 143, 1.0, "TERM"),)


@pytest.mark.parametrize(
    ("ended", "says", "dead", "why"),
    [
        (Ended(0), JobSays(), [], ""),
        (Ended(1), JobSays(), [], "failure"),
        (Ended(1), JobSays(), ["n2"], "node_failure"),
        (Ended(0, LOST), JobSays("NODE_FAIL", "NodeDown"), [], "node_failure"),
        (Ended(0, unrecorded=True), JobSays("NODE_FAIL"), [], "node_failure"),
        (Ended(0, unrecorded=True), JobSays("COMPLETING", "NodeDown"), [], "node_failure"),
        (Ended(0, unrecorded=True), JobSays("PENDING", restarts=1), [], "requeued"),
        (Ended(0, unrecorded=True), JobSays("RUNNING"), [], ""),  # the records are late
        (Ended(0, unrecorded=True), JobSays(), [], ""),
        (Ended(0, LOST), JobSays("RUNNING"), ["n0"], "node_failure"),
        (Ended(0, LOST), JobSays("RUNNING"), [], "terminated"),
        (Ended(0, LOST), JobSays("PENDING", restarts=1), [], "requeued"),
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
        (
            Ended(137, (rank(0, 3, 1.0),), stop=TOLD, with_returned=True),
            JobSays("RUNNING"),
            [],
            "terminated",
        ),
        (Ended(0, stop=TOLD, with_returned=True), JobSays("RUNNING"), [], "terminated"),
        (Ended(1, stop=TOLD | WARNED), JobSays("RUNNING"), [], "time_limit"),
        # it runs elsewhere already
        (Ended(1, stop=TOLD), JobSays("RUNNING", restarts=1), [], "node_failure"),
        (Ended(143, signalled=True), JobSays("PENDING", restarts=1), [], "requeued"),
        (
            Ended(143, signalled=True, was_preempted=True),
            JobSays("PENDING", restarts=1),
            [],
            "preemption",
        ),
        (Ended(143, signalled=True), JobSays("PENDING", restarts=1), ["n2"], "node_failure"),
        # Lightning's
        (Ended(143, signalled=True, stop=WARNED), JobSays("PENDING", restarts=1), [], "time_limit"),
        (
            Ended(143, signalled=True, requeues=1),
            JobSays("COMPLETING", restarts=1),
            [],
            "cancelled",
        ),
        (Ended(143, stop=TOLD, idle=True), JobSays("RUNNING"), [], "idle"),
        (Ended(0, HEARD, stop=TOLD, idle=True), JobSays("RUNNING"), [], "idle"),
        # its ranks were done before they knew
        (Ended(0, stop=TOLD, idle=True), JobSays("RUNNING"), [], ""),
        (
            Ended(143, signalled=True, cancelled=True, idle=True),
            JobSays("RUNNING"),
            [],
            "cancelled",
        ),
        (Ended(137, stop=TOLD, silent=True), JobSays("RUNNING"), [], "node_failure"),
        (
            Ended(137, signalled=True, cancelled=True, silent=True),
            JobSays("COMPLETING"),
            [],
            "cancelled",
        ),
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
        (Ended(0, LOST), "terminated", 143),
        (Ended(0, unrecorded=True), "node_failure", 143),
        (Ended(0, unrecorded=True), "", 0),
        (Ended(0, LOST), "node_failure", 143),
        (Ended(0, HEARD, idle=True), "idle", 124),
        (Ended(1, (rank(0, 1, 1.0),), idle=True), "idle", 143),
    ],
)
def test_the_jobs_status(ended: Ended, why: str, status: int) -> None:
    assert final_status(ended, why, Rules(1)) == status


def test_a_list_of_nodes(subtests: pytest.Subtests) -> None:
    for text, nodes in (
        ("a1", ["a1"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[08-10,2],b", ["a08", "a09", "a10", "a2", "b"]),
        ("r[1-2]n[1,3]x,c-1", ["r1n1x", "r1n3x", "r2n1x", "r2n3x", "c-1"]),
    ):
        with subtests.test(text=text):
            assert expand(text) == nodes
            with pytest.raises(ValueError, match="no list of nodes"):
                expand("")


def test_scontrols_line_is_read() -> None:
    line = (
        "JobId=7 JobName=a Reason=b JobState=RUNNING Reason=None Dependency=(null) Requeue=1 "
        "Restarts=2 BatchFlag=2 "
        "PreemptEligibleTime=2026-11-21T20:00:00 PreemptTime=None ExcNodeList=(null)"
    )
    assert parse_job(line) == JobSays("RUNNING", "None", 2, preempted=False, excluded="")
    now = parse_job(
        line.replace("PreemptTime=None", "PreemptTime=2026-11-21T20:10:00").replace(
            "(null)", "a[1-2]"
        )
    )
    assert now.preempted is True
    assert now.excluded == "a[1-2]"
    assert parse_job("slurm_load_jobs error: Unable to contact slurm controller") == JobSays()


BOTH, ON_FAILURE = Rules(times=1, restarts=1), Rules(times=1, restarts=1, on_failure=True)


@pytest.mark.parametrize(
    ("why", "rules", "requeues", "restarts", "enough", "expected"),
    [
        (NODE_FAILURE, BOTH, 0, 0, True, RESTART),
        (NODE_FAILURE, BOTH, 0, 1, True, REQUEUE),
        (NODE_FAILURE, BOTH, 1, 1, True, OVER),
        (NODE_FAILURE, BOTH, 0, 0, False, REQUEUE),
        (NODE_FAILURE, Rules(restarts=1), 0, 1, True, OVER),
        (NODE_FAILURE, Rules(restarts=2), 0, 0, False, OVER),
        (NODE_FAILURE, Rules(times=1), 0, 0, True, REQUEUE),
        (NODE_FAILURE, Rules(), 0, 0, True, OVER),
        (FAILURE, BOTH, 0, 0, True, OVER),
        (FAILURE, ON_FAILURE, 0, 0, True, RESTART),
        *((why, ON_FAILURE, 0, 0, True, REQUEUE) for why in (TIME_LIMIT, "preemption", "requeued")),
        *((why, ON_FAILURE, 0, 0, True, OVER) for why in ("", "cancelled", TERMINATED, "idle")),
    ],
)
def test_how_a_job_continues(
    why: str, rules: Rules, requeues: int, restarts: int, *, enough: bool, expected: str
) -> None:
    assert what_next(why, rules, requeues=requeues, restarts=restarts, enough=enough) == expected


def test_a_job_that_does_not_go_on_says_why(subtests: pytest.Subtests) -> None:
    few = "too few nodes are left to restart on"
    for why, rules, obstacle, expected in (
        (NODE_FAILURE, Rules(times=2), "", "not requeued: --requeue 2 is used up"),
        (NODE_FAILURE, Rules(restarts=2), "", "not restarted: --restarts 2 is used up"),
        (NODE_FAILURE, Rules(restarts=2), few, f"not restarted: {few}"),
        (
            NODE_FAILURE,
            BOTH,
            "",
            "not restarted or requeued: --restarts 1 is used up, --requeue 1 is used up",
        ),
        (TIME_LIMIT, BOTH, "", "not requeued: --requeue 1 is used up"),
        (TIME_LIMIT, Rules(restarts=1), "", ""),
        ("", BOTH, "", ""),
        (NODE_FAILURE, Rules(), "", ""),
    ):
        with subtests.test(why=why):
            assert why_not_continued(why, rules, obstacle=obstacle) == expected


def test_a_node_is_silent_only_while_others_are_heard(subtests: pytest.Subtests) -> None:
    for ages, expected in (
        ({"a": 3.0, "b": 26.0}, ["b"]),
        ({"a": 3.0, "b": 24.0}, []),
        ({"a": 16.0, "b": 26.0}, []),  # nobody is heard: it may be the file system
        ({"a": 30.0, "b": 31.0}, []),
        ({"a": 1.0, "b": 40.0, "c": 50.0}, ["b", "c"]),
        ({}, []),
    ):
        with subtests.test(ages=ages):
            assert silent_nodes(ages) == expected


def test_a_job_has_lost_its_script_with_the_node_of_it(subtests: pytest.Subtests) -> None:
    line = (
        "JobId=3 JobState=RUNNING Restarts=0 ReqNodeList=(null) ExcNodeList=a-[1-2] "
        "NodeList={} "
        "BatchHost=n-1"
    )
    for nodes, lost in (("n-[1-3]", False), ("n-[2-3]", True), ("(null)", False)):
        with subtests.test(nodes=nodes):
            job = parse_job(line.format(nodes))
            assert job.excluded == "a-[1-2]"
            assert job.lost_its_script == lost


def test_the_nodes_that_the_attempt_before_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    def lost(number: int) -> Any:
        (tmp_path / str(number)).mkdir(exist_ok=True)
        monkeypatch.setenv("HPCRUN_ATTEMPT", str(number))
        monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path / str(number)))
        return lost_nodes()

    assert lost(0) == lost(1) == []
    for end, nodes in (
        ('{"reason": "node_failure", "nodes": ["n2"]}', ["n2"]),
        ('{"reason": "time_limit", "nodes": ["n2"]}', []),
        ('{"reason": "node_failure", "nodes": "n2"}', []),
    ):
        with subtests.test(end=end):
            (tmp_path / "0/exit").write_text(end)
            assert lost(0) == []
            assert lost(1) == nodes


@pytest.mark.parametrize(
    ("end", "answer", "noted"),
    [
        pytest.param("", {"n1": False, "n2": True}, ["n2"], id="a node failed"),
        pytest.param("", {"n1": False, "n2": False}, None, id="both nodes respond"),
        pytest.param("", {}, None, id="Slurm does not respond"),
        pytest.param("{}", {"n2": True}, None, id="its end is recorded"),
    ],
)
def test_the_dead_nodes_of_an_attempt_without_an_end_are_noted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    answer: dict[str, bool],
    noted: list[str] | None,
) -> None:
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
    (tmp_path / "0/hosts").write_text("n1\nn2\n")
    if end:
        (tmp_path / "0/exit").write_text(end)
    monkeypatch.setenv("HPCRUN_ATTEMPT", "1")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path / "1"))
    monkeypatch.setattr(slurm_requests, "nodes_dead", lambda _: answer)
    note_dead_before()
    record = tmp_path / "0/dead-nodes"
    assert (json.loads(record.read_text())["nodes"] if record.exists() else None) == noted


def test_the_hour_of_waiting_for_the_controller_begins_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back for a moment, and goes away again with each request."""
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    for name, value in (("CONTROLLER_S", 0.5), ("PROMPT_S", -1.0), ("ASK_AGAIN_S", 0.0)):
        monkeypatch.setattr(job_step, name, value)
    monkeypatch.setattr(slurm_requests, "job", lambda: JobSays("RUNNING"))
    command = ["sh", "-c", f"echo >>{tmp_path}/requests; exit {SRUN_FAILED}"]
    assert job_step.JobStep(None, [], lambda _: None, lambda: False).run(command, []) == 1
    assert (tmp_path / "requests").read_text().count("\n") > 1


def test_a_step_that_ends_well_without_a_rank_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Slurm 22.05's srun, whose status is 0 when pmix cannot be set up on any node."""
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))

    one = job_step.JobStep(None, [], lambda _: None, lambda: False)
    assert one.run(["true"], []) == 1
    assert one.run_other(["true"], []) == 0
    assert (
        capsys.readouterr().err
        == "hpcrun: srun ended with exit status 0, and no rank has started\n"
    )
    (tmp_path / "node-n1.start").touch()
    assert one.run(["true"], []) == 0
