"""--snapshot with real git, real packages and jobs in the background of this machine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun
from tests.unit.builders import write

JOB = ("submit", "-P", "local", "--gpus", "0", "--snapshot")
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
        [*GIT, *args], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git work tree with a package, a script that imports it, a change and an ignored file."""
    folder = tmp_path / "project"
    write(folder / "src/pkg/__init__.py", "WORD = 'committed'\n")
    write(folder / "tools/train.py", "import os, pkg\nprint(pkg.WORD, pkg.__file__, os.getcwd())\n")
    write(folder / ".gitignore", "*.ckpt\n")
    write(folder / "big.ckpt", "x" * 1000)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    write(folder / "src/pkg/__init__.py", "WORD = 'changed'\n")
    write(folder / "src/pkg/new.py", "")
    return folder


def only_run(hpcrun: Hpcrun) -> Path:
    (folder,) = hpcrun.runs.glob("2*")
    return folder


def code_of(folder: Path) -> dict[str, Any]:
    """What a run's record says of its code."""
    return dict(json.loads((folder / "run.json").read_text())["code"])


def venv_with(folder: Path, pth: str) -> Path:
    """A virtual environment whose site-packages point to a project, as an editable install leaves
    it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "__editable__.pkg.pth").write_text(f"{pth}\n")
    return folder


def test_a_copy_of_the_code_runs_and_not_the_editable_install(
    hpcrun: Hpcrun, project: Path, tmp_path: Path
) -> None:
    venv = venv_with(tmp_path / "venv", str(project / "src"))
    env = {"VIRTUAL_ENV": str(venv)}
    plain = hpcrun(
        "submit", "-P", "local", "--gpus", "0", "--follow", "tools/train.py", cwd=project, env=env
    )
    # the environment does point there
    assert f"changed {project}/src/pkg/__init__.py" in plain.stdout
    done = hpcrun(
        *JOB, "-J", "copied", "--follow", "train.py", cwd=project / "tools", env=env, check=True
    )
    (folder,) = hpcrun.runs.glob("*-copied-*")
    code = folder / "code"
    assert f"changed {code}/src/pkg/__init__.py {code}/tools" in done.stdout
    verbose = hpcrun("status", "--verbose", "copied", check=True).stdout
    assert f"script       {code}/tools/train.py" in verbose
    assert f"import       pkg from {code}/src/pkg/__init__.py" in verbose
    commit = git(project, "rev-parse", "HEAD")
    assert (
        f"commit {commit[:12]} and 1 file changed, 1 insertion(+), 1 deletion(-), 1 untracked"
        in verbose
    )
    assert stat.S_IMODE(code.stat().st_mode) == 0o700
    assert not (code / "big.ckpt").exists()
    assert (code / "src/pkg/new.py").exists()
    # commit and diff are the code again
    git(project, "stash", "-q")
    git(project, "apply", str(folder / "code.diff"))
    assert (project / "src/pkg/__init__.py").read_text() == "WORD = 'changed'\n"


FINDER = """
import sys, importlib.util
MAPPING: dict[str, str] = {{'pkg': {package!r}}}
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MAPPING:
            return importlib.util.spec_from_file_location(name, MAPPING[name] + '/__init__.py')
def install():
    sys.meta_path.{how}
