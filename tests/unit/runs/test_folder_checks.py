"""Which folders runs are kept in, who can write to them, and their file systems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.runs.folder_checks import (
    Mount,
    UnsafeFolderError,
    check_dedicated,
    check_path,
    find_mount,
    look_at_place,
    other_use,
    parse_mounts,
)
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

NOBODY = 65534


def test_a_folder_for_runs_alone_is_used_and_one_that_is_not_there_yet(tmp_path: Path) -> None:
    for name in (".ssh/id", ".config/x", "notes.txt"):
        write(tmp_path / name, "")
    assert other_use(tmp_path) is None
    assert other_use(tmp_path / "none" / "yet") is None


def test_a_repository_and_the_top_of_a_file_system_are_refused(tmp_path: Path) -> None:
    names = (
        [".git/HEAD"],
        [".git"],
        [".hg/store"],
        [".svn/entries"],
        [".jj/repo"],
        ["HEAD", "objects/x", "refs/x"],
    )
    for number, files in enumerate(names):
        folder = tmp_path / str(number)
        for name in files:
            write(folder / name, "")
        assert other_use(folder) == "a repository"
        assert other_use(folder / "runs") is None
    assert other_use(Path("/")) == other_use(Path("/proc")) == "the top of a file system"


def test_a_home_is_refused_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for name in (home, tmp_path / "link", home / "x" / ".."):
        with subtests.test(name=name):
            assert other_use(name) == "a home folder"
    monkeypatch.setenv("HOME", "/nonexistent")
    assert other_use(home) is None
    assert other_use(Path("~").expanduser()) is None
    monkeypatch.delenv("HOME")  # then the user database says
    assert other_use(Path("~").expanduser()) == "a home folder"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_another_user_s_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    check_path(tmp_path / "link")
    os.chown(tmp_path / "link", NOBODY, -1, follow_symlinks=False)
    (tmp_path / "runs/below").mkdir()
    for path in (tmp_path / "link", tmp_path / "link" / "below"):
        with pytest.raises(UnsafeFolderError, match=f"{tmp_path}/link belongs to another user"):
            check_path(path)
        assert look_at_place(path).unsafe is not None


def test_no_run_is_made_in_such_a_folder(tmp_path: Path) -> None:
    write(tmp_path / ".git/HEAD", "")
    with pytest.raises(
        UnsafeFolderError, match=f"runs are not kept in {tmp_path}: it is a repository"
    ) as refused:
        RunStore(tmp_path).create(run(), "")
    assert f"HPCRUN_RUNS={tmp_path}/hpcrun-runs" in (refused.value.hint or "")
    assert [path.name for path in tmp_path.iterdir()] == [".git"]
    check_dedicated(tmp_path / "hpcrun-runs")


MOUNTS = """/dev/vda / ext4 rw,relatime 0 0
systemd-1 /home autofs rw 0 0
nas:/export\\040one /home nfs4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
tmpfs /home\\040two tmpfs rw 0 0
broken
"""


def test_a_folder_is_written_to_and_nothing_is_left(tmp_path: Path) -> None:
    place = look_at_place(tmp_path)
    assert place.tested == tmp_path
    assert place.exists is True
    assert place.error is None
    assert place.unsafe is None
    tmp_path.chmod(0o777)
    assert look_at_place(tmp_path).unsafe is not None
    assert place.mount is not None
    assert place.free_bytes > 0
    assert place.free_files is not None
    assert look_at_place(Path("/proc")).free_files is None  # it counts none
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made_and_one_that_cannot_be_written_says_so(
    tmp_path: Path,
) -> None:
    place = look_at_place(tmp_path / "a/b")
    assert place.tested == tmp_path
    assert place.exists is False
    assert place.error is None
    assert list(tmp_path.iterdir()) == []
    assert isinstance(look_at_place(write(tmp_path / "runs", "")).error, NotADirectoryError)
    assert look_at_place(Path("/proc/runs")).error is not None


def test_the_deepest_and_last_mount_of_a_path_and_of_what_a_link_leads_to(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "link").symlink_to("/dev/shm")
    for path, mount in (
        (Path("/home/me/runs"), Mount("nas:/export one", "/home", "nfs4")),
        (Path("/homely"), Mount("/dev/vda", "/", "ext4")),
        (Path("/home two/x"), Mount("tmpfs", "/home two", "tmpfs")),
        (tmp_path / "link", Mount("tmpfs", "/dev/shm", "tmpfs")),
    ):
        with subtests.test(path=path):
            assert find_mount(path, parse_mounts(MOUNTS)) == mount
    assert find_mount(Path("/x"), []) is None
