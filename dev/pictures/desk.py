"""Where the pictures are taken: a home of the cluster's ordinary user, with hpcrun installed and a
project.

It is a folder that a reader takes for one's own, and no path of the checkout or of the tests'
folders stands in a picture.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.pictures.terminal import COLUMNS, Terminal
from tests.harness import (
    REPO,
    RESEARCHER,
    SYSTEM_PATH,
    TRACKERS,
    Cluster,
    as_researcher_command,
    wait_for,
)

HOME = Path("/home/me")
_PROJECT = Path(__file__).parent / "project"


@dataclass(frozen=True)
class Desk:
    """A person's home on the cluster."""

    cluster: Cluster
    project: Path = HOME / "project"

    @property
    def environ(self) -> Mapping[str, str]:
        """All that a program of this person finds in its environment."""
        return {
            "HOME": str(HOME),
            "LANG": "C.UTF-8",
            "PATH": f"{HOME}/venv/bin:{SYSTEM_PATH}",
            "SHELL": "/bin/bash",
            "USER": RESEARCHER,
            "VIRTUAL_ENV": f"{HOME}/venv",
            # torch warns of hosts that have no name in DNS, as those of this cluster
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            **self.cluster.env,
        }

    def terminal(self, columns: int = COLUMNS, host: str | None = None) -> Terminal:
        """Return a terminal in the project's folder; with a host, on a machine of that name:
        Slurm's are not found.
        """
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host) if host else ()
        return Terminal(
            (*named, *as_researcher_command()), cwd=self.project, env=self.environ, columns=columns
        )

    def submit(self, name: str, *args: str) -> None:
        """Submit a job of that name, out of the picture."""
        self._run("submit", "--json", "-J", name, *args)

    def cancel(self, name: str) -> None:
        """Cancel the newest run of that name, out of the picture."""
        self._run("cancel", "--yes", name)

    def wait_until(self, name: str, *states: str, within_s: float = 120) -> None:
        """Wait until the newest run of that name is in one of these states."""

        def reached() -> bool:
            time.sleep(1)
            runs: list[dict[str, Any]] = json.loads(self._run("status", "--json", name))["runs"]
            return runs[0]["state"] in states

        wait_for(reached, within_s, f"{name} to be {' or '.join(states)}")

    def give(self, folder: Path) -> None:
        """Make this person the owner of a folder and all in it."""
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, RESEARCHER, RESEARCHER)

    def _run(self, *args: str) -> str:
        argv = [*as_researcher_command(), f"{HOME}/venv/bin/hpcrun", *args]
        done = subprocess.run(
            argv, cwd=self.project, env=self.environ, capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise AssertionError(
                f"hpcrun {' '.join(args)} ended with "
                f"{done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout


@contextmanager
def desk(cluster: Cluster) -> Iterator[Desk]:
    """Make the home, and remove it at the end.

    Raises:
        FileExistsError: somebody has this home already.
    """
    HOME.mkdir()
    try:
        _install(HOME / "venv")
        shutil.copytree(_PROJECT, HOME / "project", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.chown(HOME, RESEARCHER, RESEARCHER)
        made = Desk(cluster)
        made.give(made.project)
        yield made
    finally:
        shutil.rmtree(HOME)


def _install(venv: Path) -> None:
    """Install hpcrun as a user does; what it needs comes from the environment that runs this."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = f"{venv}/bin/python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        python,
    ]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    (packages,) = venv.glob("lib/python*/site-packages")
    needed = [path for path in sys.path if path.endswith("site-packages")]
    needed += map(str, TRACKERS.glob("lib/python*/site-packages"))
    (packages / "needed.pth").write_text("".join(f"{path}\n" for path in needed))
    subprocess.run([*pip, "install", *offline, str(REPO)], check=True)
    (venv / "bin/py-spy").symlink_to(Path(sys.executable).with_name("py-spy"))
