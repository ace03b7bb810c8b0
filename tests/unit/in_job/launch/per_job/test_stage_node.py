"""What a node does with the data of --stage: it copies them once, and keeps them for later jobs."""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder, records, slurm_requests
from hpcrun.in_job.launch.per_job import kept_data, stage, stage_node
from hpcrun.in_job.launch.per_job.node_step import HERE
from hpcrun.in_job.launch.per_job.staged_files import StageError
from tests.unit.in_job.attempts import Attempt

JOB = "L7"
CONTENT = "x" * 100
SIZE = 3 * len(CONTENT)
DAY_S = 86400


@pytest.fixture
def disk(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The disk of this node, in a job that copies three files of 100 bytes."""
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (source / name).write_text(CONTENT)
    place = tmp_path / "disk"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("HPCRUN_JOB_ID", JOB)
    monkeypatch.setenv("HPCRUN_STAGE", str(place / f"hpcrun-stage-{JOB}-one"))
    monkeypatch.setattr(node_folder, "is_shared", lambda _: False)
    yield place
    for folder in place.iterdir():
        node_folder.remove(str(folder))


def list_files(tmp_path: Path, keep_days: int) -> None:
    """List the files, as the head node does."""
    stage._list_sources([f"data/{tmp_path / 'source'}"], keep_days)


def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_days: int = 0) -> Path:
    """List the files and copy them; return the folder of the job's data."""
    node_folder.remove(stage_node.lists_folder())
    list_files(tmp_path, keep_days)
    return copy_listed(monkeypatch)


def copy_listed(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the files as they were listed, and end as the process of the node does."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n"))
    record = records.read(stage_node.SOURCES, stage_node.lists_folder())
    assert record is not None
    node = stage_node._NodeCopy(record)
    node.make()
    for held in node._held:
        os.close(held)
    return Path(os.environ["HPCRUN_STAGE"])


def files_in(folder: Path) -> list[str]:
    """Return the files below a folder that have the content of the source."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in paths if path.read_text() == CONTENT)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the node has told the head node."""
    return [line.removeprefix(f"{HERE} ") for line in capsys.readouterr().out.splitlines()]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


NEXT = "hpcrun-stage-L8-two"


