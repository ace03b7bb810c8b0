"""With what compiled files an attempt begins: those of the newest generation, or none."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.compiled import archive, folder, generations
from hpcrun.in_job.launch.compiled.node import VARIABLES
from hpcrun.in_job.launch.job_step import JobStep
from hpcrun.in_job.launch.per_job import unpack_compiled, warm_start
from hpcrun.in_job.launch.per_job.warm_start import WarmStart
from tests.unit.in_job.attempts import Attempt

CODE = "0123456789abcdef"


@pytest.fixture
def disk(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk of the node, in a run of which others cannot write the folder."""
    tmp_path.chmod(0o700)
    place = tmp_path / "disk"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(node_folder, "PLACES", (str(place),))
    for name in ("HPCRUN_STAGE_DIR", *VARIABLES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return place


def step_with(status: int, monkeypatch: pytest.MonkeyPatch) -> JobStep:
    """Return a step whose unpacking ends with a status."""
    monkeypatch.setattr(JobStep, "run_other", lambda *_: status)
    return JobStep.__new__(JobStep)


def warm() -> WarmStart:
    return WarmStart("train", ["MORE_CACHE"], is_local=True)


def generation_of(started: WarmStart) -> str:
    """Make a generation of the program, with a file; return its path."""
    program = Path(started._folder)
    program.mkdir(parents=True, mode=0o700)
    program.parent.chmod(0o700)
    (program.parent.parent / "a").write_text("x")
    path = str(program / f"{10**18}.run-1.0")
    assert generations.enter(path, "n1", CODE, 4096)
    part = generations.part(path, CODE)
    archive.write(part, f"{part}.part", str(program.parent.parent), ["a"])
    return path


def test_without_a_generation_an_attempt_begins_empty(
    attempt: Attempt, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_HOME", "/own")
    warm().prepare(step_with(0, monkeypatch), ["n1"])
    env = os.environ
    assert env["HPCRUN_COMPILED"] == f"{disk}/hpcrun-compiled-{env['HPCRUN_JOB_ID']}"
    assert (env["HPCRUN_COMPILED_FILLED"], env["HPCRUN_COMPILED_VARIABLES"]) == ("", "MORE_CACHE")
    assert env["HPCRUN_COMPILED_CPU"] == folder.cpu_kind()
    assert attempt.record("warm") == {"into": env["HPCRUN_COMPILED_INTO"], "set": ["TRITON_HOME"]}
    assert env["HPCRUN_COMPILED_INTO"].endswith(f".{attempt.run.name}.0")


@pytest.mark.parametrize(
    ("status", "filled", "message"),
    [
        pytest.param(0, "1", "", id="unpacked"),
        pytest.param(5, "", "ended with status 5", id="failed"),
        pytest.param(143, "", "", id="terminated"),
    ],
)
def test_an_attempt_is_warm_if_the_nodes_have_unpacked(
    attempt: Attempt,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    filled: str,
    message: str,
) -> None:
    started = warm()
    path = generation_of(started)
    started.prepare(step_with(status, monkeypatch), ["n1"])
    assert os.environ["HPCRUN_COMPILED_FILLED"] == filled
    log = capsys.readouterr().err
    start = f"hpcrun: --warm: this attempt starts cold: unpacking {path} "
    assert log == (f"{start}{message}\n" if message else "")


@pytest.mark.parametrize(
    ("before", "reason", "is_cold"),
    [
        pytest.param('{"run": "run-1"}', "failure", True, id="warm"),
        pytest.param('{"cold": "no"}', "failure", False, id="cold"),
        pytest.param('{"run": "run-1"}', "time_limit", False, id="another reason"),
    ],
)
def test_after_a_warm_start_that_failed_the_next_is_cold(
    attempt: Attempt,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    reason: str,
    is_cold: bool,
) -> None:
    (attempt.folder / "warm").write_text(before)
    (attempt.folder / "exit").write_text(json.dumps({"reason": reason}))
    second = attempt.folder.parent / "1"
    second.mkdir()
    monkeypatch.setenv("HPCRUN_ATTEMPT", "1")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(second))
    started = warm()
    generation_of(started)
    started.prepare(step_with(0, monkeypatch), ["n1"])
    assert os.environ["HPCRUN_COMPILED_FILLED"] == ("" if is_cold else "1")
    if is_cold:
        why = json.loads((second / "warm").read_text())["cold"]
        assert why == "attempt 1 started warm and failed before its first step"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("run", "others may write to {}; keep runs in a folder of your own", id="runs"),
        pytest.param("disk", "others can move what lies in {}, which has no sticky", id="disk"),
    ],
)
def test_a_folder_that_others_may_write_keeps_a_job_cold(
    attempt: Attempt, disk: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    place = attempt.run.parent if name == "run" else disk
    place.chmod(0o777)
    warm().prepare(step_with(0, monkeypatch), ["n1"])
    assert attempt.record("warm")["cold"].startswith(why.format(place))
    assert "HPCRUN_COMPILED" not in os.environ
    assert os.environ["HPCRUN_COMPILED_INTO"] == ""


def test_the_disk_that_a_job_names_is_used_first(
    attempt: Attempt, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir(mode=0o700)
    monkeypatch.setenv("HPCRUN_STAGE_DIR", str(chosen))
    assert warm_start._place() == str(chosen)
    chosen.rmdir()
    assert warm_start._place() == str(disk)


# --- unpacking -----------------------------------------------------------------------------------


@pytest.fixture
def filling(attempt: Attempt, disk: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Fill the folder of this machine from a generation; return the status."""

    def fill(**variables: str) -> int:
        started = warm()
        path = generation_of(started)
        started.prepare(step_with(0, monkeypatch), ["n1"])
        os.environ.update(variables)
        return unpack_compiled.main(["--local", path])

    return fill


def test_the_files_are_unpacked_on_this_machine(
    attempt: Attempt, filling: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert filling() == 0
    path = Path(folder.path_on("n1"))
    assert (path / "files/a").read_text() == "x"
    assert folder.unpacked_files(str(path)) == {"a"}
    record = attempt.record("warm")
    assert (record["run"], record["files"]) == ("run-1", 1)
    log = capsys.readouterr().err
    assert log.startswith("hpcrun: --warm: 1 compiled file of run run-1 on this machine, unpacked ")


def test_one_node_of_this_machine_says_what_is_unpacked(
    filling: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert filling(HPCRUN_NODE_RANK="1") == 0
    assert Path(folder.path_on("n1"), "files/a").exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        (
            {"HPCRUN_COMPILED_CPU": "x"},
            "its CPU is of another kind than that of the head node",
        ),
        (
            {"HPCRUN_COMPILED": "/no-such-folder/hpcrun-compiled-7"},
            "/no-such-folder: No such file or directory",
        ),
    ],
    ids=["CPU", "disk"],
)
def test_a_machine_that_cannot_use_the_files_begins_empty(
    attempt: Attempt, filling: Callable[..., int], variables: dict[str, str], why: str
) -> None:
    assert filling(**variables) == 1
    assert attempt.record("warm")["cold"] == why


def test_a_full_disk_begins_empty(
    attempt: Attempt,
    filling: Callable[..., int],
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_folder, "room", lambda _: (64 << 20) + 4095)
    assert filling() == 1
    assert attempt.record("warm")["cold"] == f"{disk} has 67 MB free, 67 MB are needed"
    assert list(disk.iterdir()) == []


def test_a_generation_that_has_gone_is_said(attempt: Attempt, disk: Path) -> None:
    os.environ["HPCRUN_COMPILED_INTO"] = ""
    assert unpack_compiled.main(["--local", f"{disk}/gone"]) == 1
    assert attempt.record("warm")["cold"] == f"{disk}/gone is not complete any more"


# --- unpacking in a step -------------------------------------------------------------------------


def in_step(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, orders: str, *, damaged: bool = False
) -> Path:
    """Run the step of node n1, which is the third, with orders of the head node.

    Returns:
        The folder of its compiled files.
    """
    started = warm()
    path = generation_of(started)
    started.prepare(step_with(0, monkeypatch), ["n1"])
    if damaged:
        Path(generations.part(path, CODE)).write_bytes(b"damaged")
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setattr(sys, "stdin", io.StringIO(orders))
    assert unpack_compiled.main(["--node", "4096", generations.part(path, CODE)]) == 0
    return Path(folder.path_on("n1"))


@pytest.mark.parametrize(
    ("orders", "lines", "stays"),
    [
        pytest.param("2\n3\nuse\n", ["ready 0", "done 1"], True, id="used"),
        pytest.param("3\nempty\n", ["ready 0", "done 1"], False, id="another node failed"),
        pytest.param("2\nempty\n", ["ready 0"], False, id="before its turn"),
    ],
)
def test_a_node_keeps_files_if_all_nodes_have_them(
    attempt: Attempt,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    orders: str,
    lines: list[str],
    stays: bool,
) -> None:
    path = in_step(attempt, monkeypatch, orders)
    told = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == lines
    assert path.exists() == stays
    assert (path / "files/a").exists() == stays


def test_a_node_with_a_damaged_archive_tells_so(
    attempt: Attempt,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = in_step(attempt, monkeypatch, "3\nuse\n", damaged=True)
    assert capsys.readouterr().out.splitlines()[1].split(" ", 1)[1].startswith("failed it is damag")
    assert not path.exists()


def test_a_node_without_room_tells_so(
    attempt: Attempt,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(node_folder, "room", lambda _: 0)
    path = in_step(attempt, monkeypatch, "3\nuse\n")
    assert "failed " in capsys.readouterr().out
    assert not path.exists()


def test_a_node_whose_head_has_ended_keeps_nothing(
    attempt: Attempt, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        in_step(attempt, monkeypatch, "3\n")
    assert not Path(folder.path_on("n1")).exists()
