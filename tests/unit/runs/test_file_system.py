"""What is found at a runs folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.runs.folder_checks import Mount, find_mount, look_at_place, parse_mounts
from tests.unit.given import write

MOUNTS = """/dev/vda / ext4 rw,relatime 0 0
systemd-1 /home autofs rw 0 0
nas:/export\\040one /home nfs4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
tmpfs /home\\040two tmpfs rw 0 0
broken
"""


def test_a_folder_is_written_to_and_nothing_is_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    place = look_at_place(tmp_path)
    assert (place.tested, place.exists, place.error) == (tmp_path, True, None)
    assert (place.mode, place.owner) == (0o750, os.getuid())
    assert place.mount is not None
    assert place.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    place = look_at_place(tmp_path / "a/b")
    assert (place.tested, place.exists, place.error) == (tmp_path, False, None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    place = look_at_place(write(tmp_path / "runs", ""))
    assert isinstance(place.error, NotADirectoryError)


def test_a_folder_of_the_kernel_s() -> None:
    assert look_at_place(Path("/proc/runs")).error is not None


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/home/me/runs", Mount("nas:/export one", "/home", "nfs4")),
        ("/homely", Mount("/dev/vda", "/", "ext4")),
        ("/home two/x", Mount("tmpfs", "/home two", "tmpfs")),
    ],
)
def test_the_deepest_and_last_mount_is_the_one(path: str, mount: Mount) -> None:
    assert find_mount(Path(path), parse_mounts(MOUNTS)) == mount


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/shm")
    found = find_mount(tmp_path / "link", parse_mounts(MOUNTS))
    assert found == Mount("tmpfs", "/dev/shm", "tmpfs")


def test_nothing_is_mounted() -> None:
    assert find_mount(Path("/x"), []) is None


def test_files_are_counted_where_the_file_system_counts_them(tmp_path: Path) -> None:
    assert os.statvfs(tmp_path).f_files > 0
    assert look_at_place(tmp_path).free_files is not None
    assert os.statvfs("/proc").f_files == 0
    assert look_at_place(Path("/proc")).free_files is None
