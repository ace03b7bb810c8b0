"""The folders of nodes on their own disk: which are removed, and where a new one is made."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.node_folder import PREFIX, YOUNG_S, enter, make

NAME = f"{PREFIX}4711-n1-00000000"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's own disk, and the attempt's folder elsewhere."""
    place = tmp_path / "tmp"
    place.mkdir()
    (tmp_path / "attempt").mkdir()
    monkeypatch.setattr(node_folder, "PLACES", (str(place), str(tmp_path / "shm")))
    monkeypatch.setattr(node_folder, "is_shared", lambda _: False)
    for name, value in (("JOB_ID", "4711"), ("NODE", "n1"), ("ATTEMPT_DIR", tmp_path / "attempt")):
        monkeypatch.setenv(f"HPCRUN_{name}", str(value))
    return place


def left_by(place: Path, name: str, age_s: float = YOUNG_S + 1) -> Path:
    """A folder with a file, without a process that uses it."""
    folder = place / name
    folder.mkdir()
    (folder / "rank-0.17").touch()
    os.utime(folder, (0, time.time() - age_s))
    return folder


def test_the_folder_of_a_killed_job_is_removed(place: Path) -> None:
    folder = left_by(place, f"{PREFIX}12-n1-0")
    enter(NAME).leave()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "age_s"),
    [(f"{PREFIX}12-n1-0", YOUNG_S - 5), ("data-of-somebody", 1e6)],
    ids=["a young one", "another name"],
)
def test_another_folder_stays(place: Path, name: str, age_s: float) -> None:
    folder = left_by(place, name, age_s)
    enter(NAME).leave()
    assert folder.exists()


def test_a_folder_that_a_process_uses_stays(place: Path) -> None:
    folder = left_by(place, f"{PREFIX}12-n1-0")
    used = os.open(folder, os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    enter(NAME).leave()
    os.close(used)
    assert folder.exists()


def test_in_the_folder_of_a_run_nothing_is_removed(place: Path) -> None:
    place.rmdir()
    attempt = place.parent / "attempt"
    folder = left_by(attempt, f"{PREFIX}12-n1-0")
    make().leave()
    assert folder.exists()


def test_the_last_process_to_leave_removes_the_folder(place: Path) -> None:
    first = enter(NAME)
    second = enter(NAME)
    assert first.path == second.path == str(place / NAME)
    first.leave()
    assert (place / NAME).exists()
    second.leave()
    assert not (place / NAME).exists()


def test_the_second_place_is_used_if_the_first_is_missing(place: Path) -> None:
    place.rmdir()
    (place.parent / "shm").mkdir()
    folder = make()
    assert Path(folder.path).parent == place.parent / "shm"
    folder.leave()


def test_without_a_place_the_ranks_use_the_folder_of_the_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.rmdir()
    folder = make()
    assert Path(folder.path).parent == place.parent / "attempt"
    message = "hpcrun: n1 cannot use {} or {} (No such file or directory); its ranks use"
    assert message.format(*node_folder.PLACES) in capsys.readouterr().err
    folder.leave()


def test_a_network_file_system_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.parent / "shm").mkdir()
    monkeypatch.setattr(node_folder, "is_shared", lambda path: path == str(place))
    folder = make()
    assert Path(folder.path).parent == place.parent / "shm"
    folder.leave()


def test_each_attempt_and_node_has_its_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make()
    monkeypatch.setenv("HPCRUN_NODE", "n2")
    second = make()
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(place.parent))
    third = make()
    assert len({first.path, second.path, third.path}) == 3
    for folder in (first, second, third):
        folder.leave()


def test_a_folder_goes_with_all_in_it_however_deep_and_whatever_its_modes(tmp_path: Path) -> None:
    outside = tmp_path / "outside/file"
    outside.parent.mkdir()
    outside.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for mode in (0o000, 0o100, 0o500):
        closed = folder / f"closed-{mode:o}/inside"
        closed.mkdir(parents=True)
        (closed / "file").touch()
        closed.parent.chmod(mode)
    here = os.open(folder, os.O_RDONLY)
    for number in range(1100):
        os.mkdir("d", dir_fd=here)
        os.symlink(outside.parent, "link", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0o700 if number % 3 else 0o500)
        os.close(here)
        here = below
    os.close(here)
    node_folder.remove(str(folder))
    assert not folder.exists()
    assert outside.exists()
