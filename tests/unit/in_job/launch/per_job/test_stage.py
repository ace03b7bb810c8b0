"""What the head node says of the copies of --stage, and what becomes of a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.job_step import JobStep
from hpcrun.in_job.launch.per_job import stage
from hpcrun.in_job.launch.per_job.node_step import HERE, NodeLine
from hpcrun.in_job.launch.per_job.staged_files import FileListing, StageError
from tests.unit.in_job.attempts import Attempt

DATA = FileListing("0", "data", "abc", files=1, size=2_000_000, skipped=0)
WEIGHTS = FileListing("1", "weights", "abd", files=2, size=4_000_000, skipped=3)


def said(
    capsys: pytest.CaptureFixture[str],
    lines: list[NodeLine],
    listings: list[FileListing],
    *,
    keeps: bool = False,
) -> list[str]:
    """Return the lines of the log for what two nodes report."""
    copies = stage._Copies(listings, ["n1", "n2"], keeps=keeps)
    for line in lines:
        copies.read(line)
    copies.say_what()
    copies.say_what()
    copies.say_progress()
    copies.say_end(4.0)
    return [line.removeprefix("hpcrun: ") for line in capsys.readouterr().err.splitlines()]


LACKS = [NodeLine("n1", "lacks", "0"), NodeLine("n2", "lacks", "1000000")]
HAS = [NodeLine("n1", "done", "2000000"), NodeLine("n2", "done", "2000000")]


@pytest.fixture(autouse=True)
def stage_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the data on each node."""
    monkeypatch.setenv("HPCRUN_STAGE", "/tmp/hpcrun-stage-7-x")


def test_the_log_says_what_is_copied_and_how_fast(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, LACKS, [DATA]) == [
        "--stage copies 1 file, 2 MB, to 2 nodes, into /tmp/hpcrun-stage-7-x",
        "--stage: 1 MB of 4 MB",
        "--stage copied 1 file, 2 MB, to 2 nodes in 4.0 s, 0 MB/s for each",
    ]


