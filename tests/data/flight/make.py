"""Make the dumps anew: jobs of four gloo ranks that hang, each for another reason, with the torch
that is installed.

Run from the checkout: ``python tests/data/flight/make.py [CASE...]``. A case is a folder with a
dump per rank. What needs NCCL is built in tests/unit/explain/flights.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = Path("/tmp/project")
"""Where the program and Python are for the dumps: their paths are in them."""
CASES = (
    "missing",
    "skipped",
    "operation",
    "sizes",
    "type",
    "mesh",
    "late",
    "no-dump",
    "circle",
    "alone",
)


def make(case: str) -> None:
    """Run a case, and keep its dumps."""
    kept = HERE / case
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    shutil.rmtree(PROJECT, ignore_errors=True)
    PROJECT.mkdir()
    shutil.copy(HERE / "train.py", PROJECT)
    (PROJECT / "venv").symlink_to(sys.prefix)
    command = [
        str(PROJECT / "venv/bin/python"),
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=4",
    ]
    env = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": f"{kept}/rank_", "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, str(PROJECT / "train.py"), case], env=env)
    shutil.rmtree(PROJECT)
    print(case, *sorted(path.name for path in kept.iterdir()))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make(name)
