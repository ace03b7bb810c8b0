"""How long a preflight is waited for, and what is said of a job that could not judge its nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs import cancel
from hpcrun.errors import JobFailedError, SchedulerError
from hpcrun.features.preflight import preflight_wait
from hpcrun.features.preflight.preflight_wait import PreflightResult, PreflightWatch
from hpcrun.job.job_states import JobInfo
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Verb
from tests.unit.builders import ports, run, write
from tests.unit.in_job.preflight.test_judge import cluster

START_S = 1_800_000_000.0
VERDICT = {"ok": True, "nodes": []}
RUNNING = JobInfo("4711", "RUNNING", hosts="n[0-1]", asked_s=START_S)
PENDING = JobInfo("4711", "PENDING", reason="Priority", asked_s=START_S)


class Clock:
    """The time of this machine, which only pauses move on.

    Attributes:
        events: what happens when so many seconds have passed.
    """

    def __init__(self) -> None:
        self.s = 0.0
        self.events: list[tuple[float, Any]] = []

    def monotonic(self) -> float:
        return self.s

    def time(self) -> float:
        return START_S + self.s

    def sleep(self, pause_s: float) -> None:
        self.s = round(self.s + pause_s, 3)
        assert self.s < 1000, "it waits for ever"
        while self.events and self.events[0][0] <= self.s:
            self.events.pop(0)[1]()


class Slurm:
    """A scheduler with one job."""

    name = "slurm"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.info: JobInfo | None = RUNNING
        self.nodes = {"n0": "alloc", "n1": "alloc"}
        self.asked_at: list[float] = []
        self.is_away = False
        self.cancelled = False

    def cluster(self) -> str:
        return "alpha"

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        self.asked_at.append(self.clock.s)
        if self.is_away:
            raise SchedulerError("Slurm does not respond")
        if self.info is None or not jobs:
            return {}
        return {jobs[0].folder: replace(self.info, asked_s=self.clock.time())}

    def node_states(self, hosts: str) -> dict[str, str]:
        assert hosts == "n[0-1]"
        return self.nodes

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        assert verb == "cancel"
        self.cancelled = True
        self.info = None


class Preflight:
    """A job that checks two nodes, as it is waited for."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.slurm = Slurm(self.clock)
        store = RunStore(folder)
        record = run("20260102-030405-preflight-0a1b", created_s=START_S)
        self.folder = store.create(record, "")
        self.told: list[str] = []
        there = replace(ports(store, self.slurm, START_S), now_s=self.clock.time)
        self.watch = PreflightWatch(record.run_id, there, self.told.append)

    def write(self, name: str, **fields: Any) -> None:
        """A file of the attempt."""
        write(self.folder / "elements/0/attempts/0" / name, json.dumps(fields))

    def starts(self) -> None:
        self.write("start", job_id="4711", host="n0", started=START_S)

    def ends(self, status: int = 0, message: str = "") -> None:
        self.write("exit", status=status, signal="", ended=START_S + 1, message=message)

    def judges(self) -> None:
        self.write("preflight/verdict.json", **VERDICT)

    def after(self, seconds: float, event: Any) -> None:
        self.clock.events.append((seconds, event))

    def result(self) -> PreflightResult:
        return self.watch.wait()


@pytest.fixture
def preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preflight:
    job = Preflight(tmp_path)
    monkeypatch.setattr(preflight_wait, "time", job.clock)
    monkeypatch.setattr(cancel, "time", job.clock)
    return job


def test_the_verdict_of_the_job_is_the_result(preflight: Preflight) -> None:
    preflight.starts()
    preflight.judges()
    item, verdict = preflight.result()
    assert verdict == VERDICT
    assert item.status.state == "RUNNING"
    assert preflight.clock.s == 0


def test_the_scheduler_is_asked_every_three_seconds(preflight: Preflight) -> None:
    preflight.starts()
    preflight.after(10, preflight.judges)
    preflight.result()
    assert preflight.slurm.asked_at == [0.0, 3.3, 6.6, 9.9]
    assert preflight.clock.s == 10.2


def test_what_the_job_does_is_told_when_it_changes(preflight: Preflight) -> None:
    slurm = preflight.slurm
    slurm.info = PENDING

    def start() -> None:
        slurm.info = RUNNING
        preflight.starts()

    preflight.after(7, start)
    preflight.after(20, preflight.judges)
    preflight.result()
    assert preflight.told == ["PENDING (Priority)", "RUNNING on n[0-1]"]


