"""Other software of the same name: HPCToolkit's hpcrun, and the package index's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPO, SYSTEM_PATH, Hpcrun


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """The folder of another program with the name hpcrun."""
    folder = tmp_path / "toolkit"
    folder.mkdir()
    (folder / "hpcrun").write_text("#!/bin/sh\n")
    (folder / "hpcrun").chmod(0o755)
    return folder


def test_version_names_the_program_that_takes_the_name(hpcrun: Hpcrun, toolkit: Path) -> None:
    done = hpcrun("--version", env={"PATH": f"{toolkit}:{SYSTEM_PATH}"})
    assert done.stdout.startswith("hpcrun ")
    message, hint = done.stderr.splitlines()
    assert f"{toolkit}/hpcrun" in message
    assert "-m hpcrun" in hint
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["hpcrun", "hpcrun-slurm"])
def test_version_has_no_remark_where_the_name_is_its_own(
    hpcrun: Hpcrun, toolkit: Path, tmp_path: Path, name: str
) -> None:
    links = tmp_path / "a folder of links"
    links.mkdir()
    (links / "hpcrun").symlink_to(f"{hpcrun.venv}/bin/hpcrun")
    path = f"{links}:{toolkit}:{SYSTEM_PATH}"
    done = hpcrun.run(f"{hpcrun.venv}/bin/{name}", "--version", env={"PATH": path})
    assert (done.stdout.split()[0], done.stderr) == ("hpcrun", "")


def test_doctor_warns_of_the_program_that_takes_the_name(hpcrun: Hpcrun, toolkit: Path) -> None:
    path = f"{toolkit}:{hpcrun.venv}/bin:{SYSTEM_PATH}"
    document = hpcrun.document("doctor", "-P", "local", env={"PATH": path})
    (check,) = [check for check in document["checks"] if check["name"] == "hpcrun"]
    assert (check["group"], check["level"]) == ("Python", "yellow")
    assert f"{toolkit}/hpcrun" in check["seen"]
    checks = hpcrun.document("doctor", "-P", "local")["checks"]
    assert "hpcrun" not in [check["name"] for check in checks]


def test_version_names_the_other_package_that_writes_into_the_same_folder(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "hpcrun").mkdir(parents=True)
    (other / "hpcrun/__init__.py").touch()
    (other / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n"
        "[project]\nname = 'hpcrun'\nversion = '0.1.11'\n"
    )
    site = tmp_path / "site"
    shutil.copytree(REPO / "hpcrun", site / "hpcrun")
    quick = ["--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "install", *quick, "--prefix", str(tmp_path / "prefix")]
    subprocess.run([*pip, str(other)], check=True, capture_output=True)
    (installed,) = (tmp_path / "prefix").rglob("site-packages")
    shutil.copytree(installed, site, dirs_exist_ok=True)  # its empty __init__.py replaces hpcrun's
    done = hpcrun("--version", env={"PYTHONPATH": str(site)})
    message, hint = done.stderr.splitlines()
    assert "the package hpcrun 0.1.11" in message
    assert f"{site}/hpcrun" in message
    assert "pip uninstall hpcrun" in hint


def test_on_windows_one_sentence_says_where_hpcrun_runs(hpcrun: Hpcrun) -> None:
    python = f"{hpcrun.venv}/bin/python"
    without = "import sys; sys.modules.update(fcntl=None, pwd=None); sys.platform = 'win32'\n"
    command = f"{without}import runpy; runpy.run_module('hpcrun', run_name='__main__')"
    done = hpcrun.run(python, "-c", command, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hpcrun does not run on Windows: use it in WSL")
    library = f"{without}import hpcrun\ntry: hpcrun.Executor\nexcept ImportError as e: print(e)"
    assert "WSL" in hpcrun.run(python, "-c", library).stdout
