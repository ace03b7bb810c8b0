"""Copies of the checkout in which tests run: for `dev/mutants.py`."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path


def make_environment(tree: Path) -> None:
    """Make a virtual environment whose hpcrun is this tree; all else is that of this Python."""
    folder = tree / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "tree.pth").write_text(f"{tree}\n{site_packages()}\n")
    for program in Path(sys.prefix, "bin").iterdir():
        if not (folder / "bin" / program.name).exists():
            (folder / "bin" / program.name).symlink_to(program)


def site_packages() -> str:
    """Return the folder of the packages of this Python."""
    return sysconfig.get_path("purelib")
