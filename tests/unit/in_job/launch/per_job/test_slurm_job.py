"""A job of Slurm through its attempts: which nodes the next one has, and who starts it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import slurm_requests
from hpcrun.in_job.launch.job_step import JobStep
from hpcrun.in_job.launch.per_job import job
from hpcrun.in_job.launch.slurm_requests import JobSays
from tests.unit.in_job.attempts import Attempt

RESTARTS = "--grace 60 --restarts 5 --retry-on-failure"


class Allocation:
    """A job of Slurm on n1, n2 and n3: Slurm's answers, and what its steps do.

    Attributes:
        dead: the nodes that Slurm reports as down.
        hosts: the nodes of each step that was started.
        excluded: the nodes without which the job was requeued; None if it was not.
        does_requeue: whether Slurm accepts a requeue.
        restarts: how often Slurm says it has requeued the job.
    """

    def __init__(self, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts = attempt.folder.parent
        self.dead: set[str] = set()
        self.hosts: list[list[str]] = []
        self.excluded: list[str] | None = None
        self.does_requeue = True
        self.restarts = 0
        self._steps: list[Callable[[Path, list[str]], int]] = []
        for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HPCRUN_JOB_ID", "7")
        monkeypatch.setenv("PATH", str(attempt.run))  # without Slurm's commands
        for name in ("SLURM_RESTART_COUNT", "SLURM_GPUS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.setattr(slurm_requests, "job", self._job)
        monkeypatch.setattr(slurm_requests, "nodes_dead", self._nodes_dead)
        monkeypatch.setattr(slurm_requests, "starts_step", lambda _: True)
        monkeypatch.setattr(slurm_requests, "requeue_patiently", self._requeue)
        monkeypatch.setattr(JobStep, "run", lambda _, command, hosts: self._run(hosts))

    def _job(self) -> JobSays:
        return JobSays("RUNNING", restarts=self.restarts, nodes="n[1-3]")

    def _nodes_dead(self, nodes: list[str]) -> dict[str, bool]:
        return {node: node in self.dead for node in nodes}

    def _requeue(self, excluded: list[str]) -> bool:
        self.excluded = excluded
        return self.does_requeue

    def _run(self, hosts: list[str]) -> int:
        self.hosts.append(hosts)
        return self._steps.pop(0)(self.attempts / str(len(self.hosts) - 1), hosts)

    def run(self, options: str, *steps: Callable[[Path, list[str]], int]) -> int:
        """Run the job with these steps; return its status."""
        self._steps = [*steps]
        return job.main([*options.split(), "--", "srun", "program"])

    def end(self, number: int = 0) -> dict[str, Any]:
        """Return the record of an attempt."""
        return dict(json.loads((self.attempts / f"{number}/exit").read_text()))


@pytest.fixture
def allocation(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Allocation:
    return Allocation(attempt, monkeypatch)


def completes(attempt: Path, hosts: list[str]) -> int:
    """Complete the step."""
    return 0


def fails(node: str) -> Callable[[Path, list[str]], int]:
    """Return a step in which the rank of a node fails."""

    def step(attempt: Path, hosts: list[str]) -> int:
        record = {"rank": 0, "node": node, "status": 3, "ended": 1.0, "told": ""}
        (attempt / "rank-0.exit").write_text(json.dumps(record))
        return 3

    return step


def test_a_job_that_completes_has_one_attempt(allocation: Allocation) -> None:
    assert allocation.run(RESTARTS, completes) == 0
    assert allocation.hosts == [["n1", "n2", "n3"]]
    assert (allocation.end()["how"], allocation.end()["reason"]) == ("", "")


@pytest.mark.parametrize("exclude", ["", " --exclude-bad-nodes"])
def test_a_dead_node_is_replaced_by_a_spare(allocation: Allocation, exclude: str) -> None:
    allocation.dead = {"n2"}
    options = f"{RESTARTS} --spares 1{exclude}"
    assert allocation.run(options, lambda *_: 1, completes) == 0
    assert allocation.hosts == [["n1", "n2"], ["n1", "n3"]]
    record = allocation.end()
    assert (record["reason"], record["how"]) == ("node_failure", "restart")
    assert record["nodes"] == ["n2"]


def test_a_node_that_failed_and_returned_is_not_used_again(
    allocation: Allocation,
) -> None:
    allocation.dead = {"n1"}

    def back(attempt: Path, hosts: list[str]) -> int:
        allocation.dead = set()
        return fails("n3")(attempt, hosts)

    options = f"{RESTARTS} --spares 1"
    assert allocation.run(options, lambda *_: 1, back, completes) == 0
    assert allocation.hosts == [["n1", "n2"], ["n2", "n3"], ["n2", "n3"]]


@pytest.mark.parametrize(
    ("options", "second"),
    [
        pytest.param("--spares 1 --exclude-bad-nodes", ["n1", "n3"], id="excluded"),
        pytest.param("--spares 1", ["n1", "n2"], id="used again"),
        pytest.param("--exclude-bad-nodes", ["n1", "n2", "n3"], id="rather than too few"),
    ],
)
def test_a_node_of_a_failure_is_left_out_if_asked(
    allocation: Allocation, options: str, second: list[str]
) -> None:
    assert allocation.run(f"{RESTARTS} {options}", fails("n2"), completes) == 0
    assert allocation.hosts[1] == second


def test_restarts_are_used_up(allocation: Allocation) -> None:
    options = "--grace 60 --restarts 1 --retry-on-failure"
    assert allocation.run(options, fails("n1"), fails("n1")) == 3
    assert (allocation.end()["how"], allocation.end(1)["how"]) == ("restart", "")
    assert allocation.end(1)["message"] == "not restarted: --restarts 1 is used up"


@pytest.mark.parametrize(
    ("exclude", "excluded"), [("--exclude-bad-nodes", ["n2"]), ("", [])], ids=["yes", "no"]
)
def test_a_job_is_requeued_without_the_nodes_of_its_failures(
    allocation: Allocation, exclude: str, excluded: list[str]
) -> None:
    options = f"--grace 60 --requeue 1 --retry-on-failure {exclude}"
    assert allocation.run(options, fails("n2")) == 3
    assert allocation.excluded == excluded
    record = allocation.end()
    assert (record["how"], record["again"], record["nodes"]) == ("requeue", True, ["n2"])


def test_a_job_that_slurm_has_requeued_is_not_requeued_again(allocation: Allocation) -> None:
    allocation.restarts = 1
    assert allocation.run("--grace 60 --requeue 1 --retry-on-failure", fails("n2")) == 3
    assert allocation.excluded is None
    assert allocation.end()["how"] == "requeue"


def test_a_requeue_that_slurm_refuses_is_the_end(allocation: Allocation) -> None:
    allocation.does_requeue = False
    assert allocation.run("--grace 60 --requeue 1 --retry-on-failure", fails("n2")) == 3
    record = allocation.end()
    message = "scontrol requeue failed; hpcrun resubmit starts it again"
    assert (record["how"], record["again"], record["message"]) == ("", False, message)


@pytest.mark.parametrize(("restarts", "status"), [("1", 0), ("2", 1)])
def test_slurm_s_own_requeues_count(
    allocation: Allocation, monkeypatch: pytest.MonkeyPatch, restarts: str, status: int
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    assert allocation.run("--grace 60 --requeue 1", completes) == status
    message = "started once more than --requeue 1 allows" if status else ""
    assert allocation.end()["message"] == message


@pytest.mark.parametrize(
    ("options", "reason", "status"),
    [
        pytest.param("--spares 1", "node_failure", 143, id="by the guard"),
        pytest.param("--spares 1", "idle", 1, id="by this process"),
        pytest.param("", "node_failure", 1, id="without a guard"),
    ],
)
def test_a_job_that_its_guard_has_ended_leaves_the_record(
    allocation: Allocation, options: str, reason: str, status: int
) -> None:
    def step(attempt: Path, hosts: list[str]) -> int:
        (attempt / "exit").write_text(json.dumps({"reason": reason, "by": "guard"}))
        return 1

    assert allocation.run(f"--grace 60 {options}", step) == status
    assert ("by" in allocation.end()) == (status == 143)


def test_an_attempt_that_another_job_has_begun_is_not_run(allocation: Allocation) -> None:
    second = allocation.attempts / "1"
    second.mkdir()
    (second / "start").write_text("{}")
    assert allocation.run(RESTARTS, fails("n1")) == 1
    assert allocation.hosts == [["n1", "n2", "n3"]]
    assert allocation.end()["message"] == "its next attempt has been started elsewhere"


def test_data_that_cannot_be_copied_end_the_job(
    allocation: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStep, "run_other", lambda *_: 9)
    monkeypatch.setenv("HPCRUN_STAGE", "/no-such-folder")
    assert allocation.run("--grace 60 --stage data/x") == 1
    assert allocation.hosts == []
    assert allocation.end()["message"] == "copying the data ended with status 9"


@pytest.mark.parametrize(
    ("options", "is_recorded"),
    [
        pytest.param("--warm p", True, id="compiled files"),
        pytest.param("", False, id="none"),
        pytest.param("--warm p --stage data/x", False, id="data that cannot be copied"),
    ],
)
def test_the_start_with_compiled_files_is_recorded(
    allocation: Allocation, monkeypatch: pytest.MonkeyPatch, options: str, is_recorded: bool
) -> None:
    monkeypatch.setattr(JobStep, "run_other", lambda *_: 9)
    monkeypatch.setenv("HPCRUN_STAGE", "/no-such-folder")
    allocation.run(f"--grace 60 {options}", completes)
    assert (allocation.attempts / "0/warm").exists() == is_recorded


def raises(attempt: Path, hosts: list[str]) -> int:
    """Let the rank of n1 end with an exception, soon after its start."""
    (attempt / "start").write_text(json.dumps({"started": time.time()}))
    traceback = 'Traceback (most recent call last):\n  File "/code/train.py", line 7, in f\n'
    (attempt / "rank-0.err").write_text(f"{traceback}    f()\nValueError: bad data\n")
    record = {"rank": 0, "node": "n1", "status": 1, "ended": 1.0, "told": ""}
    (attempt / "rank-0.exit").write_text(json.dumps(record))
    return 1


def test_the_same_exception_twice_is_not_retried(allocation: Allocation) -> None:
    assert allocation.run(RESTARTS, raises, raises) == 1
    assert len(allocation.hosts) == 2
    message = "attempts 1 and 2 ended with the same ValueError at train.py:7, without a new step"
    assert allocation.end(1)["message"] == f"not retried: {message}"


def test_a_failure_is_not_retried_unless_asked(allocation: Allocation) -> None:
    assert allocation.run("--grace 60 --requeue 1 --restarts 1", fails("n1")) == 3
    assert (allocation.end()["how"], allocation.end()["reason"]) == ("", "failure")


@pytest.mark.parametrize(
    ("step", "status", "is_end"),
    [pytest.param(completes, 0, False, id="well"), pytest.param(fails("n1"), 3, True, id="failed")],
)
def test_a_link_of_a_chain_that_completes_does_not_end_it(
    allocation: Allocation,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[Path, list[str]], int],
    status: int,
    is_end: bool,
) -> None:
    monkeypatch.setattr(slurm_requests, "cancel_pending", lambda _: "")
    (allocation.attempts.parent / "checkpoints").mkdir(exist_ok=True)
    chain = allocation.attempts.parent / "chain"
    chain.mkdir()
    for number, job_id in ((2, "7"), (3, "8")):
        (chain / f"link-{number}").write_text(json.dumps({"job_id": job_id, "links": 3}))
    # the link before
    (chain / "progress").write_text('{"number": 1, "status": 3, "at_once": true}')
    (allocation.attempts / "0/start").write_text(json.dumps({"started": time.time()}))
    assert allocation.run("--grace 60", step) == status
    assert (chain / "stopped").exists() == is_end
    # the link after it is compared with the last one that failed
    assert json.loads((chain / "progress").read_text())["number"] == (2 if is_end else 1)
    assert ("as link 1 did" in allocation.end()["message"]) == is_end
