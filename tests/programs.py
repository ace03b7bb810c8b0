"""Programs whose children and signals a launcher has broken before, and what each leaves where it is right."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

WAYS = {"plain": (), "requeue": ("--requeue", "1"), "sweep": ("--sweep", "n=1", "--requeue", "1")}
"""How each of them is submitted."""

SCRIPTS = {
    "sidecar.py": """
import subprocess
sidecar = subprocess.Popen(["sh", "-c", "exec sleep 900"])
sidecar.terminate()
print(sidecar.wait(10), flush=True)
""",
    "pool.py": """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(abs, [-1, -2]), flush=True)
    print("closed", flush=True)
""",
    "dies.py": """
import os, signal
os.kill(os.getpid(), signal.SIGSEGV)
""",
    "saves.py": """
import signal, sys, time
def save(*_):
    print("told", flush=True)
    time.sleep(2)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
""",
}
LAST = "saves.py"
"""The one that has to be told to end."""


@dataclass(frozen=True)
class Left:
    """What a program has left: its output, the exit status of its rank, and that of its job."""

    output: str
    rank: int
    job: int

    @classmethod
    def of(cls, folder: Path) -> Left:
        """Read it from a run's folder."""
        attempt = folder / "elements/0/attempts/0"
        end = json.loads((attempt / "exit").read_text())
        rank, job = (
            json.loads(end["files"]["rank-0.exit"] if "files" in end else (attempt / "rank-0.exit").read_text()),
            end,
        )
        return cls((attempt / "rank-0.out").read_text(), rank["status"], job["status"])


RIGHT = {
    "sidecar.py": Left("-15\n", 0, 0),
    "pool.py": Left("[1, 2]\nclosed\n", 0, 0),
    "dies.py": Left("", 139, 139),
    "saves.py": Left("ready\ntold\nsaved\n", 0, 143),
}
