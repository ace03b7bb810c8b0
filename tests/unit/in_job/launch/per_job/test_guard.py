"""The guard of a job whose first node may fail: when it acts, what it records, what it requests."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import slurm_requests as slurm
from hpcrun.in_job.launch.per_job import guard
from hpcrun.in_job.launch.processes import has_ended
from hpcrun.in_job.launch.records import OVER, REQUEUE
from hpcrun.in_job.launch.slurm_requests import JobSays
from tests.harness import wait_for

LOST = JobSays("RUNNING", batch_host="n1", nodes="n[2-3]")
"""A job whose batch script was on n1, which Slurm has removed from the job."""
EXCLUDE = "HPCRUN_EXCLUDE_BAD"


@dataclass
class Slurm:
    """A Slurm with one job, of which each answer is written down.

    Attributes:
        job: what it reports of the job.
        refusal: its message if it refuses a request.
        requests: what it was asked for.
        looks: how often the guard looked before the attempt ended.
    """

    attempt: Path
    job: JobSays = LOST
    refusal: str = ""
    responds: bool = False
    most_looks: int = 3
    requests: list[Any] = field(default_factory=list)
    looks: int = 0
    now_s: float = 0.0

    def answers(self, node: str) -> bool:
        """Whether the node of the script responds."""
        return self.responds

    def show_job(self) -> JobSays:
        self.requests.append("job")
        return self.job

    def requeue(self, exclude: list[str]) -> str:
        self.requests.append(("requeue", exclude))
        return self.refusal

    def cancel(self) -> str:
        self.requests.append("cancel")
        return self.refusal

    def sleep(self, seconds: float) -> None:
        """Let time pass; the attempt ends after some looks."""
        self.now_s += seconds
        self.looks += 1
        if self.looks == self.most_looks:
            (self.attempt / "exit").write_text("{}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    site = Slurm(tmp_path)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.delenv(EXCLUDE, raising=False)
    monkeypatch.setattr(guard, "answers", site.answers)
    monkeypatch.setattr(slurm, "job", site.show_job)
    monkeypatch.setattr(slurm, "requeue", site.requeue)
    monkeypatch.setattr(slurm, "cancel", site.cancel)
    monkeypatch.setattr(time, "sleep", site.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: site.now_s)
    return site


def record(site: Slurm) -> dict[str, Any]:
    return dict(json.loads((site.attempt / "exit").read_text()))


def test_a_job_that_has_lost_its_script_is_requeued(site: Slurm) -> None:
    assert guard.main(["n1", REQUEUE]) == 0
    assert site.requests == ["job", ("requeue", [])]
    written = record(site)
    assert written["again"] is True
    assert written["how"] == REQUEUE
    assert written["message"] == ""
    assert written["reason"] == "node_failure"
    assert written["status"] == 143
    assert written["nodes"] == ["n1"]


def test_a_job_without_another_attempt_is_cancelled(site: Slurm) -> None:
    assert guard.main(["n1", OVER]) == 0
    assert site.requests == ["job", "cancel"]
    written = record(site)
    assert written["again"] is False
    assert written["how"] == OVER
    assert written["nodes"] == ["n1"]
    assert "--requeue does not allow another attempt" in written["message"]


def test_a_requeued_job_excludes_the_failed_node_on_request(
    site: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXCLUDE, "1")
    guard.main(["n1", REQUEUE])
    assert site.requests == ["job", ("requeue", ["n1"])]


@pytest.mark.parametrize("how", [REQUEUE, OVER])
def test_a_refusal_of_slurm_is_in_the_log(
    site: Slurm, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    site.refusal = "Access denied"
    guard.main(["n1", how])
    assert capsys.readouterr().err == "hpcrun: Access denied\n"


@pytest.mark.parametrize(
    "job",
    [
        replace(LOST, nodes="n[1-3]"),
        replace(LOST, state="COMPLETING"),
        JobSays(),
    ],
    ids=["its script is there", "it ends", "Slurm does not respond"],
)
def test_another_job_is_left_alone(site: Slurm, job: JobSays) -> None:
    site.job = job
    guard.main(["n1", REQUEUE])
    assert site.requests == ["job"]


def test_slurm_is_asked_every_thirty_seconds(site: Slurm) -> None:
    site.job = replace(LOST, nodes="n[1-3]")
    site.most_looks = 12
    guard.main(["n1", REQUEUE])
    assert site.now_s == 120
    assert len(site.requests) == 3


@pytest.mark.parametrize(("beats", "requests"), [(True, 0), (False, 1)])
def test_without_a_heartbeat_slurm_is_asked_about_a_node_that_responds(
    site: Slurm, monkeypatch: pytest.MonkeyPatch, beats: bool, requests: int
) -> None:
    site.responds = True
    site.job = replace(LOST, nodes="n[1-3]")
    site.most_looks = 10

    def sleep(seconds: float) -> None:
        site.sleep(seconds)
        if beats:
            (site.attempt / "heartbeat").write_text(str(site.now_s))

    monkeypatch.setattr(time, "sleep", sleep)
    guard.main(["n1", REQUEUE])
    assert len(site.requests) == requests


def test_nothing_is_asked_after_the_end_of_the_attempt(site: Slurm) -> None:
    (site.attempt / "exit").write_text("{}")
    assert guard.main(["n1", REQUEUE]) == 0
    assert site.requests == []
    assert site.looks == 0


@pytest.fixture
def helper(site: Slurm, monkeypatch: pytest.MonkeyPatch) -> guard.Guard:
    """A guard whose srun is a program that ends at once."""
    monkeypatch.setattr(slurm, "small_step", lambda host: (["true", host], {}))
    monkeypatch.setattr(guard, "reap", lambda _: None)

    def try_start(step: list[str], *_: Any, **__: Any) -> tuple[int, int]:
        site.requests.append(step[1])
        return 7, 0

    monkeypatch.setattr(guard, "try_start", try_start)
    return guard.Guard("n1", hosts=["n2", "n3"], how=REQUEUE, exclude=False)


def test_a_guard_that_has_ended_is_started_on_another_node(
    site: Slurm, helper: guard.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended = False
    monkeypatch.setattr(guard, "has_ended", lambda _: has_ended)
    helper.renew(0.0)
    helper.renew(100.0)
    has_ended = True
    helper.renew(200.0)
    helper.renew(201.0)
    assert site.requests == ["n2", "n3"]


def test_a_guard_has_acted_if_it_has_recorded_the_end(site: Slurm, helper: guard.Guard) -> None:
    assert not helper.has_acted(1.0)
    (site.attempt / "exit").write_text("{}")
    assert helper.has_acted(1.0 + guard.LOOK_S)


# --- the step of the guard -----------------------------------------------------------------------


class Srun:
    """An srun that writes its node down, and runs or ends as a file of its own says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._starts = folder / "starts"
        self.runs = folder / "runs"
        program = folder / "bin/srun"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            'for option; do case "$option" in --nodelist=*) node=${option#*=};; esac; done\n'
            f'echo "$node ${{{EXCLUDE}-}}" >>{self._starts}\n'
            f"test -e {self.runs} && exec sleep 60\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def starts(self, number: int) -> list[str]:
        """Wait for a number of starts, and return the node of each."""
        wait_for(lambda: len(self._lines()) >= number, 20, "srun")
        return self._lines()

    def _lines(self) -> list[str]:
        return self._starts.read_text().splitlines() if self._starts.exists() else []


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Srun:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    return Srun(tmp_path, monkeypatch)


