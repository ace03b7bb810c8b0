"""git diff without the configuration of the repository says what git diff says with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hpcrun.actions.jobs.snapshot import find_tree
from tests.unit.builders import write

GIT = (
    "git",
    "-c",
    "user.name=me",
    "-c",
    "user.email=me@example.org",
    "-c",
    "init.defaultBranch=main",
)


def git(folder: Path, *args: str) -> str:
    return subprocess.run(
        [*GIT, *args], cwd=folder, check=True, capture_output=True, timeout=20
    ).stdout.decode()


def state(folder: Path) -> dict[Path, int]:
    """When each file was written; git renews the times of objects and shared indexes that it
    needs.
    """
    return {
        path: 0
        if "objects" in path.parts or path.name.startswith("sharedindex.")
        else path.stat().st_mtime_ns
        for path in folder.rglob("*")
    }


KINDS = {
    "plain": "",
    "autocrlf input": "git config core.autocrlf input",
    "autocrlf": "git config core.autocrlf true",
    "no modes": "git config core.fileMode false",
    "split index": "git update-index --split-index; ls .git/sharedindex.*",
    "linked": "git worktree add -q ../linked; cd ../linked",
    "linked with a split index": "git worktree add -q ../linked; cd ../linked; git update-index "
    "--split-index",
    "sparse": "git sparse-checkout set --cone --sparse-index src; mkdir docs; echo present all the "
    "same >docs/page.txt",
    "borrowed": "cd ..; git clone -q --shared 'a project' borrowed; cd borrowed",
    "attributes": "echo '*.py binary' >.git/info/attributes",
    "replaced": "echo replaced >src/a.py; git add -A",
}
"""What makes a repository of each kind; the last folder is its work tree."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_diff_is_git_s_own(tmp_path: Path, kind: str) -> None:
    format_of_objects = "sha256" if kind in ("linked", "borrowed") else "sha1"
    project = tmp_path / "a project"
    write(project / "src/a.py", "one\n")
    write(project / "docs/page.txt", "one\n")
    write(project / "run.sh", "#!/bin/sh\n")
    git(tmp_path, "init", "-q", f"--object-format={format_of_objects}", str(project))
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    made = subprocess.run(
        ["bash", "-ec", f"{KINDS[kind]}\npwd"],
        cwd=project,
        check=True,
        capture_output=True,
        text=True,
    )
    folder = Path(made.stdout.splitlines()[-1])
    (folder / "src/a.py").write_bytes(b"one\r\ntwo\r\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "src/new.bin").write_bytes(bytes(range(256)))
    git(folder, "add", "-N", "src/new.bin")
    expected = git(folder, "diff", "--binary", "HEAD")
    before = state(project / ".git")
    answer = find_tree(folder, os.environ).diff(
        "--binary", git(folder, "rev-parse", "HEAD").strip()
    )
    assert answer.stdout == expected
    assert "diff --git" in expected
    assert state(project / ".git") == before
