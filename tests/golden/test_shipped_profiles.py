"""The scripts of every shipped profile: what bash and shellcheck say of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import profile_names
from tests.golden.test_scripts import render
from tests.shellcheck import complaints

PROFILES = sorted(profile_names([shipped_folder("cluster_profiles")]))


@pytest.mark.parametrize("name", PROFILES)
def test_bash_and_shellcheck_read_the_script_of_two_nodes(name: str, tmp_path: Path) -> None:
    # without GPUs a profile does not say how many ranks there are
    on_cpus = {"gpus": "0", "nproc_per_node": 4, "launcher": "torchrun"}
    size: dict[str, Any] = on_cpus if name == "cpu" else {"gpus": "4"}
    path = tmp_path / f"{name}.sh"
    path.write_text(render(profile=name, nodes=2, **size))
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True).stderr == ""
    assert complaints(path, without="SC1003,SC2016") == ""
