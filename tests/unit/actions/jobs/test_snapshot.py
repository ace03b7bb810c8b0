"""--snapshot: which files of the code are copied, and what is told about them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.jobs.snapshot import (
    Code,
    Listing,
    Tree,
    code_to_copy,
    find_tree,
    list_code,
    place_in_snapshot,
)
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.plan.job_plan import PythonEnvironment, Snapshot
from hpcrun.job.run_paths import RunFolder
from tests.unit.builders import request, write

GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")
ENV = {"PATH": os.environ["PATH"]}
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"


def git(folder: Path, *args: str) -> str:
    done = subprocess.run([*GIT, *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a work tree with one commit."""
    folder = tmp_path / "project"
    write(folder / "src/train.py", "one\n")
    write(folder / "lib.py", "one\n")
    write(folder / ".gitignore", "*.ckpt\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Return a folder without git."""
    write(tmp_path / "plain/train.py", "one\n")
    return tmp_path / "plain"


def listing(folder: Path, *include: str, runs: Path | None = None) -> Listing:
    return list_code(find_tree(folder, ENV), include, runs)


def code(folder: Path, *include: str, script: str | None = None, most_mb: int = 1) -> Code:
    return code_to_copy(listing(folder, *include), Snapshot(".", (), script), most_mb, None)


def paths(code: Code) -> list[str]:
    return sorted(str(file.path) for file in code.files)


def test_the_tree_of_git_begins_at_its_root(project: Path) -> None:
    assert find_tree(project / "src", ENV) == Tree(project, "src", True, ENV)
    assert find_tree(project, ENV) == Tree(project, ".", True, ENV)


def test_a_folder_without_git_is_its_own_tree(plain: Path) -> None:
    assert find_tree(plain, ENV) == Tree(plain, ".", False, ENV)


def test_without_the_program_git_a_folder_is_its_own_tree(project: Path) -> None:
    assert find_tree(project, {"PATH": ""}) == Tree(project, ".", False, {"PATH": ""})


def test_a_work_tree_elsewhere_is_refused(project: Path, plain: Path) -> None:
    git(project, "config", "core.worktree", str(plain))
    with pytest.raises(PlanError, match=f"its work tree is {plain}") as raised:
        find_tree(project, ENV)
    assert raised.value.hint == "git config --unset core.worktree"


def test_a_repository_that_git_cannot_read(project: Path) -> None:
    (project / ".git/config").write_text("[")
    with pytest.raises(PlanError, match="git cannot list the files"):
        find_tree(project, ENV)


def test_ignored_files_and_caches_are_left_out(project: Path) -> None:
    write(project / "a.ckpt", "")
    write(project / "new.py", "")
    write(project / "__pycache__/a.pyc", "")
    assert sorted(listing(project).paths) == [".gitignore", "lib.py", "new.py", "src/train.py"]


def test_runs_are_no_code(project: Path, plain: Path) -> None:
    write(project / "runs/a/log", "")
    write(plain / "runs/a/log", "")
    assert "runs/a/log" not in listing(project, runs=project / "runs").paths
    assert "runs/a/log" in listing(project, runs=plain / "runs").paths
    assert list(listing(plain, runs=plain / "runs").paths) == ["train.py"]


def test_repositories_within_are_told(project: Path) -> None:
    write(project / "inner/a.py", "")
    git(project / "inner", "init", "-q")
    found = listing(project)
    assert "inner/a.py" in found.paths
    assert found.notes == ["inner is a git repository of its own: its files are copied too"]


@pytest.mark.parametrize(
    ("name", "text", "secret"),
    [
        (".env", "A=b", True),
        ("id_rsa", "no key", True),
        ("server.pem", KEY, True),
        ("lib.py", KEY, False),
    ],
)
def test_files_that_look_like_secrets(plain: Path, name: str, text: str, secret: bool) -> None:
    write(plain / name, text)
    found = listing(plain)
    assert (name in found.secrets) is secret
    assert (name in found.left_out) is secret


def test_secrets_are_copied_if_they_are_included(plain: Path) -> None:
    write(plain / ".env", "A=b")
    write(plain / "other.env", "A=b")
    assert ".env" in paths(code(plain, ".env"))
    assert ".env" not in paths(code(plain))


def test_left_out_secrets_are_told(plain: Path) -> None:
    write(plain / ".env", "A=b")
    (told,) = listing(plain).secret_notes()
    assert told.startswith("not copied, since they look like secrets: .env; to copy them:")
    assert list(listing(plain, ".env").secret_notes()) == []


def test_a_pattern_of_no_secret_is_told(plain: Path) -> None:
    (told,) = listing(plain, "*.pem").secret_notes()
    assert told.endswith("*.pem: no such file that looks like a secret")


def test_the_state_of_git_is_recorded(project: Path) -> None:
    commit = git(project, "rev-parse", "HEAD")
    clean = code(project)
    assert (clean.commit, clean.changes, clean.changed) == (commit, "", 0)
    write(project / "lib.py", "two\n")
    write(project / "new.py", "")
    write(project / "newer.py", "")
    changed = code(project)
    assert changed.changed == 3
    assert changed.changes == "1 file changed, 1 insertion(+), 1 deletion(-), 2 untracked"
    record = changed.record()
    assert (record["files"], record["bytes"]) == (5, len("one\ntwo\n*.ckpt\n"))
    assert (record["root"], record["folder"], record["left_out"]) == (str(project), ".", [])


def test_before_the_first_commit_there_is_none(plain: Path) -> None:
    git(plain, "init", "-q")
    begun = code(plain)
    assert (begun.commit, begun.changes, begun.changed) == (None, "1 untracked", 1)


def test_without_git_there_is_no_commit(plain: Path) -> None:
    assert code(plain).commit is None
    assert code(plain).changes == ""


def test_a_link_that_leaves_the_code_is_told(plain: Path) -> None:
    (plain / "data").symlink_to("/etc/hosts")
    (plain / "own").symlink_to("train.py")
    assert code(plain).notes == (
        "symbolic links that point outside the snapshot: data -> /etc/hosts",
    )


def test_a_large_code_is_refused(plain: Path) -> None:
    (plain / "large").write_bytes(bytes(1 << 20))
    with pytest.raises(PlanError, match="large"):
        code(plain)
    assert len(code(plain, most_mb=2).files) == 2


def test_a_script_that_git_ignores_is_refused(project: Path) -> None:
    write(project / "run.ckpt", "")
    with pytest.raises(UsageError, match="git ignores it") as raised:
        code(project, script="run.ckpt")
    assert raised.value.hint == "git add -f run.ckpt"


def test_a_script_that_looks_like_a_secret_is_refused(plain: Path) -> None:
    write(plain / ".env", "A=b")
    with pytest.raises(UsageError, match="looks like a file of secrets"):
        code(plain, script=".env")
    assert code(plain, ".env", script=".env").files


def test_the_copy_has_the_changes_without_secrets(project: Path, tmp_path: Path) -> None:
    write(project / ".env", "A=old")
    git(project, "add", "-f", ".env")
    git(project, "commit", "-qm", "two")
    write(project / ".env", "A=secret")
    write(project / "lib.py", "two\n")
    folder = tmp_path / "run"
    folder.mkdir()
    code(project).copy_to(folder)
    copied = RunFolder(folder)
    assert (copied.code / "lib.py").read_text() == "two\n"
    assert not (copied.code / ".env").exists()
    difference = copied.code_diff.read_text()
    assert "+two" in difference
    assert "secret" not in difference


PYTHON = PythonEnvironment("/usr/bin/none", "a Python", None)


@pytest.mark.parametrize(
    ("script", "called", "in_copy"),
    [
        ("train.py", "train.py", "src/train.py"),
        ("../lib.py", "../lib.py", "lib.py"),
        ("./run", "./run", "src/run"),
        ("../tool", "../tool", "tool"),
        ("torchtune", "torchtune", None),
        ("/bin/true", "/bin/true", None),
    ],
)
def test_a_script_is_called_in_the_copy(
    project: Path, script: str, called: str, in_copy: str | None
) -> None:
    tree = find_tree(project / "src", ENV)
    asked, snapshot = place_in_snapshot(request(script), tree, PYTHON)
    assert (asked.script, snapshot.script) == (called, in_copy)
    assert (snapshot.folder, snapshot.paths) == ("src", ("src",))


def test_a_python_script_outside_is_refused(project: Path, plain: Path) -> None:
    tree = find_tree(project, ENV)
    with pytest.raises(UsageError, match="is outside") as raised:
        place_in_snapshot(request(str(plain / "train.py")), tree, PYTHON)
    assert "submit from the folder of the script" in str(raised.value.hint)


def test_folders_of_imports_are_those_in_the_code(project: Path, tmp_path: Path) -> None:
    env = {**ENV, "PYTHONPATH": f"lib:{tmp_path}::{project}", "HOME": str(tmp_path)}
    site = tmp_path / "venv/lib/python3.11/site-packages"
    write(site / "own.pth", f"# a comment\nimport os\n{project}/packages\n\n")
    write(site / "__editable___x_finder.py", f"MAPPING = {{'x': '{project}/inner/x'}}\n")
    python = replace(PYTHON, prefix=str(tmp_path / "venv"))
    _, snapshot = place_in_snapshot(request("lib.py"), find_tree(project, env), python)
    assert snapshot.paths == (".", "lib", "packages", "inner")
