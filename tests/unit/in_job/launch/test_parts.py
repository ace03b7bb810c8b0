"""The parts of the program inside a job: each name in a script leads to a module that runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

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
