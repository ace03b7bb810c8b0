"""The program on the node: a folder that anybody has written replaces none of its modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.features.dev import PROGRAM, hpcrun_dev
from hpcrun.job import plan


@pytest.mark.parametrize("start, program", [(plan._RUN_MODULE, PROGRAM), (hpcrun_dev.RUN_MODULE, "json.tool")])
@pytest.mark.parametrize("search", ["", ":", "."])
def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, start: str, program: str, search: str) -> None:
    for name in ("selectors", "secrets", "hpcrun_dev", "hpcrun_dev_watch", "json", "runpy", "importlib"):
        (tmp_path / f"{name}.py").write_text("open('hacked', 'w')\n")
    path = f"{search}:{Path(hpcrun_dev.__file__).parent}"
    argv = [sys.executable, "-c", start, program, "check" if program == PROGRAM else "-h", str(tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert "the listener does not respond" in done.stderr or "usage" in done.stdout, done.stderr
    assert not (tmp_path / "hacked").exists()


def test_the_listener_and_jupyter_start_alike() -> None:
    assert PROGRAM in plan._NOT_FROM_HERE
    assert plan._RUN_MODULE == hpcrun_dev.RUN_MODULE
