"""What hpcrun did not submit: jobs as scontrol and sacct show them (texts of 22.05 and 24.11), and
logs.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import (
    AnyJob,
    explain_job,
    explain_logs,
    find_job,
    is_job_id,
    is_own_live_job,
    parse_listed,
    parse_shown,
)
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.runs.record import LastStatus
from hpcrun.schedulers.slurm_text import SEPARATOR

SHOWN = (
    "JobId=6 ArrayJobId=4 ArrayTaskId=1 JobName=two words UserId=ada(1001) JobState=FAILED "
    "Reason=NonZeroExitCode "
    "Dependency=(null) ExitCode=2:0 RunTime=00:01:05 TimeLimit=01:00:00 NodeList=cpu-1 NumNodes=1 "
    "Command=(null) "
    "WorkDir=/home/me/a b StdErr=/home/me/a b/err.6 StdIn=/dev/null StdOut=/home/me/a b/out.6 "
    "Power= \n"
)


def test_what_scontrol_shows() -> None:
    job = parse_shown(SHOWN)
    assert job is not None
    assert job.item.run.job_id == "4_1"
    assert job.item.run.name == "two words"
    assert job.item.run.nodes == 1
    status = LastStatus(
        "FAILED",
        0.0,
        final=True,
        reason="NonZeroExitCode",
        elapsed_s=65,
        hosts="cpu-1",
        exit_status=2,
    )
    assert job.item.status == status
    assert job.item.folder == Path("/home/me/a b")
    assert job.outputs == (Path("/home/me/a b/err.6"), Path("/home/me/a b/out.6"))
    one = parse_shown(SHOWN.replace("err.6", "out.6"))
    assert one is not None
    assert one.outputs == (Path("/home/me/a b/out.6"),)


@pytest.mark.parametrize(
    ("array", "job_id"),
    [
        ("ArrayJobId=4 ArrayTaskId=1", "4_1"),
        ("ArrayJobId=4 ArrayTaskId=2-9%2", "6"),
        ("ArrayJobId=4", "6"),
        ("ArrayTaskId=1", "6"),
        ("HetJobId=4", "6"),
    ],
)
def test_an_element_is_named_by_its_array(array: str, job_id: str) -> None:
    job = parse_shown(SHOWN.replace("ArrayJobId=4 ArrayTaskId=1", array))
    assert job is not None
    assert job.item.run.job_id == job_id


@pytest.mark.parametrize(
    ("nodes", "number"), [("NumNodes=2-4", 2), ("NumNodes=16", 16), ("NumNodes=", 1)]
)
def test_of_a_range_of_nodes_the_fewest_count(nodes: str, number: int) -> None:
    job = parse_shown(SHOWN.replace("NumNodes=1", nodes))
    assert job is not None
    assert job.item.run.nodes == number


def test_of_two_lines_of_scontrol_the_first_counts() -> None:
    job = parse_shown(f"note\n{SHOWN}{SHOWN.replace('ArrayTaskId=1', 'ArrayTaskId=2')}")
    assert job is not None
    assert job.item.run.job_id == "4_1"
    assert parse_shown("JobId=6 JobName=x\n") is None


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error: Invalid job id specified\n", "No jobs in the system\n"]
)
def test_a_job_that_slurm_does_not_know(text: str) -> None:
    assert parse_shown(text) is None
    assert parse_listed(text) is None


def told(state: str, *files: str, workdir: str = "/w") -> str:
    return (
        SEPARATOR.join(["9", "train", state, "0:9", "n1", "1", "00:01:01", "None", workdir, *files])
        + "\n"
    )


def test_of_a_requeued_job_the_newest_line_of_sacct_counts() -> None:
    job = parse_listed(
        told("REQUEUED", "/w/old.err", "/w/old.out")
        + told("CANCELLED by 1001", "/w/9.err", "/w/9.out")
    )
    assert job is not None
    status = job.item.status
    assert status.state == "CANCELLED"
    assert status.signal == 9
    assert status.elapsed_s == 61
    assert status.reason is None
    assert job.outputs == (Path("/w/9.err"), Path("/w/9.out"))


def test_before_2405_the_default_file_is_tried(tmp_path: Path) -> None:
    job = parse_listed(told("FAILED", workdir=str(tmp_path)))
    assert job is not None
    assert job.outputs == ()
    (tmp_path / "slurm-9.out").touch()
    job = parse_listed(told("FAILED", workdir=str(tmp_path)))
    assert job is not None
    assert job.outputs == (tmp_path / "slurm-9.out",)


class Slurm:
    """Slurm's commands, each of which answers what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": str(folder)}

    def answers(self, name: str, text: str, condition: str = "true") -> None:
        """Print a text where a condition on the arguments holds, and fail elsewhere."""
        (self.folder / f"{name}.txt").write_text(text)
        lines = f"#!/bin/sh\nPATH=/usr/bin:/bin\n{condition} && cat {self.folder}/{name}.txt\n"
        (self.folder / name).write_text(lines)
        (self.folder / name).chmod(0o755)

    def found(self) -> str:
        """The state of the job that is found; empty if there is none."""
        job = find_job("9", self.env)
        return job.item.status.state if job else ""


