"""Which of the jobs that Slurm lists are a run's: ids are used again, the script in a run's folder
is not.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.job.job_states import is_live
from hpcrun.schedulers import slurm
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.slurm import SlurmScheduler
from hpcrun.schedulers.slurm_text import SEPARATOR, jobs_of_runs, parse_sacct, parse_squeue

MINE, OTHER = "20260102-030405-train-0a1b", "20270102-030405-else-0a1b"
RUNS = Path("/home/me/runs")
ELEMENT = RUNS / MINE / "elements" / "3"


def listed(job_id: str, state: str, command: str) -> str:
    """A line of squeue."""
    return SEPARATOR.join((job_id, state, "None", "0:10", "1:00", "n1", command, "N/A")) + "\n"


def accounted(job_id: str, state: str, submitted: str, line: str) -> str:
    """A line of sacct."""
    return SEPARATOR.join((job_id, state, "3:0", "5", "10", "n1", "None", submitted, line)) + "\n"


def script(run_id: str) -> str:
    return f"/r/{run_id}/.submission_file_0123abcd.sh"


@pytest.mark.parametrize(
    ("command", "mine"),
    [
        (script(MINE), True),
        (f"/another/spelling/{MINE}/.submission_file_9.sh", True),
        (script(OTHER), False),
        (script(f"x{MINE}"), False),
        ("(null)", False),  # sbatch --wrap, and a script on standard input
        ("bash", False),  # salloc
        (f"/r/{MINE}/train.sh", False),
        ("", False),
    ],
)
@pytest.mark.parametrize(
    ("listed_as", "job"),
    [
        ("7", JobRef(RUNS / MINE, "7")),
        ("7_3", JobRef(ELEMENT, "7_3")),
        ("7_[1-4%2]", JobRef(ELEMENT, "7_3")),
        ("7", JobRef(RUNS / MINE, None)),
    ],
)
def test_a_job_is_a_runs_by_its_script(
    command: str, mine: bool, listed_as: str, job: JobRef
) -> None:
    found = jobs_of_runs(parse_squeue(listed(listed_as, "RUNNING", command)), [job])
    assert (job.folder in found) is mine
    lines = accounted(
        listed_as, "FAILED", "2026-01-02T03:04:06", f"sbatch --output=/r/{OTHER}/log {command}"
    )
    assert (job.folder in jobs_of_runs(parse_sacct(lines), [job])) is mine


def test_each_run_of_one_job_id_has_its_job_and_the_last_submission_of_a_folder_counts() -> None:
    text = accounted("7", "COMPLETED", "2027-01-02T00:00:00", f"sbatch {script(OTHER)}")
    text += accounted("7", "FAILED", "2026-01-02T00:00:00", f"sbatch {script(MINE)}")
    text += accounted("7", "CANCELLED by 1", "2026-06-02T00:00:00", "sbatch --wrap true")
    refs = [JobRef(RUNS / MINE, "7"), JobRef(RUNS / OTHER, "7")]
    found = jobs_of_runs(parse_sacct(text), refs)
    assert {folder.name: info.state for folder, info in found.items()} == {
        MINE: "FAILED",
        OTHER: "COMPLETED",
    }
    line = f"sbatch {script(MINE)}"
    text = accounted("7", "COMPLETED", "2026-01-02T05:00:00", line)
    text += accounted("7", "PREEMPTED", "2026-01-02T04:00:00", line)
    (info,) = jobs_of_runs(parse_sacct(text), [JobRef(RUNS / MINE, "7")]).values()
    assert info.state == "COMPLETED"
    line = f"sbatch --output=/r/{MINE}/batch.log {script(MINE)}"
    text = "".join(
        accounted(f"{number}_1", "FAILED", f"2026-01-0{number}T00:00:00", line) for number in (3, 2)
    )
    (info,) = jobs_of_runs(parse_sacct(text + "noise\n"), [JobRef(RUNS / MINE, None)]).values()
    assert info.job_id == "3"
    assert parse_sacct("sacct: error: Invalid field requested: SubmitLine") == []


def scheduler(folder: Path, squeue: str, sacct: str) -> SlurmScheduler:
    """One whose commands give these answers."""
    for name, answer in (("squeue", squeue), ("sacct", sacct)):
        (folder / f"{name}.answer").write_text(answer)
        (folder / name).write_text(f"#!/bin/sh\ncat {folder}/{name}.answer\n")
        (folder / name).chmod(0o755)
    return SlurmScheduler({"PATH": f"{folder}:{os.defpath}"})


def test_the_end_of_a_run_is_learned_though_its_id_is_another_jobs_now(tmp_path: Path) -> None:
    # RUNNING: the controller lost it before its end
    for state, known in (("FAILED", ["FAILED"]), ("RUNNING", [])):
        slurm = scheduler(
            tmp_path,
            listed("7", "RUNNING", script(OTHER)) + listed("8", "RUNNING", "(null)"),
            accounted("7", state, "2026-01-02T03:04:06", f"sbatch {script(MINE)}")
            + accounted("7", "RUNNING", "2027-01-02T03:04:06", f"sbatch {script(OTHER)}"),
        )
        found = slurm.poll([JobRef(RUNS / MINE, "7"), JobRef(RUNS / "20260102-030405-b-0a1b", "8")])
        assert [info.state for info in found.values()] == known


def test_a_job_that_only_accounting_knows_is_not_live(tmp_path: Path) -> None:
    lost = JobRef(RUNS / MINE, None, since_s=0.0)
    said = accounted("7", "RUNNING", "2026-01-02T03:04:06", f"sbatch {script(MINE)}")
    (info,) = scheduler(tmp_path, "", said).poll([lost]).values()
    assert info.job_id == "7"
    assert is_live(info) is False
    (info,) = scheduler(tmp_path, listed("7", "RUNNING", script(MINE)), said).poll([lost]).values()
    assert is_live(info)


def test_a_job_of_the_last_two_seconds_is_pending_although_the_answer_does_not_list_it() -> None:
    job = JobRef(RUNS / MINE, "7", submitted_s=100.0)
    assert slurm._too_new([job], asked_s=101.5)[job.folder].state == "PENDING"
    assert slurm._too_new([job], asked_s=102.5) == {}
