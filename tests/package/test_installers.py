"""The wheel in clean environments of pip, uvx and pipx, as a user starts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.version import __version__
from tests.package.environments import PYTHONS, Dist, run, tool

pytestmark = pytest.mark.timeout(1200)  # they download and compile 36 packages

MOST_PACKAGES = 36
MOST_BYTES = 110 * 1024**2
VERSION = f"hpcrun {__version__}\n"


@pytest.fixture(params=PYTHONS, ids=lambda path: path.replace("/", "_"))
def python(request: pytest.FixtureRequest) -> str:
    """A Python of this machine."""
    return str(request.param)


def size_of(folder: Path) -> int:
    """The bytes on disk of a folder."""
    return sum(512 * os.lstat(path).st_blocks for path in folder.rglob("*"))


def test_pip_installs_a_small_package_that_starts_by_three_names(
    dist: Dist, python: str, home: Path
) -> None:
    venv = home / "venv"
    run(python, "-m", "venv", venv, home=home)
    (packages,) = venv.glob("lib/python3*/site-packages")
    size = size_of(packages)
    names = len(list(packages.glob("*.dist-info")))
    run(venv / "bin/pip", "install", "--quiet", dist.wheel, home=home)
    assert len(list(packages.glob("*.dist-info"))) - names <= MOST_PACKAGES
    assert size_of(packages) - size <= MOST_BYTES
    path = f"{venv}/bin:{os.environ['PATH']}"
    for command in (
        [venv / "bin/hpcrun"],
        [venv / "bin/hpcrun-slurm"],
        [venv / "bin/python", "-m", "hpcrun"],
    ):
        done = run(*command, "--version", home=home, PATH=path)
        assert (done.stdout, done.stderr) == (VERSION, "")
    assert "Usage: hpcrun-slurm" in run(venv / "bin/hpcrun-slurm", "--help", home=home).stdout


def test_uvx_starts_the_program_by_the_name_of_the_package(
    dist: Dist, python: str, home: Path
) -> None:
    uvx = [tool("uvx"), "--quiet", "--no-python-downloads", "--python", python]
    name = f"hpcrun-slurm=={__version__}"
    done = run(*uvx, "--find-links", dist.folder, name, "--version", home=home)
    assert (done.stdout, done.stderr) == (VERSION, "")


def test_pipx_runs_and_installs_the_program(dist: Dist, python: str, home: Path) -> None:
    pipx = tool("pipx")
    env = {"PIPX_HOME": f"{home}/pipx", "PIPX_BIN_DIR": f"{home}/bin", "USE_EMOJI": "0"}
    spec = ["run", "--python", python, "--spec", str(dist.wheel), "hpcrun-slurm", "--version"]
    assert run(pipx, *spec, home=home, **env).stdout == VERSION
    run(pipx, "install", "--python", python, dist.wheel, home=home, **env)
    path = f"{home}/bin:{os.environ['PATH']}"
    for program in ("hpcrun", "hpcrun-slurm"):
        done = run(home / "bin" / program, "--version", home=home, PATH=path)
        assert (done.stdout, done.stderr) == (VERSION, "")
