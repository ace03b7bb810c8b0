"""A test that needs an editor, LaTeX or a package: what becomes of it where that is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPO
from tests.unit.builders import write

TESTS = """
import pytest

@pytest.mark.needs("no-such-program")
def test_that_needs_it(): raise SystemExit

@pytest.mark.needs_package("no_such_package")
def test_that_needs_a_package(): raise SystemExit

@pytest.mark.needs("sh")
@pytest.mark.needs_package("pytest")
def test_that_finds_its_program(): assert True
"""


@pytest.mark.parametrize(
    ("required", "status", "counts", "front"),
    [
        pytest.param("0", 0, "1 passed, 2 skipped", "1 test skipped: ", id="skipped"),
        pytest.param("1", 1, "1 passed, 2 errors", "", id="required"),
    ],
)
def test_a_missing_program_is_named_and_fails_where_it_is_required(
    tmp_path: Path, required: str, status: int, counts: str, front: str
) -> None:
    path = write(tmp_path / "test_programs.py", TESTS)
    options = [
        "-p",
        "tests.conftest",
        "-p",
        "pytest_timeout",
        "-p",
        "no:cacheprovider",
        f"--config-file={REPO}/pyproject.toml",
    ]
    argv = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(path)]
    env = {**os.environ, "HPCRUN_REQUIRE_PROGRAMS": required, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, env=env, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert counts in done.stdout
    assert f"{front}no-such-program is not installed" in done.stdout
    assert f"{front}the package no_such_package is not installed" in done.stdout