def test_the_log_counts_all_sources_and_lost_links(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said(capsys, [LACKS[0], HAS[1]], [DATA, WEIGHTS]) == [
        "--stage copies 3 files, 6 MB, to 1 node, into /tmp/hpcrun-stage-7-x;"
        " 3 links that lead nowhere, or back, are left out",
        "--stage: 2 MB of 12 MB",
        "--stage copied 3 files, 6 MB, to 1 node in 4.0 s, 2 MB/s for each",
    ]


def test_with_keep_the_log_says_which_nodes_have_the_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said(capsys, [LACKS[0], HAS[1]], [DATA], keeps=True)[0] == (
        "--stage: 1 of 2 nodes have it already"
    )
    assert said(capsys, HAS, [DATA], keeps=True) == [
        "--stage: 2 of 2 nodes have it already",
        "--stage: 4 MB of 4 MB",
    ]


def test_one_node_has_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    copies = stage._Copies([DATA], ["n1"], keeps=True)
    copies.read(HAS[0])
    copies.say_what()
    assert capsys.readouterr().err == "hpcrun: --stage: 1 of 1 node has it already\n"


def test_a_node_s_note_is_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    copies = stage._Copies([DATA], ["n1"], keeps=False)
    copies.read(NodeLine("n1", "note", "removed /old for room"))
    assert capsys.readouterr().err == "hpcrun: --stage: n1: removed /old for room\n"


def test_a_node_that_fails_ends_the_copying() -> None:
    copies = stage._Copies([DATA], ["n1"], keeps=False)
    with pytest.raises(StageError, match=r"^n2: the disk is full$"):
        copies.read(NodeLine("n2", "failed", "the disk is full"))


# --- the whole, on this machine ------------------------------------------------------------------


@pytest.fixture
def local(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for the data of a job on this machine, which copies a file."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("x")
    folder = tmp_path / "hpcrun-stage-L7-x"
    monkeypatch.setenv("HPCRUN_JOB_ID", "L7")
    monkeypatch.setenv("HPCRUN_STAGE", str(folder))
    return folder


def arguments(tmp_path: Path, name: str = "source") -> list[str]:
    return ["n1,n2", "0", f"data/{tmp_path / name}"]


def test_the_nodes_of_this_machine_share_one_copy(
    attempt: Attempt, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.main(arguments(tmp_path)) == 0
    assert (local / "data/a").read_text() == "x"
    log = capsys.readouterr().err.splitlines()
    assert log[0] == f"hpcrun: --stage copies 1 file, 0 MB, to 1 node, into {local}"
    assert not (attempt.folder / "stage-list").exists()
    assert stage.main(["--remove"]) == 0
    assert not local.exists()


def test_another_node_of_this_machine_copies_nothing(
    local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_NODE_RANK", "1")
    assert stage.main(arguments(tmp_path)) == 0
    assert not local.exists()


def test_a_source_that_is_missing_is_recorded(
    attempt: Attempt, local: Path, tmp_path: Path
) -> None:
    assert stage.main(arguments(tmp_path, "missing")) == 1
    place = f"there is no {tmp_path}/missing on {os.uname().nodename}"
    expected = {"message": f"cannot copy the data of --stage: {place}"}
    assert attempt.record("stage") == expected
    assert not (attempt.folder / "stage-list").exists()


def test_a_node_tells_its_failure_to_the_head_node(
    attempt: Attempt, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.main(["--node"]) == 1
    message = f"{HERE} cannot read the list of the data in the run's folder"
    assert capsys.readouterr().out == f"{HERE} failed {message}\n"
    assert not (attempt.folder / "stage").exists()


# --- the job -------------------------------------------------------------------------------------


def copy_by_step(monkeypatch: pytest.MonkeyPatch, status: int) -> str:
    """Return what the job learns of a step that copies, and ends with a status."""
    monkeypatch.setattr(JobStep, "run_other", lambda *_: status)
    return stage.StagedData(["data/x"], 0).copy(JobStep.__new__(JobStep), ["n1"])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("", "copying the data ended with status 5"),
        ('{"message": ""}', "copying the data ended with status 5"),
        ('{"message": "no room"}', "no room"),
    ],
)
def test_the_job_says_why_the_data_could_not_be_copied(
    attempt: Attempt,
    local: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record: str,
    message: str,
) -> None:
    (attempt.folder / "stage").write_text(record)
    assert copy_by_step(monkeypatch, 5) == message
    assert capsys.readouterr().err == f"hpcrun: {message}\n"


def test_a_job_holds_its_data_until_it_removes_them(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStep, "run_other", lambda *_: 0)
    local.mkdir()
    data = stage.StagedData(["data/x"], 0)
    assert data.copy(JobStep.__new__(JobStep), ["n1"]) == ""
    node_folder.remove(str(local))
    assert local.exists()
    data.remove(["n1"], [], 0)
    assert not local.exists()


@pytest.mark.parametrize(
    ("most_s", "steps"),
    [(0, ""), (9, "n1,n2\nn3\n")],
    ids=["Slurm ends the job", "time is left"],
)
def test_the_data_go_from_all_nodes_of_slurm(
    tmp_path: Path, attempt: Attempt, monkeypatch: pytest.MonkeyPatch, most_s: float, steps: str
) -> None:
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    options = "for option; do case $option in --nodelist=*) echo ${option#*=};; esac; done"
    srun.write_text(f"#!/bin/sh\n{options} >>{tmp_path}/steps\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    (tmp_path / "steps").touch()
    stage.StagedData(["data/x"], 0).remove(["n1", "n2"], ["n3"], most_s)
    assert (tmp_path / "steps").read_text() == steps


def put_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a shell's text in the place of srun, and a file to copy beside it."""
    (tmp_path / "a").write_text("x")
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(f"#!/bin/sh\n{text}\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")


def test_each_node_of_slurm_gets_the_data(
    tmp_path: Path,
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "for node in n1 n2; do echo $node lacks 0; done; echo n1 done 9; echo n2 done 9"
    put_srun(tmp_path, monkeypatch, text)
    assert stage.main(["n1,n2", "3", f"data/{tmp_path}/a"]) == 0
    log = capsys.readouterr().err.splitlines()
    assert log[0] == "hpcrun: --stage: 0 of 2 nodes have it already"
    assert log[1].startswith("hpcrun: --stage copies 1 file, 0 MB, to 2 nodes, into /tmp/")
    assert log[-1].startswith("hpcrun: --stage copied 1 file, 0 MB, to 2 nodes in ")


def test_a_step_of_the_nodes_that_fails_is_recorded(
    tmp_path: Path, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_srun(tmp_path, monkeypatch, "echo n1 lacks 0; exit 7")
    assert stage.main(["n1", "0", f"data/{tmp_path}/a"]) == 1
    problem = "the step of the nodes ended with status 7"
    assert attempt.record("stage")["message"] == f"cannot copy the data of --stage: {problem}"