def test_a_scheduler_may_be_away_twice_in_a_row(preflight: Preflight) -> None:
    preflight.starts()
    preflight.after(1, lambda: setattr(preflight.slurm, "is_away", True))
    preflight.after(8, lambda: setattr(preflight.slurm, "is_away", False))
    preflight.after(11, lambda: setattr(preflight.slurm, "is_away", True))
    preflight.after(15, preflight.judges)
    assert preflight.result()[1] == VERDICT


def test_a_scheduler_that_stays_away_ends_the_wait(preflight: Preflight) -> None:
    preflight.starts()
    preflight.after(1, lambda: setattr(preflight.slurm, "is_away", True))
    with pytest.raises(SchedulerError, match="Slurm does not respond"):
        preflight.result()
    assert preflight.slurm.asked_at == [0.0, 3.3, 6.6, 9.9]


@pytest.mark.parametrize(
    ("message", "seconds"), [("preflight: bad nodes", 60), ("srun: no such node", 2)]
)
def test_a_verdict_that_was_written_is_waited_for_longer(
    preflight: Preflight, message: str, seconds: int
) -> None:
    preflight.starts()
    preflight.ends(1, message)
    preflight.slurm.info = replace(RUNNING, state="FAILED")
    with pytest.raises(JobFailedError, match=f"the preflight job 4711 failed: {message}") as caught:
        preflight.result()
    assert caught.value.hint == "hpcrun logs --batch 4711"
    assert seconds < preflight.clock.s < seconds + 1


def test_a_verdict_that_is_seen_late_counts(preflight: Preflight) -> None:
    preflight.starts()
    preflight.ends()
    preflight.after(59, preflight.judges)
    assert preflight.result()[1] == VERDICT


def test_a_job_that_was_cancelled_says_so(preflight: Preflight) -> None:
    preflight.slurm.info = JobInfo("4711", "CANCELLED", reason="by uid 0")
    with pytest.raises(JobFailedError, match="the preflight job 4711 ended as CANCELLED"):
        preflight.result()
    assert 2 < preflight.clock.s < 3


def test_a_node_that_does_not_respond_is_bad(preflight: Preflight) -> None:
    preflight.slurm.nodes["n1"] = "down*"
    item, verdict = preflight.result()
    assert [bad["node"] for bad in verdict["bad"]] == ["n1"]
    assert "Slurm state down, not responding" in verdict["bad"][0]["why"]
    assert item.status.hosts == "n[0-1]"
    assert 10 < preflight.clock.s < 15
    assert preflight.slurm.cancelled
    assert preflight.told[-1] == "the job was cancelled: the preflight cannot finish"


def test_a_script_that_has_started_gets_a_minute(preflight: Preflight) -> None:
    names, reports = cluster()
    preflight.starts()
    preflight.write(f"preflight/{names[0]}.json", **reports[names[0]])
    preflight.slurm.nodes["n1"] = "drain*"
    _, verdict = preflight.result()
    assert [bad["node"] for bad in verdict["bad"]] == ["n1"]
    assert 60 < preflight.clock.s < 65


def test_nodes_that_respond_are_waited_for_until_the_job_ends(preflight: Preflight) -> None:
    preflight.starts()
    end = replace(RUNNING, state="TIMEOUT")
    preflight.after(70, lambda: setattr(preflight.slurm, "info", end))
    with pytest.raises(JobFailedError, match="ended as TIMEOUT"):
        preflight.result()
    assert not preflight.slurm.cancelled


def test_a_failed_node_is_judged_by_the_others(preflight: Preflight) -> None:
    names, reports = cluster()
    preflight.starts()
    preflight.write(f"preflight/{names[0]}.json", **reports[names[0]])
    preflight.slurm.info = replace(RUNNING, state="NODE_FAIL")
    _, verdict = preflight.result()
    assert "n1" in [bad["node"] for bad in verdict["bad"]]


def test_a_node_that_failed_early_is_no_verdict(
    preflight: Preflight,
) -> None:
    preflight.slurm.info = replace(RUNNING, state="NODE_FAIL")
    with pytest.raises(JobFailedError, match="ended as NODE_FAIL"):
        preflight.result()


def test_ctrl_c_cancels_the_job(preflight: Preflight) -> None:
    assert preflight.watch.cancel() == "was cancelled"
    assert preflight.slurm.cancelled
