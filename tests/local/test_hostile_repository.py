"""--snapshot of a repository whose own settings would run programs: every one of them leaves a
mark, and none may.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcrun.actions.jobs.git import diff_work_tree
from tests.harness import Hpcrun
from tests.unit.builders import write

JOB = ("submit", "-P", "local", "--gpus", "0", "--snapshot", "--wait")
GIT = (
    "git",
    "-c",
    "user.name=me",
    "-c",
    "user.email=me@example.org",
    "-c",
    "protocol.file.allow=always",
)
# Where git 2.39 starts a program by itself in what a snapshot does, and in the nearest commands
# besides.
FIRES_IN_GIT = frozenset(
    """fsmonitor hook clean process included of-worktree by-url command textconv external
    inner-fsmonitor inner-clean""".split()
)


def git(folder: Path, *args: str) -> str:
    return subprocess.run(
        [*GIT, *args], cwd=folder, check=True, capture_output=True, text=True, timeout=20
    ).stdout.strip()


def mark(folder: Path, name: str) -> str:
    """A program that leaves a mark; as a filter it hands on what it is given."""
    goes_on = (
        "exec cat"
        if name.endswith(("clean", "included", "of-worktree", "by-url", "late"))
        else "exit 1"
    )
    script = write(folder / f"leave-{name}", f'#!/bin/sh\n: >"{folder}/mark-{name}"\n{goes_on}\n')
    script.chmod(0o755)
    return str(script)


def marks(folder: Path) -> set[str]:
    return {path.name.removeprefix("mark-") for path in folder.glob("mark-*")}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


@pytest.fixture
def hostile(tmp_path: Path, programs: Path) -> Path:
    """A work tree with a submodule in it, each with a changed file for every kind of filter."""
    inner, project = tmp_path / "inner", tmp_path / "project"
    for folder in (inner, project):
        folder.mkdir()
        git(folder, "init", "-q")
        names = (
            "clean",
            "process",
            "included",
            "of-worktree",
            "by-url",
            "late",
            "command",
            "textconv",
        )
        for name in names:
            write(folder / f"{name}.txt", "one\n")
        write(
            folder / ".gitattributes",
            "".join(f"{name}.txt filter={name} diff={name}\n" for name in names),
        )
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "one")
    git(project, "submodule", "--quiet", "add", str(inner), "sub")
    git(project, "commit", "-qm", "two")
    write(project / "train.py", "print('trained')\n")
    for folder in (project, project / "sub"):
        for path in folder.glob("*.txt"):
            path.write_text("two\n")
    _arm(project, project / ".git", programs, "")
    _arm(project / "sub", project / ".git/modules/sub", programs, "inner-")
    return project


def _arm(folder: Path, git_folder: Path, programs: Path, prefix: str) -> None:
    def leave(name: str) -> str:
        return mark(programs, prefix + name)

    hooks = programs / f"{prefix}hooks"
    hooks.mkdir()
    (hooks / "post-index-change").symlink_to(leave("hook"))
    settings = {
        "core.hooksPath": str(hooks),
        "filter.clean.clean": leave("clean"),
        "filter.clean.required": "true",
        "filter.process.process": leave("process"),
        "diff.command.command": leave("command"),
        "diff.textconv.textconv": leave("textconv"),
        "diff.external": leave("external"),
        "diff.submodule": "diff",
        "submodule.recurse": "true",
        "diff.ignoreSubmodules": "none",
        "credential.helper": f"!{leave('credential')}",
        **{
            f"core.{name}": leave(name)
            for name in ("pager", "editor", "sshCommand", "askPass", "alternateRefsCommand")
        },
        "alias.diff": f"!{leave('alias')}",
        "alias.ls-files": f"!{leave('alias')}",
        "extensions.worktreeConfig": "true",
        "core.fsmonitor": leave("fsmonitor"),
    }
    for name, value in settings.items():
        git(folder, "-c", "core.fsmonitor=false", "config", name, value)
    write(git_folder / "more", f'[filter "included"]\n\tclean = {leave("included")}\n')
    write(git_folder / "by-url", f'[filter "by-url"]\n\tclean = {leave("by-url")}\n')
    # the condition of an include is true only where all files of settings are read together
    url = '[remote "o"]\n\turl = https://example.org/a\n'
    write(
        git_folder / "config.worktree",
        f'[filter "of-worktree"]\n\tclean = {leave("of-worktree")}\n{url}',
    )
    with (git_folder / "config").open("a") as file:
        file.write("[include]\n\tpath = more\n")
        file.write('[includeIf "hasconfig:remote.*.url:https://example.org/a"]\n\tpath = by-url\n')


def test_no_setting_of_a_repository_runs_a_program(
    hpcrun: Hpcrun, hostile: Path, programs: Path
) -> None:
    calm = ("-c", "filter.process.process=")
    tries = (
        ("status",),
        (*calm, "-c", "filter.clean.required=false", "diff", "HEAD", "--", "clean.txt"),
        (*calm, "diff", "HEAD", "--", "command.txt"),
        (*calm, "diff", "--no-ext-diff", "HEAD", "--", "textconv.txt"),
        (*calm, "diff", "--no-ext-diff", "HEAD", "--", "sub"),
        (*calm, "add", "."),
    )
    for command in tries:
        subprocess.run(
            [*GIT, *command], cwd=hostile, capture_output=True, stdin=subprocess.DEVNULL, timeout=20
        )
    subprocess.run(
        [*GIT, *calm, "reset"],
        cwd=hostile,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
    )
    assert marks(programs) >= FIRES_IN_GIT  # the traps are set
    for path in programs.glob("mark-*"):
        path.unlink()
    write(hostile / "train.py", "print('trained')\n")
    done = hpcrun(*JOB, "train.py", cwd=hostile, check=True)
    assert marks(programs) == set()
    (run,) = hpcrun.runs.glob("2*")
    assert (run / "code/sub/clean.txt").read_text() == "two\n"
    assert "+two" in (run / "code.diff").read_text()
    assert "8 files changed" in done.stdout
    hpcrun(
        "submit",
        "-P",
        "local",
        "--gpus",
        "0",
        "--snapshot",
        "--dry-run",
        "train.py",
        cwd=hostile,
        check=True,
    )
    plain = [word for word in JOB if word != "--snapshot"]
    hpcrun(*plain, "--name", "plain", "train.py", cwd=hostile, check=True)
    (run,) = hpcrun.runs.glob("2*-plain-*")
    code = json.loads((run / "run.json").read_text())["code"]
    assert (code["copied"], code["changed"]) == (False, 9)
    assert marks(programs) == set()


def test_a_missing_object_is_not_fetched(hpcrun: Hpcrun, hostile: Path, programs: Path) -> None:
    blob = git(hostile, "-c", "core.fsmonitor=false", "rev-parse", "HEAD:clean.txt")
    for name, value in {
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{mark(programs, 'fetch')}",
        "protocol.ext.allow": "always",
    }.items():
        git(hostile, "-c", "core.fsmonitor=false", "config", name, value)
    (hostile / ".git/objects" / blob[:2] / blob[2:]).unlink()
    subprocess.run(
        [*GIT, "cat-file", "-p", blob],
        cwd=hostile,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
    )
    assert "fetch" in marks(programs)
    for path in programs.glob("mark-*"):
        path.unlink()
    refused = hpcrun(*JOB, "train.py", cwd=hostile)
    assert refused.returncode == 4
    assert "the changes cannot be recorded" in refused.stderr
    assert marks(programs) == set()


def test_a_filter_with_an_odd_name_does_not_run(
    hpcrun: Hpcrun, hostile: Path, programs: Path
) -> None:
    """``git -c`` cannot name this filter, since it ends a name at the first ``=``."""
    with (hostile / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\n\tclean = {mark(programs, "odd")}\n')
    write(hostile / ".gitattributes", "*.txt filter=a=b\n")
    hpcrun(*JOB, "train.py", cwd=hostile, check=True)
    assert marks(programs) == set()


def test_settings_that_change_between_two_calls_of_git_run_nothing(
    hpcrun: Hpcrun, hostile: Path, programs: Path
) -> None:
    """Another process may write to the repository at any moment: here a filter is added right
    before each diff.
    """
    late = f'[filter "late"]\\n\\tclean = {mark(programs, "late")}\\n'
    real = shutil.which("git")
    line = (
        f'case " $* " in *" diff "*) printf \'{late}\' >>{hostile}/.git/config;; esac\nexec '
        f'{real} "$@"'
    )
    hpcrun(*JOB, "train.py", cwd=hostile, env=hpcrun.shims(git=line), check=True)
    assert '"late"' in (hostile / ".git/config").read_text()  # the trap was set
    assert marks(programs) == set()


def test_a_setting_that_git_cannot_read_and_a_work_tree_that_lies_elsewhere_are_errors(
    hpcrun: Hpcrun, hostile: Path, programs: Path
) -> None:
    config = hostile / ".git/config"
    text = config.read_text()
    config.write_text(f"{text}[broken\n")
    refused = hpcrun(*JOB, "train.py", cwd=hostile)
    assert (refused.returncode, "bad config line" in refused.stderr) == (4, True), refused.stderr
    config.write_text(text)
    git(hostile, "-c", "core.fsmonitor=false", "config", "core.worktree", str(hpcrun.home))
    refused = hpcrun(*JOB, "train.py", cwd=hostile)
    assert (refused.returncode, f"its work tree is {hpcrun.home}" in refused.stderr) == (4, True), (
        refused.stderr
    )
    assert marks(programs) == set()


def test_the_person_s_own_filters_work(hpcrun: Hpcrun, tmp_path: Path) -> None:
    """As those of git-lfs, which stand in the person's own configuration."""
    project = tmp_path / "project"
    write(project / "a.up", "one\n")
    write(project / ".gitattributes", "*.up filter=up\n")
    write(hpcrun.home / ".gitconfig", '[filter "up"]\n\tclean = tr a-z A-Z\n')
    git(project, "init", "-q")
    git(project, "-c", "filter.up.clean=tr a-z A-Z", "add", "-A")
    git(project, "commit", "-qm", "one")
    write(project / "a.up", "two\n")
    hpcrun(*JOB, "true", cwd=project, check=True)
    (run,) = hpcrun.runs.glob("2*")
    assert "-ONE\n+TWO\n" in (run / "code.diff").read_text()


