"""The commit and the changes of the code that a job runs where it lies."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from hpcrun.actions.jobs import git
from hpcrun.actions.jobs.git import WorkTree, read_work_tree
from tests.unit.builders import write

GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")


def run_git(folder: Path, *args: str) -> str:
    done = subprocess.run([*GIT, *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A work tree with one commit and no change."""
    folder = tmp_path / "project"
    write(folder / "src/train.py", "one\n")
    write(folder / "src/model.py", "one\n")
    write(folder / ".gitignore", "*.ckpt\n")
    run_git(folder, "init", "-q")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", "one")
    return folder


def tree_of(folder: Path) -> WorkTree:
    tree = read_work_tree(folder, os.environ)
    assert tree is not None
    return tree


def test_the_commit_is_that_of_the_folder_and_of_the_folders_below_it(project: Path) -> None:
    commit = run_git(project, "rev-parse", "HEAD")
    assert tree_of(project) == tree_of(project / "src") == WorkTree(project, commit, 0)


def test_changed_staged_deleted_and_new_files_count_and_ignored_ones_do_not(project: Path) -> None:
    write(project / "src/train.py", "two\n")
    write(project / "staged.py", "")
    run_git(project, "add", "staged.py")
    (project / "src/model.py").unlink()
    write(project / "new folder/new.py", "")
    write(project / "new folder/other.py", "")
    write(project / "big.ckpt", "")
    write(project / ".git/info/exclude", "*.log\n")
    write(project / "a.log", "")
    tree = tree_of(project)
    assert tree.changed == 4
    digests = dict(tree.digests)
    assert digests["src/train.py"] == hashlib.sha256(b"two\n").hexdigest()[:8]
    assert digests["src/model.py"] == git.GONE
    assert digests["new folder/"] == ""
    write(project / "large.bin", "x" * (1 << 21))
    assert dict(tree_of(project).digests)["large.bin"] == ""
    for number in range(17):
        write(project / f"src/{number}.py", "")
    assert (tree_of(project).changed, tree_of(project).digests) == (22, ())


def test_a_second_work_tree_of_a_repository_has_its_own_commit(
    project: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    run_git(project, "worktree", "add", "-q", "--detach", str(second))
    write(second / "src/train.py", "two\n")
    run_git(second, "commit", "-qam", "two")
    commit = run_git(second, "rev-parse", "HEAD")
    assert tree_of(second) == WorkTree(second, commit, 0)
    assert tree_of(project).commit != commit


def test_no_folder_without_a_commit_of_its_own_has_one(project: Path, tmp_path: Path) -> None:
    assert read_work_tree(tmp_path, os.environ) is None
    run_git(tmp_path, "init", "-q")  # before the first commit
    assert read_work_tree(tmp_path, os.environ) is None
    assert read_work_tree(project, {**os.environ, "PATH": "/nowhere"}) is None


@pytest.mark.parametrize("elsewhere", ["/", "/usr"])
def test_a_work_tree_that_lies_elsewhere_is_not_looked_at(project: Path, elsewhere: str) -> None:
    run_git(project, "config", "core.worktree", elsewhere)
    assert read_work_tree(project / "src", os.environ) is None


def test_a_repository_that_does_not_respond_delays_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "COMMIT_S", 0.3)
    (project / ".git/index").unlink()
    os.mkfifo(project / ".git/index")
    began = time.monotonic()
    assert tree_of(project).changed is None
    (project / ".git/HEAD").unlink()
    os.mkfifo(project / ".git/HEAD")
    assert read_work_tree(project, os.environ) is None
    assert time.monotonic() - began < 5


def test_the_settings_of_a_repository_are_those_of_its_files(project: Path) -> None:
    run_git(project, "config", "core.autocrlf", "input")
    run_git(project, "config", "core.pager", "less")
    settings = git._settings(project, os.environ, time.monotonic() + 60)
    assert "core.autocrlf=input" in settings
    assert settings[::2] == ["-c"] * (len(settings) // 2)
    assert not any("pager" in setting for setting in settings)


def test_a_repository_may_have_no_such_settings(project: Path) -> None:
    write(project / ".git/config", "[core]\n\trepositoryformatversion = 0\n")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    assert git._settings(project, env, time.monotonic() + 60) == []
