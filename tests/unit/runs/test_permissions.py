"""Which folders runs are kept in: never one that is something else besides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.runs.folder_checks import UnsafeFolderError, check_dedicated, foreign_link, other_use
from hpcrun.runs.store import RunStore
from tests.unit.given import run, write

NOBODY = 65534


def test_a_folder_for_runs_alone_is_used_and_one_that_is_not_there_yet(tmp_path: Path) -> None:
    for name in (".ssh/id", ".config/x", "notes.txt"):
        write(tmp_path / name, "")
    assert other_use(tmp_path) is None
    assert other_use(tmp_path / "none" / "yet") is None


@pytest.mark.parametrize("name", [".git/HEAD", ".git", ".hg/store", ".svn/entries", ".jj/repo"])
def test_a_repository_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, "")
    assert other_use(tmp_path) == "a repository"
    assert other_use(tmp_path / "runs") is None


def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    for name in ("HEAD", "objects/x", "refs/x"):
        write(tmp_path / name, "")
    assert other_use(tmp_path) == "a repository"


def test_a_home_is_refused_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for name in (home, tmp_path / "link", home / "x" / ".."):
        assert other_use(name) == "a home folder"
    monkeypatch.setenv("HOME", "/nonexistent")
    assert other_use(home) is None
    assert other_use(Path("~").expanduser()) is None
    monkeypatch.delenv("HOME")  # then the user database says
    assert other_use(Path("~").expanduser()) == "a home folder"


@pytest.mark.parametrize("folder", ["/", "/proc"])
def test_the_top_of_a_file_system_is_refused(folder: str) -> None:
    assert other_use(Path(folder)) == "the top of a file system"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_another_user_s_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert foreign_link(tmp_path / "link") is None
    os.chown(tmp_path / "link", NOBODY, -1, follow_symlinks=False)
    for path in (tmp_path / "link", tmp_path / "link" / "below"):
        assert f"{tmp_path}/link, a link of another user (uid {NOBODY})" in (other_use(path) or "")
    # a site's link in the site's own folder
    os.chown(tmp_path, NOBODY, -1)
    assert foreign_link(tmp_path / "link" / "below") is None
    assert foreign_link(tmp_path / "link") is not None


def test_no_run_is_made_in_such_a_folder(tmp_path: Path) -> None:
    write(tmp_path / ".git/HEAD", "")
    with pytest.raises(UnsafeFolderError, match=f"runs are not kept in {tmp_path}: it is a repository") as refused:
        RunStore(tmp_path).create(run(), "")
    assert f"HPCRUN_RUNS={tmp_path}/hpcrun-runs" in (refused.value.hint or "")
    assert [path.name for path in tmp_path.iterdir()] == [".git"]
    check_dedicated(tmp_path / "hpcrun-runs")
