"""The program that takes the claim to submit and becomes sbatch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.schedulers import call_sbatch

SBATCH = 'pwd; echo "$@"; echo "$WORD"; env | grep ^BASH_FUNC; echo a remark >&2'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "claim").touch()
    (tmp_path / "sbatch").write_text(f"#!/bin/bash\n{SBATCH}\n")
    (tmp_path / "sbatch").chmod(0o755)
    return tmp_path


def call(folder: Path, *, work: str = "work", program: str = "sbatch") -> tuple[int, str]:
    """The exit status and stdout of the program."""
    names = ("stderr", work, "claim", "called", program)
    paths = [str(folder / name) for name in names]
    env = {"PATH": "/usr/bin:/bin", "WORD": "hello", "BASH_FUNC_f%%": "() { :; }"}
    done = subprocess.run(
        [sys.executable, "-ISB", call_sbatch.__file__, *paths, "--parsable", "a b"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


def test_sbatch_runs_in_its_folder_with_its_words_and_variables(folder: Path) -> None:
    status, out = call(folder)
    assert status == 0
    assert out.splitlines()[:3] == [str(folder / "work"), "--parsable a b", "hello"]
    assert "BASH_FUNC_f%%=() {" in out
    assert (folder / "stderr").read_text() == "a remark\n"


def test_the_claim_is_taken_before_sbatch_runs(folder: Path) -> None:
    call(folder)
    assert sorted(os.listdir(folder)) == ["called", "sbatch", "stderr", "work"]


def test_without_the_claim_nothing_is_submitted(folder: Path) -> None:
    (folder / "claim").unlink()
    assert call(folder) == (1, "")
    assert (folder / "stderr").read_text() == "this run was abandoned before submission\n"


def test_without_its_folder_the_claim_stays(folder: Path) -> None:
    assert call(folder, work="gone") == (1, "")
    assert (folder / "stderr").read_text() == f"{folder}/gone: No such file or directory\n"
    assert (folder / "claim").exists()


def test_without_sbatch_that_is_said(folder: Path) -> None:
    assert call(folder, program="none") == (1, "")
    assert (folder / "stderr").read_text() == f"{folder}/none: No such file or directory\n"