def test_the_environment_of_a_clone_is_run_by_a_job_alone(hpcrun: Hpcrun, programs: Path) -> None:
    clone = hpcrun.folder / "clone"
    python = write(
        clone / ".venv/bin/python",
        f'#!/bin/sh\n: >{programs}/mark-python\nexec {hpcrun.python_word} "$@"\n',
    )
    python.chmod(0o755)
    write(clone / "train.py", "print('trained')\n")
    plain = {"VIRTUAL_ENV": None}
    job = ("submit", "-P", "local", "--gpus", "0")
    torchrun = "--nproc-per-node 1 --launcher torchrun --torchrun max-restarts=1 --dry-run train.py"
    shown = hpcrun(*job, *torchrun.split(), cwd=clone, env=plain)
    assert ".venv of the project, since no environment is active" in shown.stderr
    assert "only jobs run" in hpcrun("doctor", "-P", "local", cwd=clone, env=plain).stdout
    assert marks(programs) == set()
    hpcrun(*job, "--wait", "train.py", cwd=clone, env=plain, check=True)
    assert marks(programs) == {"python"}


def test_commits_are_compared_without_a_program_of_the_repository(
    hostile: Path, programs: Path
) -> None:
    empty = git(hostile, "hash-object", "-t", "tree", "-w", "/dev/null")
    before = git(hostile, "-c", "core.fsmonitor=false", "rev-parse", "HEAD")
    after = git(hostile, "commit-tree", empty, "-p", before, "-m", "nothing is left")
    for path in programs.glob("mark-*"):
        path.unlink()
    answer = diff_work_tree(hostile, before, after, "--", env=os.environ)
    assert "\n--- a/textconv.txt\n+++ /dev/null\n" in answer.stdout
    assert marks(programs) == set()
