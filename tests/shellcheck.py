"""shellcheck, as `make test` installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(sys.executable).parent / "shellcheck"


def complaints(script: Path, *, without: str = "") -> str:
    """Return what shellcheck says of a bash script, but for the codes in ``without``; empty for a
    good one.

    Raises FileNotFoundError where the tests' environment has no shellcheck: ``make test`` installs
    it.
    """
    command = [str(_PROGRAM), "--shell=bash", f"--exclude={without}", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr
