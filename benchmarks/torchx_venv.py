"""The other tool, in a virtual environment of its own outside the repository; made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = ("torchx==0.7.0", "torch==2.13.0")


def cache_folder() -> Path:
    """Return where the benchmarks keep what they install."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcrun-benchmarks"


def torchx_command() -> Path:
    """Return torchx's command, of an environment with this Python; installs it where it is
    missing.
    """
    folder = cache_folder() / "torchx-venv"
    complete = folder / "complete"  # an installation that was interrupted begins again
    wanted = "\n".join((sys.version, *REQUIREMENTS))
    if not complete.is_file() or complete.read_text("utf-8") != wanted:
        print(f"installing {' and '.join(REQUIREMENTS)} into {folder} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = (
            folder / "bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        )
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        complete.write_text(wanted, "utf-8")
    return folder / "bin/torchx"