"""


def test_a_finder_that_comes_before_all_paths_is_told_and_setuptools_is_overtaken(
    hpcrun: Hpcrun, project: Path, tmp_path: Path
) -> None:
    venv = venv_with(
        tmp_path / "venv", "import __editable___pkg_finder; __editable___pkg_finder.install()"
    )
    (site,) = venv.glob("lib/python3*/site-packages")
    finder = site / "__editable___pkg_finder.py"
    write(finder, FINDER.format(package=str(project / "src/pkg"), how="insert(0, Finder)"))
    env = {"VIRTUAL_ENV": str(venv), "PYTHONPATH": "src"}
    hpcrun(*JOB, "--wait", "tools/train.py", cwd=project, env=env, check=True)
    told = f"hpcrun: pkg is imported from {project}/src/pkg/__init__.py, not from the copy"
    assert told in hpcrun("logs", "--batch").stdout
    write(finder, FINDER.format(package=str(project / "src/pkg"), how="append(Finder)"))
    # modules of the project do not replace those of hpcrun
    for name in ("json", "signal", "records"):
        write(project / f"{name}.py", f"WORD = '{name}'\n")
    env = {"VIRTUAL_ENV": str(venv)}
    train = write(
        project / "tools/train.py", "import json, pkg\nprint(pkg.WORD, pkg.__file__, json.WORD)\n"
    )
    done = hpcrun(
        *JOB,
        "-J",
        "late",
        "--follow",
        "-m",
        f"tools.{train.stem}",
        cwd=project,
        env=env,
        check=True,
    )
    (folder,) = hpcrun.runs.glob("*-late-*")
    assert f"changed {folder}/code/src/pkg/__init__.py json\n" in done.stdout
    assert hpcrun("logs", "--batch").stdout == ""
    verbose = hpcrun("status", "--verbose", "late", check=True).stdout
    assert f"json from {folder}/code/json.py" in verbose
    assert f"records from {folder}/code/records.py" in verbose


def test_a_folder_without_git(hpcrun: Hpcrun, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    write(folder / "run.sh", "#!/bin/sh\ncat data/word\n").chmod(0o755)
    write(folder / "data/word", "copied\n")
    write(folder / "__pycache__/x.pyc", "")
    (folder / "inside").symlink_to(folder / "data/word")
    (folder / "outside").symlink_to("../elsewhere")
    write(tmp_path / "elsewhere", "far\n")
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    done = hpcrun(*JOB, "--follow", "run.sh", cwd=folder, check=True)
    assert "copied" in done.stdout
    assert (
        f"symbolic links that point outside the snapshot: outside -> {tmp_path}/elsewhere"
        in done.stdout
    )
    code = only_run(hpcrun) / "code"
    assert sorted(path.name for path in code.iterdir()) == [
        "data",
        "gone",
        "inside",
        "outside",
        "run.sh",
    ]
    assert os.readlink(code / "inside") == "data/word"
    assert (code / "outside").read_text() == "far\n"
    assert code_of(only_run(hpcrun))["commit"] is None


def test_the_runs_folder_is_no_code(hpcrun: Hpcrun, project: Path) -> None:
    for _ in range(2):
        hpcrun(*JOB, "--wait", "echo", "x", cwd=project, env={"HPCRUN_RUNS": "runs"}, check=True)
    assert not list(project.glob("runs/2*/code/runs"))
    (_, second) = sorted(project.glob("runs/2*"))
    assert code_of(second)["changes"].endswith(", 1 untracked")


def test_too_much_or_a_copy_that_fails_leaves_no_run(hpcrun: Hpcrun, project: Path) -> None:
    (project / "model.bin").write_bytes(bytes(3 << 20))
    refused = hpcrun(*JOB, "--snapshot-limit", "2M", "true", cwd=project)
    assert refused.returncode == 4
    assert (
        "over the limit of a snapshot (2 MB); the largest:\n  3.0 MB  model.bin" in refused.stderr
    )
    hint = (
        "hint: list files that are not code in .gitignore, or raise the limit with "
        "--snapshot-limit SIZE"
    )
    assert hint in refused.stderr
    assert not list(hpcrun.runs.glob("*2*"))
    limited = ("bash", "-c", 'ulimit -f 100; exec "$@"', "bash")  # no file may grow over 100 KiB
    full = hpcrun.run(*limited, *hpcrun.argv(*JOB, "true"), cwd=project, check=False)
    assert (full.returncode, "File too large" in full.stderr) == (4, True)
    assert [path.name for path in hpcrun.runs.iterdir()] == ["active"]
    assert not list((hpcrun.runs / "active").iterdir())


def test_submodules_and_files_that_are_gone(hpcrun: Hpcrun, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other / "lib.py", "")
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "one")
    git(
        project,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(other),
        "vendor",
    )
    (project / "tools/train.py").unlink()
    done = hpcrun(*JOB, "--wait", "true", cwd=project, check=True)
    assert "vendor is a git repository of its own: its files are copied too" in done.stdout
    code = only_run(hpcrun) / "code"
    assert (code / "vendor/lib.py").exists()
    assert not (code / "tools").exists()


def test_a_script_that_is_not_in_the_copy_is_refused(
    hpcrun: Hpcrun, project: Path, tmp_path: Path
) -> None:
    write(project / ".gitignore", "secret.py\n")
    write(project / "secret.py", "")
    write(tmp_path / "far.py", "")
    ignored = hpcrun(*JOB, "secret.py", cwd=project)
    assert (ignored.returncode, "git ignores it" in ignored.stderr) == (2, True)
    assert "hint: git add -f secret.py" in ignored.stderr
    far = hpcrun(*JOB, "../far.py", cwd=project)
    assert (far.returncode, f"{tmp_path}/far.py is outside" in far.stderr) == (2, True)
    done = hpcrun(
        *JOB,
        "--follow",
        str(project / "tools/train.py"),
        cwd=project,
        env={"PYTHONPATH": "src"},
        check=True,
    )
    # named by its own path, and run from the copy
    assert f"changed {only_run(hpcrun)}/code/src/pkg" in done.stdout


def test_resubmit_runs_the_same_copy_unless_told_otherwise(hpcrun: Hpcrun, project: Path) -> None:
    write(project / "word.py", "print('old')\n")
    hpcrun(*JOB, "--wait", "word.py", cwd=project, check=True)
    write(project / "word.py", "print('new')\n")
    first = only_run(hpcrun)
    for args, word in (((), "old"), (("--snapshot",), "new")):
        run_id = json.loads(hpcrun("resubmit", first.name, "--json", *args, check=True).stdout)[
            "run_id"
        ]
        assert hpcrun("logs", "-f", run_id, check=True).stdout == f"{word}\n"
        hpcrun.ended(run_id)
    assert code_of(hpcrun.runs / run_id)["changes"]


@pytest.mark.parametrize("with_git", [True, False])
def test_what_looks_like_a_secret_is_named_and_left_out(
    hpcrun: Hpcrun, project: Path, tmp_path: Path, with_git: bool
) -> None:
    write(project / "tracked/id_rsa", "hush-1\n")
    git(project, "add", "-f", "tracked/id_rsa")
    git(project, "commit", "-qm", "two", "tracked/id_rsa")
    write(project / "tracked/id_rsa", "hush-2\n")
    write(project / ".env", "HF_TOKEN=hush-3\n")
    write(project / "certs/own.pem", "-----BEGIN PRIVATE KEY-----\nhush-4\n")
    write(project / "certs/ca.pem", "-----BEGIN CERTIFICATE-----\nMII\n")
    write(project / ".env.example", "HF_TOKEN=\n")
    if not with_git:
        (project / ".git").rename(tmp_path / "git")
    planned = hpcrun(*JOB, "--dry-run", "true", cwd=project, check=True)
    line = next(line for line in planned.stderr.splitlines() if "look like secrets" in line)
    assert all(
        name in line
        for name in (".env", "tracked/id_rsa", "certs/own.pem", "--snapshot-include PATTERN")
    )
    assert not any(name in line for name in ("ca.pem", "example"))
    hpcrun(*JOB, "--wait", "true", cwd=project, check=True)
    folder = only_run(hpcrun)
    kept = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in kept if b"hush-" in path.read_bytes()]
    assert {"ca.pem", ".env.example"} <= {path.name for path in kept}
    assert sorted(code_of(folder)["left_out"]) == [".env", "certs/own.pem", "tracked/id_rsa"]
    assert "id_rsa" in hpcrun("status", "-v", "last", check=True).stdout
    asked = (
        "--snapshot-include",
        ".env",
        "--snapshot-include",
        "certs/",
        "--snapshot-include",
        "nothing",
    )
    done = hpcrun(*JOB, *asked, "-J", "asked", "--wait", "true", cwd=project, check=True)
    (folder,) = hpcrun.runs.glob("*-asked-*")
    assert (folder / "code/.env").exists()
    assert (folder / "code/certs/own.pem").exists()
    assert code_of(folder)["left_out"] == ["tracked/id_rsa"]
    assert "--snapshot-include nothing: no such file that looks like a secret" in done.stdout