def test_a_guard_that_runs_is_not_started_again(srun: Srun) -> None:
    srun.runs.touch()
    watch = guard.Guard("n1", hosts=["n2", "n3"], how=OVER, exclude=True)
    watch.renew(100)
    assert srun.starts(1) == ["n2 1"]
    watch.renew(200)
    watch.end()
    watch.renew(300)
    assert srun.starts(1) == ["n2 1"]


def test_an_ended_guard_is_started_on_the_next_node(srun: Srun) -> None:
    watch = guard.Guard("n1", hosts=["n2", "n3"], how=OVER, exclude=False)
    for number, now_s in enumerate((100, 115, 130), 1):
        watch.renew(now_s)
        wait_for(lambda: has_ended(watch._srun), 20, "the end of srun")
        watch.renew(now_s + 14)
        assert len(srun.starts(number)) == number
    assert srun.starts(3) == ["n2 ", "n3 ", "n2 "]
    watch.end()


def test_a_guard_without_another_node_is_not_started(srun: Srun) -> None:
    watch = guard.Guard("n1", hosts=[], how=OVER, exclude=False)
    watch.renew(100)
    watch.end()
    assert watch._srun == 0


def test_the_record_shows_that_the_guard_has_acted(tmp_path: Path, srun: Srun) -> None:
    watch = guard.Guard("n1", hosts=["n2"], how=OVER, exclude=False)
    assert not watch.has_acted(100)
    (tmp_path / "exit").write_text("{}")
    assert not watch.has_acted(109)
    assert watch.has_acted(110)
