"""git diff without the configuration of the repository says what git diff says with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.actions.jobs.snapshot import find_tree
from tests.unit.given import write

GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "init.defaultBranch=main")


def git(folder: Path, *args: str) -> str:
    return subprocess.run([*GIT, *args], cwd=folder, check=True, capture_output=True, text=True, timeout=20).stdout


def state(folder: Path) -> dict[Path, int]:
    """When each file was written; git renews the times of objects and shared indexes that it needs."""
    return {
        path: 0 if "objects" in path.parts or path.name.startswith("sharedindex.") else path.stat().st_mtime_ns
        for path in folder.rglob("*")
    }


def _set(*settings: str) -> Callable[[Path], Path]:
    def apply(project: Path) -> Path:
        for setting in settings:
            git(project, "config", *setting.split("="))
        return project

    return apply


def _split_index(project: Path) -> Path:
    git(project, "update-index", "--split-index")
    assert list((project / ".git").glob("sharedindex.*"))
    return project


def _linked(project: Path) -> Path:
    git(project, "worktree", "add", "-q", "../linked")
    return project.parent / "linked"


def _linked_with_split_index(project: Path) -> Path:
    linked = _linked(project)
    git(linked, "update-index", "--split-index")
    return linked


def _sparse(project: Path) -> Path:
    git(project, "sparse-checkout", "set", "--cone", "--sparse-index", "src")
    write(project / "docs/page.txt", "present all the same\n")
    return project


def _borrowed(project: Path) -> Path:
    git(project.parent, "clone", "-q", "--shared", str(project), "borrowed")
    return project.parent / "borrowed"


def _attributes(project: Path) -> Path:
    write(project / ".git/info/attributes", "*.py binary\n")
    return project


def _replaced(project: Path) -> Path:
    write(project / "src/a.py", "replaced\n")
    git(project, "add", "-A")
    return project


@pytest.mark.parametrize(
    "kind",
    [
        _set(),
        _set("core.autocrlf=input"),
        _set("core.autocrlf=true"),
        _set("core.fileMode=false"),
        _split_index,
        _linked,
        _linked_with_split_index,
        _sparse,
        _borrowed,
        _attributes,
        _replaced,
    ],
    ids=lambda kind: str(kind.__name__).strip("_"),
)
def test_the_diff_is_git_s_own(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    format_of_objects = "sha256" if kind in (_linked, _borrowed) else "sha1"
    project = tmp_path / "a project"
    write(project / "src/a.py", "one\n")
    write(project / "docs/page.txt", "one\n")
    write(project / "run.sh", "#!/bin/sh\n")
    git(tmp_path, "init", "-q", f"--object-format={format_of_objects}", str(project))
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    folder = kind(project)
    (folder / "src/a.py").write_bytes(b"one\r\ntwo\r\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "src/new.bin").write_bytes(bytes(range(256)))
    git(folder, "add", "-N", "src/new.bin")
    expected = git(folder, "diff", "--binary", "HEAD")
    before = state(project / ".git")
    answer = find_tree(folder, os.environ).diff("--binary", git(folder, "rev-parse", "HEAD").strip())
    assert answer.stdout == expected
    assert "diff --git" in expected
    assert state(project / ".git") == before
