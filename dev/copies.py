"""Copies of the checkout in which tests run: for `dev/mutants.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def make_environment(tree: Path) -> None:
    """Make a virtual environment whose hpcrun is this tree; all else is that of this Python."""
    folder = tree / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # this Python may be that of a copy, which has the packages from elsewhere
    mine = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "tree.pth").write_text("\n".join([str(tree), *mine, ""]))
    for program in Path(sys.prefix, "bin").iterdir():
        if not (folder / "bin" / program.name).exists():
            (folder / "bin" / program.name).symlink_to(program)
