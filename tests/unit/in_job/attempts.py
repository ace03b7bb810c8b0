"""An attempt of a job on one node, n1: its folder, and the programs of ``launch`` in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hpcrun.in_job.launch.node_folder import PLACES, PREFIX
from tests.harness import REPO, wait_for

LAUNCH = [sys.executable, "-ISB", str(REPO / "hpcrun/in_job/launch")]


class Attempt:
    """The folder of an attempt, and the variables of its processes."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.folder = self.run / "elements/0/attempts/0"
        (self.folder / "stop").mkdir(parents=True)
        job = f"U{os.getpid()}"
        self.node_folders = f"{PREFIX}{job}-*"
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HPCRUN_RUN_DIR": str(self.run),
            "HPCRUN_ATTEMPT_DIR": str(self.folder),
            "HPCRUN_CHECKPOINT_DIR": str(self.run / "elements/0/checkpoints"),
            "HPCRUN_ELEMENT": "0",
            "HPCRUN_ATTEMPT": "0",
            "HPCRUN_JOB_ID": job,
            "HPCRUN_NODE": "n1",
            "HPCRUN_NODE_ADDR": "127.0.0.1",
            "HPCRUN_NODE_RANK": "0",
            "HPCRUN_HEAD": "n1",
            "HPCRUN_HEAD_ADDR": "127.0.0.1",
            "HPCRUN_PORT": "20001",
            "RANK": "3",
        }

    def launch(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a part of ``launch`` to its end, with more variables."""
        return subprocess.run(
            [*LAUNCH, *words],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a part of ``launch``, with more variables."""
        return subprocess.Popen(
            [*LAUNCH, *words],
            env={**self.env, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def record(self, name: str) -> dict[str, Any]:
        """Return a record of the attempt."""
        return dict(json.loads(self.text(name)))

    def text(self, name: str) -> str:
        """Return the text of a file of the attempt; empty if there is none yet."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def until(self, text: str, name: str) -> None:
        """Wait until a file of the attempt has a text."""
        wait_for(lambda: text in self.text(name), 20, f"{text!r} in {name}")

    def remove_node_folders(self) -> None:
        """Remove what killed processes have left on this machine's disk."""
        for place in PLACES:
            for folder in Path(place).glob(self.node_folders):
                shutil.rmtree(folder, ignore_errors=True)
