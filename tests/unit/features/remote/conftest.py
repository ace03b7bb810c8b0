"""What tests of hosts start from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.features.remote.connection import Remote
from hpcrun.features.remote.login import remember
from tests.unit.features.remote.hosts import program


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, with an ssh that runs the commands of every host on this machine.

    A host whose name begins with ``gone`` has no open connection.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(
        tmp_path / "ssh",
        'case "$*" in *" -- gone"*) exit 255; esac\n'
        'case "$*" in *"-O check"*|*"-O exit"*) exit 0; esac\n'
        "for last; do :; done\n"
        'eval "$last"',
    )
    return tmp_path


@pytest.fixture
def far(here: Path) -> Path:
    """A host that ``hpcrun login`` knows; returns the folder for what stands for hpcrun."""
    remember("far", Remote(str(here / "there"), "0.1.0", os.environ["PATH"]))
    return here