def begin_next_job(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another job of this user begin on this node."""
    monkeypatch.setenv("HPCRUN_JOB_ID", "L8")
    monkeypatch.setenv("HPCRUN_STAGE", str(disk / NEXT))


# --- data of one job -----------------------------------------------------------------------------


def test_the_data_are_copied(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source/a").chmod(0o400)
    folder = copy(tmp_path, monkeypatch)
    assert files_in(folder) == ["data/a", "data/b", "data/deep/c"]
    assert (mode(folder), mode(folder / "data/a")) == (0o700, 0o600)
    assert lines(capsys) == ["lacks 0", f"done {SIZE}"]


def test_data_that_are_there_are_not_copied_again(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(tmp_path, monkeypatch).joinpath("data/a").unlink()
    capsys.readouterr()
    assert files_in(copy(tmp_path, monkeypatch)) == ["data/b", "data/deep/c"]
    assert lines(capsys) == [f"done {SIZE}"]


def test_an_incomplete_copy_of_this_job_is_made_anew(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Path(os.environ["HPCRUN_STAGE"], "data")
    part.mkdir(parents=True)
    (part / "part-of-a").write_text(CONTENT)
    part.parent.chmod(stage_node.INCOMPLETE)
    assert files_in(copy(tmp_path, monkeypatch)) == ["data/a", "data/b", "data/deep/c"]


def test_without_room_nothing_is_copied(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_folder, "room", lambda _: SIZE - 1)
    with pytest.raises(StageError, match=rf"^0 MB are needed in {disk}, and {HERE} has 0 MB free"):
        copy(tmp_path, monkeypatch)
    assert list(disk.iterdir()) == []


def test_just_enough_room_is_enough(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_folder, "room", lambda _: SIZE)
    assert len(files_in(copy(tmp_path, monkeypatch))) == 3


def test_a_network_file_system_is_no_disk_of_a_node(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_folder, "is_shared", lambda place: place == str(disk))
    with pytest.raises(StageError, match=f"^{disk} is not on its own disk. --env HPCRUN_STAGE_DIR"):
        copy(tmp_path, monkeypatch)


def test_a_folder_open_to_others_is_refused(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.chmod(0o777)
    with pytest.raises(StageError, match=r"has no sticky bit. --env HPCRUN_STAGE_DIR"):
        copy(tmp_path, monkeypatch)
    disk.chmod(0o1777)
    assert len(files_in(copy(tmp_path, monkeypatch))) == 3


def test_without_a_list_nothing_is_copied(disk: Path) -> None:
    with pytest.raises(StageError, match=f"^{HERE} cannot read the list of the data"):
        stage_node.copy_here()


def test_data_that_cannot_be_read_are_a_failure(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    list_files(tmp_path, 0)
    (tmp_path / "source/a").unlink()
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n"))
    with pytest.raises(StageError, match=r"^tar cannot read the data: the log has its messages$"):
        stage_node.copy_here()
    assert "data/a: " in capfd.readouterr().err
    assert list(disk.iterdir()) == []


# --- what other jobs have left -------------------------------------------------------------------


def left_by(disk: Path, name: str, age_s: float = 0.0) -> Path:
    """The folder of the data of another job."""
    folder = disk / name
    folder.mkdir()
    os.utime(folder, (0, time.time() - age_s))
    return folder


@pytest.mark.parametrize(
    ("name", "age_s", "stays"),
    [
        pytest.param("hpcrun-stage-L5-x", 0, True, id="just begun"),
        pytest.param("hpcrun-stage-L5-x", 1000, False, id="ended"),
        pytest.param("hpcrun-stage-12-x", 1000, True, id="of Slurm"),
        pytest.param("hpcrun-other-L5-x", 1000, True, id="another name"),
    ],
)
def test_without_slurm_a_folder_that_no_job_holds_is_removed(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    age_s: float,
    stays: bool,
) -> None:
    folder = left_by(disk, name, age_s)
    copy(tmp_path, monkeypatch)
    assert folder.exists() == stays


@pytest.mark.parametrize(
    ("running", "name", "stays"),
    [
        pytest.param({"12": "n1"}, "hpcrun-stage-12-x", True, id="running"),
        pytest.param({"13": "n1"}, "hpcrun-stage-12-x", False, id="ended"),
        pytest.param({"12_3": "n1"}, "hpcrun-stage-12_3-x", True, id="element"),
        pytest.param({}, "hpcrun-stage-7-x", False, id="earlier start"),
        pytest.param(None, "hpcrun-stage-12-x", True, id="unknown"),
        pytest.param(None, "hpcrun-stage-7-x", False, id="earlier start, unknown"),
    ],
)
def test_the_folder_of_an_ended_job_of_slurm_is_removed(
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    running: dict[str, str] | None,
    name: str,
    stays: bool,
) -> None:
    monkeypatch.setenv("HPCRUN_JOB_ID", "7")
    monkeypatch.setattr(slurm_requests, "jobs_with_nodes", lambda: running)
    folder = left_by(disk, name)
    stage_node._sweep(str(disk))
    assert folder.exists() == stays


# --- data that stay for later jobs ---------------------------------------------------------------


def kept_folder(disk: Path) -> Path:
    """Return the only folder with kept data."""
    (folder,) = disk.glob(f"hpcrun-kept-{os.getuid()}-*")
    return folder


def test_kept_data_are_read_only_behind_a_link(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(tmp_path, monkeypatch, keep_days=2)
    kept = kept_folder(disk)
    assert (folder / "data").readlink() == kept / "data/data"
    assert files_in(kept / "data/data") == ["a", "b", "deep/c"]
    paths = [kept, kept / "data", kept / "data/data/deep", kept / "list", kept / "data/data/a"]
    assert [mode(path) for path in paths] == [0o500, 0o500, 0o500, 0o400, 0o400]
    assert abs((kept / "list").stat().st_mtime - time.time() - 2 * DAY_S) < 60
    assert abs(kept.stat().st_mtime - time.time()) < 60


def test_the_next_job_finds_kept_data(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(tmp_path, monkeypatch, keep_days=2)
    kept = kept_folder(disk)
    os.utime(kept, (0, 0))
    begin_next_job(disk, monkeypatch)
    capsys.readouterr()
    folder = copy(tmp_path, monkeypatch, keep_days=1)
    assert (folder / "data").readlink() == kept / "data/data"
    assert lines(capsys) == [f"done {SIZE}"]
    assert kept_folder(disk) == kept
    assert kept.stat().st_mtime > time.time() - 60
    assert (kept / "list").stat().st_mtime > time.time() + 1.9 * DAY_S


def test_a_job_that_keeps_nothing_copies_beside_kept_data(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(tmp_path, monkeypatch, keep_days=2)
    begin_next_job(disk, monkeypatch)
    folder = copy(tmp_path, monkeypatch)
    assert not (folder / "data").is_symlink()
    assert len(files_in(folder)) == 3


def test_damaged_kept_data_are_copied_anew(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(tmp_path, monkeypatch, keep_days=2)
    kept = kept_folder(disk)
    damaged = kept / "data/data/a"
    damaged.chmod(0o600)
    damaged.write_text("y")
    begin_next_job(disk, monkeypatch)
    capsys.readouterr()
    copy(tmp_path, monkeypatch, keep_days=2)
    note = f"note ./data/a is not as in the list in {kept}: copied anew"
    assert lines(capsys) == ["lacks 0", note, f"done {SIZE}"]
    assert files_in(kept / "data/data") == ["a", "b", "deep/c"]
    assert [path.name for path in disk.iterdir() if path.suffix] == []


def test_damaged_kept_data_of_a_running_job_stay(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy(tmp_path, monkeypatch, keep_days=2)
    kept = kept_folder(disk)
    used = node_folder.hold(str(kept))
    (kept / "data/data").chmod(0o700)
    (kept / "data/data/a").unlink()
    begin_next_job(disk, monkeypatch)
    capsys.readouterr()
    folder = copy(tmp_path, monkeypatch, keep_days=2)
    os.close(used)
    problem = f"./data/a is missing in {kept}, which another job uses"
    note = f"note {problem}; this job gets a copy of its own"
    assert lines(capsys) == ["lacks 0", note, f"done {SIZE}"]
    assert not (folder / "data").is_symlink()
    assert len(files_in(folder)) == 3
    assert len(files_in(kept)) == 2


def test_data_that_change_while_they_are_copied_are_not_kept(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    list_files(tmp_path, 2)
    (tmp_path / "source/b").write_text("changed")
    folder = copy_listed(monkeypatch)
    note = "note ./data/b is not as in the list after copying: this copy of 'data' is not kept"
    assert lines(capsys) == ["lacks 0", note, f"done {SIZE}"]
    assert (folder / "data/b").read_text() == "changed"
    assert [path.name for path in disk.iterdir()] == [folder.name]


def test_data_that_another_job_copies_now_need_no_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_files(tmp_path, 2)
    record = records.read(stage_node.SOURCES, stage_node.lists_folder())
    assert record is not None
    copies = stage_node._NodeCopy(record)
    assert copies._bytes_to_copy(copies._sources) == SIZE
    part = kept_data.path_of(str(disk), copies._sources[0].code) + kept_data.PART
    os.mkdir(part)
    assert copies._bytes_to_copy(copies._sources) == 0
    own = stage_node._NodeCopy({**record, "keep": 0})
    assert own._bytes_to_copy(own._sources) == SIZE
