"""What stands for hosts in tests, on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from hpcrun.features.remote.connection import Remote
from hpcrun.features.remote.login import remember


def program(path: Path, lines: str) -> Path:
    """A script of sh."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def host_that_prints(folder: Path, name: str, text: str) -> None:
    """A known host whose hpcrun prints the same whatever it is asked."""
    answer = folder / f"{name}.txt"
    answer.write_text(text)
    there = program(folder / f"hpcrun-{name}", f"cat '{answer}'")
    remember(name, Remote(str(there), "0.1.0", os.environ["PATH"]))
