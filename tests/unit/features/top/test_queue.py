"""The user's other jobs, and the partitions' queues."""

from __future__ import annotations

from hpcrun.features.top.queue import job_cells, other_jobs, partition_cells
from hpcrun.job.run_paths import SUBMISSION_FILE
from hpcrun.schedulers.pending_and_usage import QueuedJob, parse_jobs
from hpcrun.schedulers.slurm_text import SEPARATOR

RUN_ID = "20260102-030405-train-0a1b"


def squeue(*jobs: str) -> list[QueuedJob]:
    """What squeue says of jobs: id, partitions, user, state, reason, priority, command."""
    lines = []
    for job in jobs:
        job_id, partitions, user, state, reason, priority, command = job.split()
        line = [
            job_id,
            partitions,
            "name",
            user,
            state,
            "1:00",
            "1-00:00:00",
            "2",
            reason,
            priority,
            "N/A",
            "normal",
        ]
        lines.append(SEPARATOR.join([*line, command]))
    return parse_jobs("\n".join([*lines, "slurm_load_jobs error"]))


JOBS = squeue(
    f"7 gpu me RUNNING None 5 /home/me/runs/{RUN_ID}/{SUBMISSION_FILE}",
    "8 gpu me PENDING Priority 5 /home/me/other.sh",
    "9_[0-9%2] gpu,cpu you PENDING Resources 9 /x",
    "10 cpu me PENDING JobHeldUser 5 /home/me/held.sh",
    "11 gpu you RUNNING None 5 /x",
)


def test_other_jobs_are_the_user_s_that_no_run_knows() -> None:
    assert [job.job_id for job in other_jobs(JOBS, "me", {RUN_ID})] == ["8", "10"]
    assert [job.job_id for job in other_jobs(JOBS, "me", set())] == ["7", "8", "10"]
    shown = job_cells(JOBS[3])
    assert shown["info"] == "held by you (JobHeldUser)"
    assert shown["limit"] == "1-00:00:00"


def test_a_partition_says_how_much_waits_and_where_the_user_stands() -> None:
    cpu, gpu = partition_cells(JOBS, "me", 0.0)
    assert gpu["running"] == "2"
    assert gpu["pending"] == "11"
    assert gpu["yours"] == "1 running, 1 pending"
    assert gpu["your first"] == "11 of 11 in the queue: job 8"
    assert cpu["partition"] == "cpu"
    assert cpu["pending"] == "11"
    assert cpu["your first"] == "1 job held or waiting for others"
    assert [row["your first"] for row in partition_cells(JOBS, "they", 0.0)] == ["-", "-"]
