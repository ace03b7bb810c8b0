"""What another user could have written is not read, however it is reached."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.files.ownership import UnsafeFileError, danger_to, read_checked
from hpcrun.profiles.yaml_file import read_own_text
from tests.unit.profiles.hostile import ATTACKER, give_away, ordinary_user, put

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


@pytest.fixture
def home() -> Iterator[Path]:
    with ordinary_user() as folder:
        yield folder


def test_what_is_ones_own_is_read(home: Path) -> None:
    file = put(home / "a/b/mine.yaml", "qos: x\n", 0o600)
    assert danger_to(file) is None
    assert read_checked(file, 100) == b"qos: x\n"
    assert danger_to(Path("/etc/passwd")) is None  # root's


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        ("a/b/mine.yaml", 0o666),
        ("a/b/mine.yaml", 0o664),
        ("a/b/mine.yaml", 0o602),
        ("a", 0o777),
        ("a", 0o775),
        ("a/b", 0o757),
    ],
)
def test_what_others_can_write_is_refused_and_so_is_a_folder_on_the_way(
    home: Path, place: str, mode: int
) -> None:
    file = put(home / "a/b/mine.yaml")
    (home / place).chmod(mode)
    with pytest.raises(
        UnsafeFileError, match=rf"other users can write to {home / place} \(mode {mode:04o}\)"
    ):
        read_checked(file, 100)


def test_a_sticky_folder_keeps_a_file_but_not_a_folder_of_files(home: Path) -> None:
    file = put(home / "a/mine.yaml")
    (home / "a").chmod(0o1777)
    assert danger_to(file) is None  # nobody else can replace it
    assert danger_to(home / "a") is not None  # anybody can add one


def test_links_are_followed_where_each_part_is_ones_own(home: Path) -> None:
    put(home / "dotfiles/hpcrun/config.yaml", "qos: x\n")
    (home / "config").symlink_to("dotfiles/hpcrun")
    (home / "again").symlink_to(home / "config")
    assert danger_to(home / "again") is None
    assert read_own_text(home / "again/config.yaml") == "qos: x\n"
    (home / "dotfiles").chmod(0o777)
    for path in (home / "config", home / "config" / ".." / "hpcrun"):
        assert danger_to(path) == f"other users can write to {home}/dotfiles (mode 0777)"


def test_only_ordinary_files_are_opened_and_a_circle_of_links_ends(home: Path) -> None:
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")
    with pytest.raises(ProfileError, match="Too many levels"):
        read_own_text(home / "a")
    os.mkfifo(home / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(ProfileError, match="not an ordinary file"):
            read_own_text(home / name)


@needs_root
@pytest.mark.parametrize("what", ["", "a", "a/mine.yaml"])
def test_what_belongs_to_another_user_is_refused(home: Path, what: str) -> None:
    file = put(home / "a/mine.yaml")
    give_away(home / what)
    with pytest.raises(UnsafeFileError, match=r"belongs to another user \(uid 65533\)"):
        read_checked(file, 100)


@needs_root
def test_a_link_of_another_user_is_refused(home: Path) -> None:
    put(home / "a/mine.yaml")
    (home / "link").symlink_to("a/mine.yaml")
    give_away(home / "link")
    assert danger_to(home / "link") == f"{home}/link belongs to another user (uid 65533)"


@needs_root
def test_root_reads_nothing_of_an_ordinary_user(home: Path) -> None:
    file = put(home / "mine.yaml")
    os.seteuid(0)
    assert danger_to(file) == f"{home} belongs to another user (uid 65534)"


@needs_root
def test_a_group_is_private_where_it_has_the_user_s_name_and_nobody_else(home: Path) -> None:
    os.seteuid(0)
    os.setegid(0)
    folder = home / "folder"
    folder.mkdir()
    folder.chmod(0o775)
    os.chown(home, 0, 0)
    # umask 002, as pam_umask sets it for users with a group of their own
    assert danger_to(folder) is None
    os.chown(folder, 0, ATTACKER)
    assert danger_to(folder) == f"other users can write to {folder} (mode 0775)"


@needs_root
def test_who_owns_hpcrun_itself_may_own_a_site_s_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = home / "program"
    program.mkdir()
    give_away(program)
    file = put(home / "site.yaml")
    give_away(file)
    assert danger_to(file) is not None
    monkeypatch.setattr("hpcrun.files.ownership.program_owner", lambda: program.stat().st_uid)
    assert danger_to(file) is None
    os.seteuid(0)
    os.chown(home, 0, 0)
    # root trusts root alone
    assert danger_to(file) == f"{file} belongs to another user (uid 65533)"
