"""A run that people work in: its listener is started beside the ranks, and waited for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.hooks import Elsewhere
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.errors import PlanError, SchedulerError, UsageError
from hpcrun.features.dev import PROGRAM, dev_run
from hpcrun.features.dev.command import DevHooks
from hpcrun.features.dev.dev_run import DevRun
from hpcrun.job.run_paths import RunFolder
from hpcrun.machine.process import Completed, run_command
from hpcrun.runs.record import LastStatus, run_to_json
from tests.unit.builders import run, write

pytestmark = pytest.mark.needs("ssh-keygen")
RUN_ID = "20260102-030405-train-0a1b"
DOOR = {"node": "n1", "local": "/tmp/x", "cwd": "/work", "python": "/usr/bin/python3"}


class Node:
    """The first node of a job, and the time module, whose time passes when somebody waits.

    Attributes:
        starts_after_s: how long its listener takes to start.
        responds: whether a listener responds that has been started before.
        started: the listeners that were started, each as its command.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = 0
        self.now_s = 0.0
        self.starts_after_s = 0.0
        self.responds = True
        self.started: list[Sequence[str]] = []
        self.places: list[Path] = []

    @property
    def door(self) -> Path:
        """The file of the listener."""
        return RunFolder(self.folder).element(0).path / "dev/door"

    def open_door(self, **more: str) -> None:
        """Write where the listener of the attempt is."""
        write(self.door, json.dumps({**DOOR, "attempt": f"attempts/{self.attempt}", **more}))

    def leave_running(self, argv: Sequence[str], *, cwd: Path, **_: Any) -> None:
        assert not self.door.exists()
        self.started.append(argv)
        self.places.append(cwd)
        self.sleep(0.0)

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.started and self.now_s >= self.starts_after_s:
            self.open_door(sshd="/usr/sbin/sshd")

    def run_command(self, argv: Sequence[str], *, timeout_s: float, **_: Any) -> Completed:
        """Ask the listener whether it responds; a key is made by a real ssh-keygen."""
        if argv[0] == "ssh-keygen":
            return run_command(argv, timeout_s=timeout_s)
        return Completed("check", 0 if self.responds else 1, "", "")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The node of a run whose first attempt runs."""
    node = Node(tmp_path / RUN_ID)
    folder = RunFolder(node.folder)
    start = {"job_id": "4711", "host": "n1", "started": 1.0}
    write(folder.element(0).attempt(0).start, json.dumps(start))
    write(folder.programs("runtime") / f"{PROGRAM}.py", "")
    monkeypatch.setattr(dev_run, "leave_running", node.leave_running)
    monkeypatch.setattr(dev_run, "run_command", node.run_command)
    monkeypatch.setattr(dev_run, "time", node)
    return node


def item(node: Node, **more: Any) -> RunStatus:
    """The run, on this machine, with a program that is not the listener."""
    plan = {"python": {"executable": "/opt/bin/python"}}
    values = {"scheduler": "local", "plan": plan, "cwd": str(node.folder), **more}
    return RunStatus(run(RUN_ID, **values), node.folder, LastStatus("RUNNING", 1.0), live=True)


def open_door(node: Node, **more: Any) -> dict[str, Any]:
    context = Context({"HPCRUN_RUNS": str(node.folder.parent)}, node.folder)
    return DevRun(context, RUN_ID, 0).open(item(node, **more), "ssh-ed25519 AAAA me")


def test_a_listener_is_started_beside_the_ranks(node: Node) -> None:
    found = open_door(node)
    (command,) = node.started
    assert command[-2:] == [
        "/opt/bin/python",
        str(RunFolder(node.folder).programs("runtime/hpcrun_dev.py")),
    ]
    assert node.places == [node.folder]
    assert found["node"] == "n1"
    assert found["job"] == "4711"
    assert found["user"] != ""


def test_the_listener_starts_in_the_home_if_the_folder_is_gone(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_door(node, cwd="/no/such/folder")
    assert node.places == [tmp_path]


def test_a_listener_has_a_minute_to_start(node: Node) -> None:
    node.starts_after_s = 59.0
    assert open_door(node)["node"] == "n1"


def test_a_listener_that_does_not_start_is_an_error(node: Node) -> None:
    node.starts_after_s = float("inf")
    with pytest.raises(SchedulerError, match="no listener has started in job 4711") as refused:
        open_door(node)
    assert 60 < node.now_s < 61
    assert refused.value.hint == f"its log: {node.door.parent / 'step.log'}"


def test_a_listener_that_responds_is_used(node: Node) -> None:
    node.open_door(sshd="/usr/sbin/sshd")
    open_door(node)
    assert node.started == []


def test_a_listener_that_does_not_respond_is_replaced(node: Node) -> None:
    node.open_door(sshd="/usr/sbin/sshd")
    node.responds = False
    open_door(node)
    assert len(node.started) == 1


def test_the_listener_of_an_earlier_attempt_is_replaced(node: Node) -> None:
    start = RunFolder(node.folder).element(0).attempt(1).start
    write(start, json.dumps({"job_id": "4711", "host": "n1", "started": 2.0}))
    node.open_door(sshd="/usr/sbin/sshd")
    node.attempt = 1
    open_door(node)
    assert len(node.started) == 1


def test_a_job_of_the_listener_starts_no_other_one(node: Node) -> None:
    node.open_door(sshd="/usr/sbin/sshd")
    node.responds = False
    open_door(node, request={"script": PROGRAM})
    assert node.started == []


def test_a_node_without_sshd_is_an_error(node: Node) -> None:
    node.open_door()
    with pytest.raises(PlanError, match="there is no sshd on n1"):
        open_door(node)


def test_a_run_of_an_older_hpcrun_has_no_listener(node: Node) -> None:
    (RunFolder(node.folder).programs("runtime") / f"{PROGRAM}.py").unlink()
    with pytest.raises(PlanError, match="was submitted by an older hpcrun"):
        open_door(node)
    assert node.started == []


def test_a_run_is_reached_by_what_its_listener_says(node: Node) -> None:
    node.open_door(sshd="/usr/sbin/sshd", python="/opt/python")
    document = open_door(node, walltime_s=3600)
    folder = RunFolder(node.folder).element(0).path / "dev"
    program = str(RunFolder(node.folder).programs("runtime") / f"{PROGRAM}.py")
    assert document["host_key"].startswith("ssh-ed25519 ")
    assert len(document["host_key"].split()) == 2
    assert document["program"] == ["/opt/python", "-ESB", program]
    assert document["relay"] == ["/opt/python", "-ESB", program, "relay", str(folder)]
    assert (document["node"], document["local"], document["cwd"]) == ("n1", "/tmp/x", "/work")
    assert (document["run"], document["job"]) == (RUN_ID, "4711")


@pytest.mark.parametrize(
    ("walltime_s", "elapsed_s", "ends_s"),
    [(3600, None, 3600), (3600, 600, 3000), (None, 600, 7 * 86400 - 600)],
)
def test_the_end_of_a_job_follows_from_its_time_limit(
    node: Node, walltime_s: int | None, elapsed_s: int | None, ends_s: float
) -> None:
    node.open_door(sshd="/usr/sbin/sshd")
    context = Context({"HPCRUN_RUNS": str(node.folder.parent)}, node.folder)
    status = LastStatus("RUNNING", 1.0, elapsed_s=elapsed_s)
    running = replace(item(node, walltime_s=walltime_s), status=status)
    assert DevRun(context, RUN_ID, 0).open(running, "ssh-ed25519 AAAA me")["ends_s"] == ends_s


def test_the_newest_keys_are_let_in(node: Node) -> None:
    context = Context({"HPCRUN_RUNS": str(node.folder.parent)}, node.folder)
    for number in range(22):
        DevRun(context, RUN_ID, 0).open(item(node), f"key-{number}")
    keys = (node.door.parent / "authorized_keys").read_text().split()
    assert keys == [f"key-{number}" for number in range(2, 22)]


def test_a_job_that_refuses_is_not_waited_for(node: Node) -> None:
    refused = {"attempt": "/x/attempts/0", "message": "there is no sshd on n1"}
    write(node.door.with_name("refused"), json.dumps(refused))
    write(RunFolder(node.folder).record, run_to_json(run(RUN_ID, scheduler="local")))
    context = Context({"HPCRUN_RUNS": str(node.folder.parent)}, node.folder)
    with pytest.raises(PlanError, match="there is no sshd on n1, and job 4711 ends"):
        DevRun(context, RUN_ID, 0).wait_until_ready()


@pytest.mark.parametrize(
    "words", [["dev"], ["dev", "--ssh", "--help"], ["dev", "--code", "--dry-run"]]
)
def test_a_shell_and_a_plan_are_made_by_the_other_machine_alone(words: list[str]) -> None:
    def document(_: Sequence[str]) -> dict[str, Any]:
        raise AssertionError("a run is looked for")

    there = Elsewhere("far", document, list)
    assert DevHooks().run_partly_here(words, there) is None


def test_the_way_to_a_run_needs_no_json() -> None:
    there = Elsewhere("far", lambda _: {}, list)
    with pytest.raises(UsageError, match="--json"):
        DevHooks().run_partly_here(["dev", "--jupyter", "--json"], there)
