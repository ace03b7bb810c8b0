"""Other software with the name hpcrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hpcrun.machine import namesakes as module
from hpcrun.machine.namesakes import namesakes

OWN = "import sys\nfrom hpcrun.__main__ import main\nsys.exit(main())\n"
FOLDER = os.path.dirname(sys.executable)


def program(folder: Path, text: str) -> str:
    """A program called hpcrun; returns its folder."""
    path = folder / "hpcrun"
    path.write_text(text)
    path.chmod(0o755)
    return str(folder)


def test_without_a_program_of_the_name_there_is_none(tmp_path: Path) -> None:
    assert namesakes(str(tmp_path)) == []


def test_the_script_of_this_python_is_no_other(tmp_path: Path) -> None:
    assert namesakes(program(tmp_path, f"#!{FOLDER}/python3\n{OWN}")) == []


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\necho HPCToolkit\n",
        f"#!/other/bin/python3\n{OWN}",
        f"#!{FOLDER}/python3\n{'#' * 2000}\n{OWN}",
    ],
    ids=["HPCToolkit", "another Python", "too long"],
)
def test_another_program_is_named_with_the_way_to_this_one(tmp_path: Path, text: str) -> None:
    [found] = namesakes(program(tmp_path, text))
    path = tmp_path / "hpcrun"
    assert found.seen == f"the name hpcrun starts {path}, which is not this installation"
    assert found.fix == f"{sys.executable} -m hpcrun, or {FOLDER} as the first folder of PATH"


def test_a_script_beside_this_python_needs_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert namesakes(program(tmp_path, f"#!/bin/sh\n{OWN}")) == []


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("hpcrun-0.3.dist-info", "0.3"),
        ("hpcrun-0.3.egg-info", "0.3"),
        ("hpcrun_slurm-0.1.0.dist-info", None),
        ("hpcrun-0.3.txt", None),
    ],
)
def test_the_other_package_of_the_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str | None
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(module, "__file__", str(tmp_path / "hpcrun/machine/namesakes.py"))
    found = namesakes(str(tmp_path))
    assert [each.seen.partition(",")[0] for each in found] == (
        [f"the package hpcrun {version}"] if version else []
    )
