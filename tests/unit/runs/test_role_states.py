"""What the roles of a job are doing."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.run_paths import AttemptFolder, RoleRanks
from hpcrun.runs.record import Run
from hpcrun.runs.role_states import RoleState, role_states
from tests.unit.builders import run, write

SERVER: dict[str, Any] = {
    "name": "server",
    "first_rank": 0,
    "ranks": 1,
    "first_node": 0,
    "nodes": 1,
    "on_exit": "end",
}
WORKER: dict[str, Any] = {
    "name": "worker",
    "first_rank": 1,
    "ranks": 2,
    "first_node": 1,
    "nodes": 1,
    "on_exit": "end",
    "after": ["server"],
}


def with_roles(server: dict[str, Any] | None = None) -> Run:
    """A run of a server and two workers."""
    return run(plan={"roles": [server or SERVER, WORKER]})


def started(folder: Path) -> AttemptFolder:
    """An attempt on two nodes."""
    attempt = AttemptFolder(folder / "elements/0/attempts/0")
    write(attempt.start, json.dumps({"job_id": "7", "host": "n1", "started": 5.0}))
    write(attempt.hosts, "n1\nn2\n")
    return attempt


def ended(attempt: AttemptFolder, rank: int, status: int, at_s: float, told: str = "") -> None:
    """Write how a rank ended."""
    end = {"rank": rank, "node": "n2", "status": status, "ended": at_s, "told": told}
    write(attempt.rank_exit(rank), json.dumps(end))


def states(folder: Path, of: Run | None = None) -> dict[str, str]:
    """Role → what it is doing."""
    return {state.role.name: state.state for state in role_states(of or with_roles(), folder)}


def worker(folder: Path) -> RoleState:
    """What the workers are doing."""
    _, state = role_states(with_roles(), folder)
    return state


def test_a_job_that_has_not_started_has_no_states(tmp_path: Path) -> None:
    assert states(tmp_path) == {}
    started(tmp_path)
    assert states(tmp_path, run()) == {}


def test_a_role_waits_for_the_role_before_it(tmp_path: Path) -> None:
    started(tmp_path)
    assert states(tmp_path) == {"server": "starting", "worker": "waiting"}


def test_a_role_starts_when_the_role_before_it_is_ready(tmp_path: Path) -> None:
    write(started(tmp_path).ready("server"), "ready\n")
    assert states(tmp_path) == {"server": "running", "worker": "starting"}


def test_a_role_with_ranks_no_longer_waits(tmp_path: Path) -> None:
    write(started(tmp_path).rank_log(1, "out"), "")
    assert states(tmp_path)["worker"] == "starting"


def test_a_role_with_a_check_is_ready(tmp_path: Path) -> None:
    write(started(tmp_path).ready("server"), "ready\n")
    assert states(tmp_path, with_roles({**SERVER, "ready": "http://:1"}))["server"] == "ready"


def test_after_the_end_a_role_without_a_record_says_so(tmp_path: Path) -> None:
    attempt = started(tmp_path)
    write(attempt.exit, json.dumps({"status": 1, "signal": "", "ended": 9.0}))
    write(attempt.rank_log(0, "out"), "")
    assert states(tmp_path) == {"server": "no record of its end", "worker": "not started"}


def test_a_role_has_ended_when_all_its_ranks_have(tmp_path: Path) -> None:
    attempt = started(tmp_path)
    ended(attempt, 1, 0, 8.0)
    assert worker(tmp_path).state == "starting"
    ended(attempt, 2, 0, 9.0)
    state = worker(tmp_path)
    assert (state.state, state.exit_status, state.since_s) == ("ended", 0, 9.0)


@pytest.mark.parametrize(
    ("told", "state", "status"),
    [("", "ended", 3), ("TERM", "terminated", 3), ("ignored", "ended", 3)],
)
def test_the_rank_that_failed_decides(tmp_path: Path, told: str, state: str, status: int) -> None:
    attempt = started(tmp_path)
    ended(attempt, 1, 0, 7.0)
    ended(attempt, 2, status, 8.0, told)
    assert worker(tmp_path).state == state
    assert worker(tmp_path).exit_status == status


def test_a_rank_that_failed_itself_decides_before_a_terminated_one(tmp_path: Path) -> None:
    attempt = started(tmp_path)
    ended(attempt, 1, 143, 7.0, "cleared")
    ended(attempt, 2, 5, 8.0)
    assert worker(tmp_path).exit_status == 5


@pytest.mark.parametrize(
    ("state", "since_s", "status", "line"),
    [
        ("waiting", None, None, "worker: waiting for server, on n[2-3]"),
        ("starting", None, None, "worker: starting, on n[2-3]"),
        ("ended", 9.0, 3, "worker: ended with exit status 3, on n[2-3]"),
        ("ended", 9.0, 0, "worker: ended with exit status 0, on n[2-3]"),
    ],
)
def test_the_line_of_a_role(
    state: str, since_s: float | None, status: int | None, line: str
) -> None:
    role = RoleRanks(**WORKER)
    assert RoleState(role, state, ("n2", "n3"), since_s, status).line == line


def test_the_line_of_a_ready_role_has_the_time() -> None:
    state = RoleState(RoleRanks(**SERVER), "ready", (), 1000.0)
    shown = time.strftime("%T", time.localtime(1000.0))
    assert state.line == f"server: ready since {shown}"


def test_a_role_without_ranks_is_shown_on_its_nodes(tmp_path: Path) -> None:
    started(tmp_path)
    assert worker(tmp_path).nodes == ("n2",)
