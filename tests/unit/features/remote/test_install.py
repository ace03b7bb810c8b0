"""What hpcrun login --install takes to a host: this installation as a wheel, for a Python there."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.features.remote.connection import Connection
from hpcrun.features.remote.install import _own_wheel, _python_of
from hpcrun.version import __version__
from tests.unit.features.remote.hosts import program

FAR = Connection("far", "/run/far")


def path_of(folder: Path, name: str, answer: str) -> str:
    """The PATH of a host with one Python, which prints this."""
    program(folder / name, answer)
    return str(folder)


@pytest.mark.parametrize("name", ["python3", "python3.13", "python3.12", "python3.10"])
def test_pythons_of_the_host_have_their_usual_names(here: Path, name: str) -> None:
    folder = here / "there"
    folder.mkdir()
    path = path_of(folder, name, f"echo welcome; echo // 3 12 x86_64 /usr/bin/{name}")
    assert _python_of(FAR, path) == ("3", "12", "x86_64", f"/usr/bin/{name}")


@pytest.mark.parametrize(
    "answer",
    [
        "exit 1",
        "echo // 3 12 x86_64",
        "echo // 3 12 x86_64 /usr/bin/python3 more",
        "echo // 3 x x86_64 /usr/bin/python3",
        "echo // x 12 x86_64 /usr/bin/python3",
        "echo // 3 12 x86-64 /usr/bin/python3",
        "echo 3.12",
    ],
    ids=["too old", "no path", "more words", "minor", "major", "machine", "no mark"],
)
def test_a_host_without_a_python_for_hpcrun_is_refused(here: Path, answer: str) -> None:
    folder = here / "there"
    folder.mkdir()
    with pytest.raises(PlanError, match=r"no Python 3\.10 or later on far"):
        _python_of(FAR, path_of(folder, "python3", answer))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a wheel of this installation, as text."""
    path = _own_wheel(tmp_path_factory.mktemp("wheels"))
    assert path.name == f"hpcrun_slurm-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


def test_a_wheel_has_the_program_and_what_jobs_import(wheel: dict[str, str]) -> None:
    package = Path(__file__).parents[4] / "hpcrun"
    assert wheel["hpcrun/version.py"] == (package / "version.py").read_text()
    assert wheel["hpcrun_runtime.py"] == (package / "runtime.py").read_text()
    assert "hpcrun/in_job/launch/__main__.py" in wheel
    assert not [name for name in wheel if "__pycache__" in name]


@pytest.mark.parametrize("name", ["templates/allocation/slurm.sh.j2", "cluster_profiles/a100.yaml"])
def test_a_wheel_has_templates_and_profiles(wheel: dict[str, str], name: str) -> None:
    assert wheel[f"hpcrun/shipped/{name}"]


def test_a_wheel_lists_all_its_files(wheel: dict[str, str]) -> None:
    info = f"hpcrun_slurm-{__version__}.dist-info"
    record = wheel[f"{info}/RECORD"].splitlines()
    assert record == [f"{name},," for name in wheel]
    assert wheel[f"{info}/WHEEL"].startswith("Wheel-Version: 1.0\n")
    assert "Tag: py3-none-any\n" in wheel[f"{info}/WHEEL"]
    assert "Name: hpcrun-slurm\n" in wheel[f"{info}/METADATA"]
    assert "hpcrun = " in wheel[f"{info}/entry_points.txt"]


def test_a_wheel_has_one_entry_for_each_file(wheel: dict[str, str]) -> None:
    assert len(wheel) == len({os.path.normpath(name) for name in wheel})
