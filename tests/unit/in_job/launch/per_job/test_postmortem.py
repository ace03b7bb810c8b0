"""What is known at the end of an attempt, and what Slurm is asked about it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.in_job.launch import slurm_requests
from hpcrun.in_job.launch.per_job.job_arguments import parse_options
from hpcrun.in_job.launch.per_job.job_nodes import JobNodes
from hpcrun.in_job.launch.per_job.postmortem import Postmortem
from hpcrun.in_job.launch.slurm_requests import JobSays
from tests.unit.in_job.attempts import Attempt


def examine(options: str, **of_monitor: Any) -> Postmortem:
    """Examine an attempt on n1 and n2, in which the monitor of the step has seen this."""
    parsed = parse_options(options.split())
    nodes = JobNodes(parsed)
    nodes.hosts = ["n1", "n2"]
    beats = SimpleNamespace(dead=[], look_closer=lambda hosts: [hosts[1]])
    seen = {"signalled": False, "given_up": False, "idle_message": "", "heartbeats": beats}
    monitor: Any = SimpleNamespace(**{**seen, **of_monitor})
    return Postmortem(parsed, nodes, monitor, 1)


def leave(attempt: Attempt, name: str, **fields: Any) -> None:
    (attempt.folder / name).write_text(json.dumps(fields))


def test_the_records_of_an_attempt_are_its_facts(attempt: Attempt) -> None:
    leave(attempt, "rank-0.exit", rank=0, node="n1", status=3, ended=1.0)
    leave(attempt, "node-n1.exit", node="n1", status=3, ended=2.0)
    (attempt.folder / "node-n1.start").touch()
    (attempt.folder / "stop/time_limit").touch()
    ended = examine("").facts(3)
    assert (ended.status, ended.requeues) == (3, 1)
    assert [record["rank"] for record in ended.exits] == [0]
    assert [record["node"] for record in ended.nodes] == ["n1"]
    assert ended.stop == {"time_limit"}
    unknown = (ended.signalled, ended.cancelled, ended.was_preempted, ended.given_up)
    assert unknown == (False,) * 4
    assert (ended.silent, ended.idle, ended.with_returned, ended.unrecorded) == (False,) * 4


def test_a_node_without_a_record_of_its_ranks_is_known(attempt: Attempt) -> None:
    (attempt.folder / "node-n1.start").touch()
    assert examine("").facts(0).unrecorded
    leave(attempt, "rank-0.exit", rank=0, node="n1", status=0, ended=1.0)
    assert not examine("").facts(0).unrecorded


def test_what_the_monitor_has_seen_is_known(attempt: Attempt) -> None:
    (attempt.folder / "preempted").touch()
    beats = SimpleNamespace(dead=["n2"])
    seen = {"signalled": True, "given_up": True, "idle_message": "idle", "heartbeats": beats}
    ended = examine("", **seen).facts(143)
    assert (ended.signalled, ended.given_up, ended.idle) == (True, True, True)
    assert (ended.silent, ended.was_preempted) == (True, True)


@pytest.mark.parametrize(
    ("options", "given_up", "stop"),
    [
        pytest.param("--nodes 1", True, {"time_limit"}, id="from here"),
        pytest.param("--nodes 1", False, {"terminated", "time_limit"}, id="from a person"),
        pytest.param("", True, {"terminated", "time_limit"}, id="from Slurm"),
    ],
)
def test_a_sigterm_from_the_job_itself_is_no_request(
    attempt: Attempt, options: str, given_up: bool, stop: set[str]
) -> None:
    for reason in ("terminated", "time_limit"):
        (attempt.folder / "stop" / reason).touch()
    assert examine(options, given_up=given_up).facts(143).stop == stop


@pytest.mark.parametrize(
    ("lost", "returned"), [(["n2"], True), (["n7"], False)], ids=["of the step", "another"]
)
def test_a_returned_node_is_known(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, lost: list[str], returned: bool
) -> None:
    leave(attempt, "exit", reason="node_failure", nodes=lost)
    monkeypatch.setenv("HPCRUN_ATTEMPT", "1")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt.folder.parent / "1"))
    (attempt.folder.parent / "1").mkdir()
    assert examine("").facts(1).with_returned == returned


@pytest.mark.parametrize(
    ("place", "marked_s", "begun_s", "cancelled"),
    [
        pytest.param("", 100, 50, True, id="run"),
        pytest.param("elements/0", 100, 50, True, id="element"),
        pytest.param("elements/0", 100, 100, True, id="at once"),
        pytest.param("elements/0", 100, 101, False, id="before this attempt"),
        pytest.param("elements/1", 100, 50, False, id="another element"),
    ],
)
def test_a_mark_of_hpcrun_cancel_counts_for_this_attempt(
    attempt: Attempt, place: str, marked_s: int, begun_s: int, cancelled: bool
) -> None:
    mark = attempt.run / place / "cancelled"
    for path, time_s in ((mark, marked_s), (attempt.folder / "start", begun_s)):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (0, time_s))
    assert examine("").facts(143).cancelled == cancelled


# --- why it ended --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status", "signalled", "why"),
    [
        pytest.param("--grace 60", 1, False, "node_failure", id="managed"),
        pytest.param("", 1, False, "", id="not managed"),
        pytest.param("", 143, True, "time_limit", id="terminated"),
        pytest.param("--nodes 2", 143, True, "", id="this machine"),
        pytest.param("--nodes 2 --grace 60", 143, True, "cancelled", id="this machine, managed"),
        pytest.param("--nodes 2 --grace 60", 1, False, "failure", id="no dead node here"),
    ],
)
def test_slurm_is_asked_if_something_depends_on_the_reason(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    status: int,
    signalled: bool,
    why: str,
) -> None:
    monkeypatch.setattr(slurm_requests, "job", lambda: JobSays("TIMEOUT"))
    examined = examine(options, signalled=signalled)
    assert examined.why_if_needed(examined.facts(status)) == why


def test_a_job_that_was_ended_for_idle_gpus_says_so(attempt: Attempt) -> None:
    examined = examine("--nodes 1", idle_message="idle")
    assert examined.why_if_needed(examined.facts(143)) == "idle"


@pytest.mark.parametrize(
    ("why", "nodes"),
    [("failure", ["n1"]), ("node_failure", ["n2"]), ("time_limit", []), ("", [])],
)
def test_the_nodes_of_a_failure_are_named(attempt: Attempt, why: str, nodes: list[str]) -> None:
    leave(attempt, "rank-0.exit", rank=0, node="n1", status=3, ended=1.0)
    examined = examine("--grace 60")
    assert examined.failed_nodes(why, examined.facts(3)) == nodes


def test_a_failure_without_a_record_names_no_node(attempt: Attempt, tmp_path: Path) -> None:
    examined = examine("--grace 60")
    assert examined.failed_nodes("failure", examined.facts(1)) == []
    local = examine("--nodes 2 --grace 60")
    assert local.failed_nodes("node_failure", local.facts(1)) == []
