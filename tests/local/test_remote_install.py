"""``hpcrun login --install`` on a host without hpcrun, with a real sshd and the wheels of the real
index.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.version import __version__
from tests.remote import laptop, login_node


@pytest.mark.needs("sshd", "rsync")
def test_hpcrun_is_installed_on_a_host_and_runs_there(tmp_path: Path) -> None:
    # so long that pip starts its programs with sh: Linux reads 127 characters of a first line
    home = tmp_path / f"there{'-' * 60}"
    home.mkdir()
    index = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    server = login_node(home / "sshd", {"HOME": str(home)}, user="root")
    with server as node, laptop(tmp_path / "laptop", far=node) as here:
        assert "no hpcrun there" in here.run(*here.argv("login", "far")).stdout
        there = f"{home}/.local/share/hpcrun/remote"
        for _ in range(2):  # once more, in place of the first
            done = here.run(*here.argv("login", "far", "--install"), env=index, timeout=300)
            assert f"{there}/0.1.0/bin/hpcrun" in done.stdout
        for program in ("hpcrun", "hpcrun-slurm"):
            path = f"{there}/{__version__}/bin"
            shown = here.run(f"{path}/{program}", "--version", env={"PATH": path})
            assert (shown.stdout, shown.stderr) == (f"hpcrun {__version__}\n", "")
        assert "no runs" in here.run(*here.argv("--on", "far", "status")).stderr
        assert os.listdir(there) == ["0.1.0"]
        assert node.logins == 1
