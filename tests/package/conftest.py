"""What the tests of the package share: the wheel and the source archive, and environments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPO
from tests.package.environments import Dist


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """The source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(REPO)]
    # a fixed umask: what a build by a careful person contains can be read by others, too
    subprocess.run(build, check=True, capture_output=True, env=os.environ, umask=0o022)
    (wheel,) = folder.glob("hpcrun_slurm-*.whl")
    (archive,) = folder.glob("hpcrun_slurm-*.tar.gz")
    return Dist(folder, wheel, archive)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    folder = tmp_path / "a home"
    folder.mkdir()
    return folder
