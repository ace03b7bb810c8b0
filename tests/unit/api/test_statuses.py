"""Watching the jobs of functions: how often Slurm is asked, when a job is over, and which job is
cancelled.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcrun.api import function_job
from hpcrun.api.function_job import FunctionJob
from hpcrun.errors import HpcrunError, SchedulerError
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.slurm_text import SEPARATOR
from tests.unit.builders import run, write


@dataclass
class Site:
    """A Slurm whose squeue and scancel say what stands in files."""

    folder: Path

    def says(self, states: dict[str, str]) -> None:
        script = "/r/run-{}/.submission_file_ab.sh"
        lines = (
            SEPARATOR.join(
                (job, word, "None", "0:10", "1:00", "n1", script.format(job.split("_")[0]), "N/A")
            )
            for job, word in states.items()
        )
        self.answers("squeue", "\n".join(f"echo '{line}'" for line in lines))

    def answers(self, command: str, program: str) -> None:
        calls = f'echo "{command} $@" >>"{self.folder}/calls"'
        write(self.folder / f"bin/{command}", f"#!/bin/sh\n{calls}\n{program}\n").chmod(0o755)

    def calls(self, command: str = "squeue") -> list[str]:
        calls = self.folder / "calls"
        return (
            [line for line in calls.read_text().splitlines() if line.startswith(command)]
            if calls.exists()
            else []
        )

    def job(
        self, job_id: str, last: LastStatus | None = None, *, run_id: str = "", **said: Any
    ) -> FunctionJob[Any]:
        array, is_task, _ = job_id.partition("_")
        of = run(run_id or f"run-{array}", job_id=array, **said)
        if is_task:
            of.plan["sweep"] = {"indices": "0-3", "first": 0, "max_parallel": None}
        store = RunStore(self.folder / "runs")
        if not store.folder(of.run_id).exists():
            store.create(of, "")
        if last:
            store.save_status(of.run_id, last)
        index = int(job_id.rpartition("_")[2]) if is_task else 0
        return FunctionJob.of_run(store.folder(of.run_id), job_id, 1, index=index)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", str(write(tmp_path / "slurm.conf", "ClusterName=alpha\n")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site.says({})
    yield site
    function_job._LEARNED.clear()


def ends(job: FunctionJob[Any], *, again: bool = False, signal: str = "") -> None:
    """Write the records of its script's end."""
    folder = job.run_folder.path / f"elements/{job._index}/attempts/0"
    write(folder / "start", json.dumps({"job_id": "1", "host": "n1", "started": time.time()}))
    exit_ = {"status": 3, "signal": signal, "ended": time.time() + 1, "again": again, "reason": ""}
    write(folder / "exit", json.dumps(exit_))


def test_all_jobs_cost_one_squeue_in_ten_seconds(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.says({"7": "RUNNING", "8_[1-2]": "PENDING"})
    mine = [site.job("7"), site.job("8_1"), site.job("8_2")]
    for _ in range(3):
        assert [job.state for job in mine] == ["RUNNING", "PENDING", "PENDING"]
        assert not any(job.done() for job in mine)
    site.says({"7": "COMPLETED", "8_1": "FAILED", "8_[2]": "PENDING"})
    assert not mine[0].done()
    assert len(site.calls()) == 1
    monkeypatch.setitem(function_job.ASK_EVERY_S, "slurm", 0.0)
    assert mine[0].state == "RUNNING"  # by the answer that all who poll share
    monkeypatch.setattr("hpcrun.schedulers.queue_cache.EVERY_S", 0.0)
    (site.folder / "cache/hpcrun/squeue-alpha").unlink()
    assert [job.done() for job in mine] == [True, True, False]


def test_jobs_of_this_machine_are_looked_at_twice_a_second(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = site.job("L1", scheduler="local", cluster=None)
    learned = []
    for at_s in (100.0, 100.4, 100.5, 100.9, 101.0):
        monkeypatch.setattr("hpcrun.api.function_job.time.monotonic", lambda at_s=at_s: at_s)
        job.get_info()
        learned.append(function_job._LEARNED[job.run_folder.path].at_s)
    assert learned == [100.0, 100.0, 100.5, 100.5, 101.0]


def test_a_job_whose_script_has_ended_or_that_is_known_to_be_over_is_over_and_nobody_need_be_asked(
    site: Site,
) -> None:
    job = site.job("7")
    ends(job)
    assert job.done()
    known = site.job("8", LastStatus("TIMEOUT", 1.0, final=True, forgotten=True))
    assert known.done() is True
    assert known.state == "TIMEOUT"
    assert site.calls() == []


def test_the_script_s_word_comes_before_an_older_answer(site: Site) -> None:
    site.says({"7": "RUNNING", "8": "RUNNING"})
    failed, cancelled = site.job("7"), site.job("8")
    assert failed.state == "RUNNING"
    assert cancelled.state == "RUNNING"
    ends(failed)
    ends(cancelled, signal="TERM")
    (cancelled.run_folder.path / "cancelled").touch()  # by hpcrun cancel, say, in another process
    # Slurm may know better why it failed
    assert failed.done() is True
    assert failed.state == "COMPLETING"
    assert cancelled.done() is True
    assert cancelled.state == "CANCELLED"


def test_an_attempt_that_is_started_again_is_not_the_end(site: Site) -> None:
    site.says({"7": "PENDING"})
    job = site.job("7")
    ends(job, again=True)
    assert not job.done()


@pytest.mark.parametrize(
    ("state", "ago_s", "squeue", "over"),
    [("UNKNOWN", 30, "", False), ("UNKNOWN", 61, "", True), ("RUNNING", 3600, "exit 1", False)],
)
def test_a_job_that_nobody_knows_is_given_up_after_a_minute_and_none_while_the_controller_is_away(
    site: Site, state: str, ago_s: float, squeue: str, over: bool
) -> None:
    site.answers("squeue", squeue)
    job = site.job("7", LastStatus(state, time.time() - ago_s))
    assert job.done() == over
    assert job.state == state


def test_a_run_of_another_cluster_is_not_asked_about(site: Site) -> None:
    site.says({"7": "FAILED"})
    job = site.job("7", cluster="beta")
    assert job.done() is False
    assert job.state == "UNKNOWN"


def test_only_a_job_that_is_listed_as_the_run_s_is_cancelled(site: Site) -> None:
    site.answers("scancel", "")
    site.says({"7": "RUNNING"})
    other = site.job("7", run_id="reused")
    with pytest.raises(HpcrunError, match="Slurm does not know job 7: nothing was cancelled"):
        other.cancel()
    other.cancel(check=False)
    assert site.calls("scancel") == []
    assert not (other.run_folder.path / "cancelled").exists()


def test_a_cancellation_is_noted_in_the_run_s_folder_unless_slurm_refuses_it(site: Site) -> None:
    site.answers("scancel", "exit 1")
    site.says({"8_1": "RUNNING"})
    job = site.job("8_1")
    mark = job.run_folder.path / "elements/1/cancelled"
    with pytest.raises(SchedulerError, match="scancel failed"):
        job.cancel()
    assert not mark.exists()  # else its end would be taken for a cancellation
    site.answers("scancel", "")
    with pytest.raises(SchedulerError, match="was not cancelled: Slurm still lists it as RUNNING"):
        job.cancel()
    assert not mark.exists()
    site.answers("scancel", f"printf '#!/bin/sh\\n' >'{site.folder}/bin/squeue'")
    job.cancel()
    assert mark.exists()
    assert site.calls("scancel")[-1] == "scancel --quiet 8_1"
