"""The parts of the program inside a job: each name in a script leads to a module that runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from importlib import import_module
from pathlib import Path

import pytest

from hpcrun.in_job.launch.__main__ import PARTS
from tests.harness import REPO

MAIN = REPO / "hpcrun/in_job/launch/__main__.py"


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_a_module_with_its_main(part: str) -> None:
    module = import_module(f"hpcrun.in_job.launch.{PARTS[part]}")
    assert callable(module.be_node if part == "check" else module.main)


def test_the_parts_that_scripts_and_programs_name_are_there() -> None:
    texts = [path.read_text("utf-8") for path in (REPO / "templates").rglob("*.j2")]
    named = set(re.findall(r'"\$\{launch\[@\]\}" (\w+)', "\n".join(texts)))
    assert named
    assert named <= set(PARTS)


def test_an_unknown_part_is_one_message() -> None:
    done = subprocess.run(
        [sys.executable, "-ISB", str(MAIN), "nothing"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "hpcrun: launch has no part 'nothing'\n")


def test_a_package_of_the_same_name_in_the_python_of_the_job_is_not_used(tmp_path: Path) -> None:
    """As ROS has one: the record of a snapshot's code is written with the packages of the job."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv/bin/python"
    site = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = subprocess.run(site, capture_output=True, text=True, check=True).stdout.strip()
    Path(folder, "launch.py").write_text("raise SystemExit('another launch')\n")
    (tmp_path / "attempt").mkdir()
    (tmp_path / "code/own").mkdir(parents=True)
    (tmp_path / "code/own/__init__.py").touch()
    env = {"PYTHONPATH": str(tmp_path / "code"), "HPCRUN_ATTEMPT_DIR": str(tmp_path / "attempt")}
    argv = [str(python), "-EB", str(MAIN), "code", str(tmp_path / "code"), "", "."]
    subprocess.run(argv, env=env, check=True)
    record = json.loads((tmp_path / "attempt/code").read_text())
    assert record["imports"] == {"own": str(tmp_path / "code/own/__init__.py")}