def test_the_accounting_is_asked_of_forgotten_jobs(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path)
    assert slurm.found() == ""
    slurm.answers("sacct", told("TIMEOUT", "/w/9.err", "/w/9.out"))
    assert slurm.found() == "TIMEOUT"
    slurm.answers("scontrol", "slurm_load_jobs error: Invalid job id specified")
    assert slurm.found() == "TIMEOUT"
    slurm.answers("scontrol", SHOWN)
    assert slurm.found() == "FAILED"


def test_an_older_accounting_is_asked_without_the_files(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path)
    slurm.answers("sacct", told("TIMEOUT"), 'case "$*" in *--expand-patterns*) false;; esac')
    assert slurm.found() == "TIMEOUT"


@pytest.mark.parametrize(("listed", "is_live"), [("9\n", True), ("", False)])
def test_a_job_is_live_while_squeue_lists_it(tmp_path: Path, listed: str, is_live: bool) -> None:
    slurm = Slurm(tmp_path)
    slurm.answers(
        "squeue", listed, f'case "$*" in *--user={os.getuid()}*--jobs=9*) ;; *) false;; esac'
    )
    assert is_own_live_job("9", slurm.env) is is_live


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("4711", True),
        ("4711_3", True),
        ("4711+1", True),
        ("train", False),
        ("-1", False),
        ("4_", False),
    ],
)
def test_what_can_be_a_job_id(word: str, is_one: bool) -> None:
    assert is_job_id(word) is is_one


NOW_S = 1_800_000_000.0


def listed(state: str, *outputs: Path) -> AnyJob:
    job = parse_listed(told(state, "/w/err", "/w/out"))
    assert job is not None
    return AnyJob(job.item, outputs)


def test_a_job_that_runs_is_said_to_have_written_some_time_ago(tmp_path: Path) -> None:
    out, err = tmp_path / "slurm-4711.out", tmp_path / "slurm-4711.err"
    for path, ago_s in ((out, 725), (err, 5000)):
        path.write_text("step\n")
        os.utime(path, (NOW_S - ago_s,) * 2)

    def shown(state: str, *outputs: Path) -> str:
        return explain_job(listed(state, *outputs), (), NOW_S).summary

    assert (
        shown("RUNNING", out, err)
        == "the job is running: it has not ended; it last wrote 12 min ago"
    )
    assert shown("RUNNING", tmp_path / "gone") == "the job is running: it has not ended"
    assert "wrote" not in shown("PENDING", out)


def test_the_lines_of_a_long_log_from_a_pipe_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"step\n" * 20000 + b"torch.OutOfMemoryError: CUDA out of memory.\n" + b"step\n" * 5
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log)))
    assert explain_logs(["-"], load_rules([])).evidence[0].where == "-:20001"
