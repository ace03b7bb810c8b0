"""The record of the code of a job: where Python finds the packages of the copy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch.per_job import code
from tests.unit.in_job.attempts import Attempt


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of code with packages, a module, a script and what is none of these."""
    folder = tmp_path / "copy"
    for name in ("mine/__init__.py", "src/deep/__init__.py", "data/x.txt", "src/helper.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name in ("train.py", "setup.py", "no-module.py", "notes.txt"):
        (folder / name).touch()
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.chdir(tmp_path)
    return folder


def record(attempt: Attempt, folder: Path, script: str, *paths: str) -> dict[str, Any]:
    """Return the record of a job with this copy, script, and paths of modules."""
    before = sys.path[:]
    assert code.main([str(folder), script, *paths]) == 0
    assert sys.path == before
    return attempt.record("code")


def test_packages_beside_the_script_are_those_of_the_copy(attempt: Attempt, copy: Path) -> None:
    script = str(copy / "train.py")
    written = record(attempt, copy, script, ".")
    imports = {"mine": str(copy / "mine/__init__.py"), "train": script}
    assert written == {"folder": str(copy), "script": script, "imports": imports}


def test_packages_of_another_folder_are_found_by_pythonpath(
    attempt: Attempt, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert record(attempt, copy, str(copy / "train.py"), "src")["imports"] == {}
    monkeypatch.setenv("PYTHONPATH", f"/missing:{copy}/src")
    imports = record(attempt, copy, str(copy / "train.py"), "src")["imports"]
    assert imports == {
        "deep": str(copy / "src/deep/__init__.py"),
        "helper": str(copy / "src/helper.py"),
    }


def test_without_a_script_packages_are_in_the_current_folder(
    attempt: Attempt, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    assert "mine" in record(attempt, copy, "", ".")["imports"]


def test_a_package_that_is_imported_from_elsewhere_is_said(
    attempt: Attempt, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    (other / "mine").mkdir(parents=True)
    (other / "mine/__init__.py").touch()
    written = record(attempt, copy, str(other / "train.py"), ".")
    origin = str(other / "mine/__init__.py")
    assert written["imports"] == {"mine": origin}
    message = f"hpcrun: mine is imported from {origin}, not from the copy of the code\n"
    assert capsys.readouterr().err == message
