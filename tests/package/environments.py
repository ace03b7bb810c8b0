"""Clean environments with the wheel, made by the installers that people use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

from tests.harness import Completed

PYTHONS = os.environ.get("HPCRUN_TEST_PYTHONS", sys.executable).split(os.pathsep)
"""The Pythons into whose environments the wheel is installed: separated like PATH."""
_TOOLS = Path(sys.executable).parent
_OURS = ("PYTHON", "VIRTUAL_ENV", "HPCRUN", "PIPX", "UV_PYTHON", "UV_PROJECT", "UV_TOOL", "XDG")


@dataclass(frozen=True)
class Dist:
    """The files that are published."""

    folder: Path
    wheel: Path
    archive: Path

    @cached_property
    def metadata(self) -> Message:
        """What a package index knows of the wheel; its payload is the README."""
        with ZipFile(self.wheel) as files:
            (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
            return message_from_bytes(files.read(name))

    @property
    def readme(self) -> str:
        """The text that a package index renders."""
        return bytes(self.metadata.get_payload(decode=True) or b"").decode()

    @property
    def requirements(self) -> list[str]:
        """What the wheel needs without extras, as pip reads it."""
        stated = [Requirement(text) for text in self.metadata.get_all("Requires-Dist", [])]
        return [str(requirement) for requirement in stated if requirement.marker is None]


def run(*argv: str | Path, home: Path, **env: str) -> Completed:
    """Run a program that knows nothing of this environment and of the home of who tests.

    The caches of pip and uv stay: each package is downloaded once.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    caches = {"UV_CACHE_DIR": _cache("uv"), "PIP_CACHE_DIR": _cache("pip")}
    patience = {"UV_HTTP_RETRIES": "10", "PIP_RETRIES": "10"}
    done = subprocess.run(
        list(map(str, argv)),
        cwd=home,
        env={**plain, "HOME": str(home), **caches, **patience, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done


def tool(name: str) -> str:
    """Return the path of a program of the tests' own environment."""
    return str(_TOOLS / name)


def install(venv: Path, *packages: str | Path, options: Sequence[str] = ()) -> None:
    """Install packages with uv into a new environment of the Python that tests, without pip."""
    home = venv.parent
    run(sys.executable, "-m", "venv", "--without-pip", venv, home=home)
    uv = [tool("uv"), "pip", "install", "--quiet", "--python", str(venv / "bin/python")]
    run(*uv, *options, *packages, home=home)


def _cache(name: str) -> str:
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", name)
