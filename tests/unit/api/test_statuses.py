"""Watching many jobs: how often Slurm is asked, and when a job is over."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcrun.actions.status.poll import known_run
from hpcrun.api.job import JobKey, JobStatuses
from hpcrun.errors import SchedulerError
from hpcrun.job.state import JobInfo
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.slurm import SlurmScheduler
from tests.unit.given import run

SEPARATOR = "\x1f"


@dataclass
class Site:
    """A squeue that says what stands in a file, and a clock."""

    folder: Path
    now_s: float = 1000.0
    statuses: JobStatuses = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        squeue = self.folder / "bin/squeue"
        squeue.write_text(f'#!/bin/sh\necho asked >>"{self.folder}/calls"\n. "{self.folder}/answer"\n')
        squeue.chmod(0o755)
        self.says({})
        scheduler = SlurmScheduler({"PATH": f"{self.folder}/bin"})
        self.statuses = JobStatuses(scheduler, "alpha", "login1", clock=lambda: self.now_s)

    def says(self, states: dict[str, str]) -> None:
        lines = (
            SEPARATOR.join((job_id, word, "None", "0:10", "1:00", "n1", script(job_id), "N/A"))
            for job_id, word in states.items()
        )
        (self.folder / "answer").write_text("\n".join(f"echo '{line}'" for line in lines) + "\n")

    def has_scancel(self, status: int = 0) -> Path:
        """Give it a scancel with this exit status; return the file to which that writes what it is to end."""
        scancel = self.folder / "bin/scancel"
        scancel.write_text(f'#!/bin/sh\necho "$@" >>"{self.folder}/ended"\nexit {status}\n')
        scancel.chmod(0o755)
        return self.folder / "ended"

    def is_away(self) -> None:
        (self.folder / "answer").write_text("exit 1\n")

    def calls(self) -> int:
        calls = self.folder / "calls"
        return len(calls.read_text().split()) if calls.exists() else 0

    def job(self, job_id: str, index: int = 0, cluster: str = "alpha", run_id: str = "") -> JobKey:
        array_id, is_task, _ = job_id.partition("_")
        store = RunStore(self.folder / "runs")
        plan = {"sweep": {"indices": "0-3", "first": 0, "max_parallel": None}} if is_task else {}
        of = run(run_id or array_id, job_id=array_id, cluster=cluster, plan=plan)
        folder = store.folder(of.run_id)
        self.statuses.runs.setdefault(folder, known_run(of, store))
        return folder, index

    def leaves_word(self, job: JobKey, *, again: bool = False, signal: str = "") -> None:
        folder = job[0] / "elements" / str(job[1]) / "attempts/0"
        folder.mkdir(parents=True)
        (folder / "start").write_text(json.dumps({"job_id": "1", "host": "n1", "started": time.time()}))
        (folder / "exit").write_text(
            json.dumps({"status": 3, "signal": signal, "ended": time.time(), "again": again, "reason": ""})
        )


def script(job_id: str) -> str:
    """The script of the run whose folder is named after a job."""
    return f"/r/{job_id.partition('_')[0]}/.submission_file_ab.sh"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_all_jobs_cost_one_squeue_in_ten_seconds(site: Site) -> None:
    site.says({"7": "RUNNING", "8_[1-2]": "PENDING"})
    jobs = [site.job("7"), site.job("8_1", 1), site.job("8_2", 2)]
    for _ in range(3):
        assert [site.statuses.status(job).state for job in jobs] == ["RUNNING", "PENDING", "PENDING"]
    assert site.calls() == 1
    site.says({"7": "COMPLETED", "8_1": "FAILED", "8_[2]": "PENDING"})
    site.now_s += 9
    assert not site.statuses.over(jobs[0])
    site.now_s += 2
    assert [site.statuses.over(job) for job in jobs] == [True, True, False]
    assert site.calls() == 2


@dataclass
class Asked:
    """This machine as a scheduler that counts how often it is asked, and a clock."""

    name: str = "local"
    times: int = 0
    now_s: float = 0.0

    def poll(self, refs: list[JobRef]) -> dict[Path, JobInfo]:
        self.times += 1
        return {ref.folder: JobInfo(ref.job_id or "", "RUNNING") for ref in refs}


def test_jobs_of_this_machine_are_looked_at_twice_a_second(tmp_path: Path) -> None:
    machine = Asked()
    statuses = JobStatuses(machine, None, "here", clock=lambda: machine.now_s)  # type: ignore[arg-type]
    of = known_run(run(job_id="L1", scheduler="local", host="here", cluster=None), RunStore(tmp_path))
    statuses.runs[of.folder] = of
    for now_s, times in ((0.0, 1), (0.0, 1), (0.4, 1), (0.5, 2), (0.9, 2), (1.0, 3)):
        machine.now_s = now_s
        assert statuses.status((of.folder, 0)).state == "RUNNING"
        assert machine.times == times


def test_an_answer_says_nothing_of_a_job_that_came_after_it(site: Site) -> None:
    site.says({"7": "RUNNING"})
    site.statuses.status(site.job("7"))
    late = site.job("8")
    assert site.statuses.status(late).state == "PENDING"
    assert site.calls() == 1


def test_a_job_that_left_word_is_over_and_nobody_need_be_asked(site: Site) -> None:
    job = site.job("7")
    site.leaves_word(job)
    assert site.statuses.over(job)
    assert site.calls() == 0


def test_the_script_s_word_comes_before_an_older_answer(site: Site) -> None:
    site.says({"7": "RUNNING"})
    job = site.job("7")
    assert site.statuses.status(job).state == "RUNNING"
    site.leaves_word(job)
    found = site.statuses.status(job)
    assert (found.state, found.exit_status, found.final) == ("FAILED", 3, True)


def test_an_attempt_that_is_started_again_is_not_the_end(site: Site) -> None:
    site.says({"7": "PENDING"})
    job = site.job("7")
    site.leaves_word(job, again=True)
    assert not site.statuses.over(job)


def test_a_job_that_nobody_knows_is_given_up_after_a_minute(site: Site) -> None:
    job = site.job("7")
    assert not site.statuses.over(job)
    site.now_s += 30
    assert not site.statuses.over(job)
    site.now_s += 31
    assert site.statuses.over(job)
    assert site.statuses.status(job).state == "UNKNOWN"


def test_a_controller_that_is_away_ends_no_job(site: Site) -> None:
    site.says({"7": "RUNNING"})
    job = site.job("7")
    assert not site.statuses.over(job)
    site.is_away()
    for _ in range(12):
        site.now_s += 11
        assert not site.statuses.over(job)
    assert site.statuses.status(job).state == "RUNNING"
    assert site.calls() == 13


def test_a_run_of_another_cluster_is_not_asked_about(site: Site) -> None:
    site.says({"7": "FAILED"})
    job = site.job("7", cluster="beta")
    assert not site.statuses.over(job)
    assert site.statuses.status(job).state == "PENDING"


def test_only_a_job_that_is_listed_as_the_run_s_is_cancelled(site: Site) -> None:
    ended = site.has_scancel()
    site.says({"7": "RUNNING"})
    mine = site.job("7")
    other = site.job("7", run_id="reused")
    with pytest.raises(SchedulerError, match="Slurm does not know job 7: nothing was cancelled"):
        site.statuses.cancel(other)
    assert not ended.exists()
    assert not (other[0] / "cancelled").exists()
    site.statuses.cancel(mine)
    assert ended.read_text().split() == ["--quiet", "7"]
    assert (mine[0] / "cancelled").exists()


def test_a_cancellation_is_noted_in_the_run_s_folder_unless_slurm_refuses_it(site: Site) -> None:
    site.has_scancel(1)
    site.says({"8_1": "RUNNING"})
    folder, index = site.job("8_1", 1)
    with pytest.raises(SchedulerError, match="scancel failed"):
        site.statuses.cancel((folder, index))
    mark = folder / "elements/1/cancelled"
    assert not mark.exists()  # else its end would be taken for a cancellation
    site.has_scancel()
    site.statuses.cancel((folder, index))
    assert mark.exists()


def test_an_element_is_cancelled_with_its_run(site: Site) -> None:
    """By hpcrun cancel, say, in another process."""
    job = site.job("8_1", 1)
    site.leaves_word(job, signal="TERM")
    (job[0] / "cancelled").touch()
    assert site.statuses.over(job)
    assert site.statuses.status(job).state == "CANCELLED"


def test_a_job_that_hpcrun_status_has_found_over_need_not_be_asked_about(site: Site) -> None:
    job = site.job("7")
    RunStore(job[0].parent).create(run("7", job_id="7"), "")
    RunStore(job[0].parent).save_status("7", LastStatus("TIMEOUT", 1.0, final=True))
    other = JobStatuses(site.statuses.scheduler, "alpha", "login1")
    other.runs[job[0]] = known_run(run("7", job_id="7"), RunStore(job[0].parent))
    assert other.over(job)
    assert other.status(job).state == "TIMEOUT"
    assert site.calls() == 0
