"""The scripts of every shipped profile: what bash and shellcheck say of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import profile_names
from tests.golden.test_scripts import case, render
from tests.shellcheck import complaints

PROFILES = sorted(profile_names([shipped_folder("cluster_profiles")]))


@pytest.fixture(params=PROFILES)
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The script of two nodes of a profile, as large as may be."""
    name = request.param
    # without GPUs a profile does not say how many ranks there are
    size: dict[str, Any] = (
        {"gpus": "0", "nproc_per_node": 4, "launcher": "torchrun"} if name == "cpu" else {"gpus": "4"}
    )
    path = tmp_path / f"{name}.sh"
    path.write_text(render(case(profile=name, nodes=2, **size)))
    return path


def test_bash_reads_it(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_shellcheck_has_nothing_to_say_of_it(script: Path) -> None:
    assert complaints(script, without="SC1003,SC2016") == ""
